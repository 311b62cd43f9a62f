//! When the loop asks the quiescent reader for a quiescent read, and what it does with the answers.
//!
//! `sample/quiescent.rs` decides what a quiescent read proves. Invariant: nothing waits for an answer
//! while the run goes on.

use super::{Run, SECOND, now, sleep_until};

/// The quiescent reader is not asked more often than this, and less and less often while it does not help.
pub(super) const ASK_AT_LEAST: u64 = SECOND / 1000;
const ASK_AT_MOST: u64 = SECOND / 20;
/// Quiescent reads at the end of a run for edges that are still open, and how long they may take.
const LAST_ASKS: usize = 64;
const LAST_ASKS_TAKE: u64 = SECOND / 2;

impl Run<'_> {
    /// Asks for a quiescent read of a worker whose last stack has an open edge, or was cut. A new (`is_new`) stack is likely to last, and
    /// may be rare, so it is read now.
    pub(super) fn ask_for(&mut self, wanted: Option<usize>, is_new: bool) {
        let Some(index) = wanted else {
            return;
        };
        if is_new {
            self.next_ask = 0;
        }
        self.seek(index, self.ask_interval);
    }

    /// Asks for a proof for a worker; the next one may follow after `pause`.
    fn seek(&mut self, index: usize, pause: u64) {
        let current = now();
        if current < self.next_ask || self.quiescent.is_busy() {
            return;
        }
        self.next_ask = current + pause;
        self.quiescent.ask(&mut self.members[index].worker);
    }

    pub(super) fn take_quiescent_answer(&mut self) {
        let Some(answer) = self.quiescent.answer() else {
            return;
        };
        let unsettled = self.sampler.edges.unsettled();
        if let Some(observation) = answer
            && let Some(member) = self
                .members
                .iter_mut()
                .find(|member| member.worker.process.tid == observation.tid)
        {
            self.sampler.believe(&mut member.worker, observation, now());
        }
        let helped = self.sampler.edges.unsettled() < unsettled;
        self.ask_interval = if helped {
            ASK_AT_LEAST
        } else {
            (self.ask_interval * 2).min(ASK_AT_MOST)
        };
    }

    /// Asks for more quiescent reads for the edges that are open at the end.
    pub(super) fn ask_at_the_end(&mut self) {
        let until = now() + LAST_ASKS_TAKE;
        for turn in 0..LAST_ASKS {
            if self.sampler.edges.unsettled() == 0 || self.members.is_empty() || now() > until {
                return;
            }
            let index = turn % self.members.len();
            self.quiescent.ask(&mut self.members[index].worker);
            while self.quiescent.is_busy() && now() < until {
                sleep_until(now() + SECOND / 10_000);
                self.take_quiescent_answer();
            }
        }
    }
}
