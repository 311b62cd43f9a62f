//! When the quiescent reader is asked for a quiescent read, and what becomes of its answers.
//!
//! What this module does not do: tell what a quiescent read proves; `sample/quiescent.rs` does. Invariant: nobody waits for an answer
//! while the run goes on.

use super::{Run, SECOND, now, sleep_until};

/// The quiescent reader is not asked more often than this, and ever more seldom while it does not help.
pub(super) const ASK_AT_LEAST: u64 = SECOND / 1000;
const ASK_AT_MOST: u64 = SECOND / 10;
/// A program can have thousands of ways, each of which a quiescent read helps: they are worth less of the target's time.
pub(super) const ASK_FOR_CALL_PATHS_AT_LEAST: u64 = SECOND / 250;
/// Quiescent reads at the end of a run, for what is still open then, and how long they may take.
const LAST_ASKS: usize = 64;
const LAST_ASKS_TAKE: u64 = SECOND / 2;

impl Run<'_> {
    /// Seeks a proof for a worker whose last stack was open, or its way not yet seen to stand; the next one after `pause`.
    pub(super) fn seek(&mut self, index: usize, pause: u64) {
        let current = now();
        if current < self.next_ask || self.quiescent.is_busy() {
            return;
        }
        self.next_ask = current + pause;
        let worker = &mut self.workers[index];
        self.sampler.prove_asleep(worker, current);
        self.quiescent.ask(&worker.process);
    }

    pub(super) fn take_quiescent_answer(&mut self) {
        let Some(answer) = self.quiescent.answer() else {
            return;
        };
        let unsettled = self.sampler.edges.unsettled();
        let confirmed = self.sampler.call_tree.confirmed();
        if let Some(observation) = answer
            && let Some(worker) = self
                .workers
                .iter_mut()
                .find(|worker| worker.process.tid == observation.tid)
        {
            self.sampler.believe(worker, observation, now());
        }
        let helped = self.sampler.edges.unsettled() < unsettled
            || self.sampler.call_tree.confirmed() > confirmed;
        self.ask_interval = if helped {
            ASK_AT_LEAST
        } else {
            (self.ask_interval * 2).min(ASK_AT_MOST)
        };
    }

    /// What is still open at the end gets some more quiescent reads.
    pub(super) fn ask_at_the_end(&mut self) {
        let until = now() + LAST_ASKS_TAKE;
        for turn in 0..LAST_ASKS {
            if self.sampler.edges.unsettled() == 0 || self.workers.is_empty() || now() > until {
                return;
            }
            let index = turn % self.workers.len();
            let worker = &mut self.workers[index];
            self.sampler.prove_asleep(worker, now());
            self.quiescent.ask(&worker.process);
            while self.quiescent.is_busy() && now() < until {
                sleep_until(now() + SECOND / 10_000);
                self.take_quiescent_answer();
            }
        }
    }
}
