//! When the loop asks the quiescent reader for a quiescent read, and what it does with the answers.
//!
//! `sample/quiescent.rs` decides what a quiescent read proves. Invariant: nothing waits for an
//! answer while the run continues.

use nix::sched::CpuSet;

use super::{RunLoop, SECOND};
use crate::read::quiescent::QuiescentReader;

/// The quiescent reader is not asked more often than this, and less and less often while it does
/// not help.
const ASK_AT_LEAST: u64 = SECOND / 1000;
const ASK_AT_MOST: u64 = SECOND / 20;
/// Quiescent reads at the end of a run for edges that are still open, and how long they may take.
const LAST_ASKS: usize = 64;
const LAST_ASKS_TAKE: u64 = SECOND / 2;
/// After this many asks in a row without a quiescent read there will be none: the reader may not
/// run on the workers' CPUs.
const IN_VAIN: u32 = 16;

/// What came of the last asks.
#[derive(Debug, Default)]
struct AskHistory {
    /// How many in a row gave no quiescent read of a worker that ran.
    in_vain: u32,
}

impl AskHistory {
    /// Notes whether an ask gave a quiescent read, and if so, whether the worker slept: such a read
    /// says nothing of workers that run.
    fn note(&mut self, was_asleep: Option<bool>) {
        self.in_vain = match was_asleep {
            Some(true) => self.in_vain,
            Some(false) => 0,
            None => self.in_vain.saturating_add(1),
        };
    }

    /// Whether quiescent reads cannot be expected any more.
    fn are_in_vain(&self) -> bool {
        self.in_vain >= IN_VAIN
    }
}

/// The quiescent reader, and when it is asked next.
pub(super) struct QuiescentAsks {
    reader: QuiescentReader,
    next: u64,
    interval: u64,
    history: AskHistory,
}

impl QuiescentAsks {
    /// Starts the reader's thread, which may use these CPUs; by default all that the kernel allows.
    pub fn start(cpus: Option<CpuSet>) -> std::io::Result<Self> {
        Ok(Self {
            reader: QuiescentReader::start(cpus)?,
            next: 0,
            interval: ASK_AT_LEAST,
            history: AskHistory::default(),
        })
    }
}

impl RunLoop<'_> {
    /// Asks for a quiescent read of a worker whose last stack has an open edge, or was cut. A new
    /// (`is_new`) stack is likely to last, and may be rare, so it is read now.
    pub(super) fn ask_for(&mut self, wanted: Option<usize>, is_new: bool) {
        let Some(index) = wanted else {
            return;
        };
        if is_new {
            self.asking.next = 0;
        }
        self.seek(index, self.asking.interval);
    }

    /// Asks for a proof for a worker; the next one may follow after `pause`.
    fn seek(&mut self, index: usize, pause: u64) {
        let current = self.clock.now();
        if current < self.asking.next || self.asking.reader.is_busy() {
            return;
        }
        self.asking.next = current + pause;
        if !self.asking.reader.ask(&mut self.members[index].worker) {
            self.note_ask(None);
        }
    }

    fn note_ask(&mut self, was_asleep: Option<bool>) {
        self.asking.history.note(was_asleep);
        self.sampler.is_without_quiescent_reads = self.asking.history.are_in_vain();
    }

    pub(super) fn take_quiescent_answer(&mut self) {
        let Some(answer) = self.asking.reader.answer() else {
            return;
        };
        let unsettled = self.sampler.edges.unsettled();
        let was_asleep = answer.as_ref().map(|observation| observation.was_asleep);
        if let Some(observation) = answer
            && let Some(member) = self
                .members
                .iter_mut()
                .find(|member| member.worker.process.tid == observation.tid)
        {
            self.sampler
                .believe(&mut member.worker, observation, self.clock.now());
        }
        self.note_ask(was_asleep);
        let helped = self.sampler.edges.unsettled() < unsettled;
        self.asking.interval = if helped {
            ASK_AT_LEAST
        } else {
            (self.asking.interval * 2).min(ASK_AT_MOST)
        };
    }

    /// Asks for more quiescent reads for the edges that are open at the end.
    pub(super) fn ask_at_the_end(&mut self) {
        let until = self.clock.now() + LAST_ASKS_TAKE;
        for turn in 0..LAST_ASKS {
            if self.sampler.edges.unsettled() == 0
                || self.members.is_empty()
                || self.clock.now() > until
            {
                return;
            }
            let index = turn % self.members.len();
            self.asking.reader.ask(&mut self.members[index].worker);
            while self.asking.reader.is_busy() && self.clock.now() < until {
                self.clock.sleep_until(self.clock.now() + SECOND / 10_000);
                self.take_quiescent_answer();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_asks_in_vain_wait_for_a_read() {
        let mut asks = AskHistory::default();
        let mut after = |reads: &[Option<bool>]| {
            reads.iter().for_each(|&was_asleep| asks.note(was_asleep));
            asks.are_in_vain()
        };
        let (none, asleep, ran) = (None, Some(true), Some(false));
        assert!(!after(&[none; 15]));
        assert!(after(&[asleep, none]));
        assert!(after(&[asleep]));
        assert!(!after(&[ran]));
        assert!(!after(&[none; 15]));
        assert!(!after(&[ran, none]));
    }
}
