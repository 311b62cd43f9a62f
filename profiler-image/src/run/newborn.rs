//! What was born since the last turn is attached and sampled in this one: children that live for
//! milliseconds have samples, too.
//!
//! One short read tells whether the kernel has given a new number (`target/process/last_pid.rs`).
//! Invariant: a worker that is found in a turn has a sample in it exactly if it would have one had
//! it been known before, so its samples represent its time from its first moment on.

use super::RunLoop;
use super::schedule::SampleTurn;
use super::time::SECOND;
use crate::target::scanner::Found;

/// At higher rates not each turn looks.
const LOOK_EVERY: u64 = 4 * SECOND / 1000;

impl RunLoop<'_> {
    /// Looks for newborn workers, and samples those that are due in this turn.
    pub(super) fn take_newborn(&mut self, turn: SampleTurn, current: u64) {
        if turn.slot.is_none() || current < self.watch.next_quick {
            return;
        }
        self.watch.next_quick = current + LOOK_EVERY;
        if !self.watch.newest.take_move() && self.watch.failed.is_empty() && !self.watch.is_fresh {
            return;
        }
        let Some((reports, is_fresh)) = self.watch.scanner.quick(&self.watch.failed) else {
            // The scan that is under way has them.
            self.watch.failed.clear();
            return;
        };
        self.watch.failed.clear();
        self.watch.is_fresh = is_fresh;
        for report in reports {
            let before = self.members.len();
            let is_newborn = report.found != Found::ByScan;
            let gone = report.changes.gone.len();
            self.follow(report, self.clock.now());
            if is_newborn {
                self.take_those_from(before.saturating_sub(gone), turn);
            }
        }
    }

    /// Samples the workers of the turn's group whose index is at least this.
    fn take_those_from(&mut self, first: usize, turn: SampleTurn) {
        let mut wanted = None;
        // They are read when they are found, not at a time that was drawn.
        self.own.is_late = false;
        for index in first..self.members.len() {
            let is_due = index % turn.groups.max(1) == turn.group;
            if is_due && self.members[index].is_unsampled() {
                self.sampler.quality.due += 1;
                self.take_one(index, &mut wanted);
            }
        }
        self.ask_for(wanted, false);
    }
}
