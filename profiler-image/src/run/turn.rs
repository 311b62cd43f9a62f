//! One turn: each worker that is due is looked at, read where it does not still sleep, and summed.
//!
//! Invariant: a turn that failed keeps its time; it goes to the worker's next sample.

use super::member::Asleep;
use super::schedule::Turn;
use super::{Run, now};
use crate::read::clocks::{Look, NoLook};
use crate::sample::Outcome;
use crate::stack::names::Names;
use crate::stack::trace::Stack;
use crate::target::process::calls::Calls;

impl Run<'_> {
    /// Reads the workers that are due.
    pub(super) fn take(&mut self, turn: Turn) {
        let mut wanted = None;
        let unsettled = self.sampler.edges.unsettled();
        for index in (turn.group..self.members.len()).step_by(turn.groups) {
            self.sampler.quality.due += 1;
            let (idle, calls) = (self.sampler.quality.idle, Calls::now());
            self.take_one(index, &mut wanted);
            if self.sampler.quality.idle > idle {
                self.idle_calls += Calls::now().since(calls);
            }
        }
        self.ask_for(wanted, self.sampler.edges.unsettled() > unsettled);
    }

    fn take_one(&mut self, index: usize, wanted: &mut Option<usize>) {
        let current = now();
        let member = &mut self.members[index];
        let look = match member.worker.clocks.look() {
            Ok(look) => Some(look),
            Err(NoLook::Unknown) => None,
            Err(NoLook::Gone) => {
                self.sampler.quality.denied += 1;
                return;
            }
        };
        if let Some(asleep) = member.still_asleep(look) {
            self.add(index, current, look, asleep.stack, false);
            return;
        }
        member.asleep = None;
        let (sampled, may_sleep) = match self.sampler.sample(&mut member.worker, current) {
            Outcome::Failed(_) => {
                self.sampler.quality.denied += 1;
                return;
            }
            Outcome::Idle => (None, true),
            Outcome::Sample(sampled) => (Some(sampled), sampled.may_sleep),
        };
        let is_asleep = may_sleep && member.worker.clocks.is_asleep() == Some(true);
        // Nothing ran from before the read to after it: the stack is true, and stands for as long as the sleep lasts.
        let slept = look
            .filter(|_| is_asleep)
            .filter(|look| member.worker.clocks.look() == Ok(*look));
        let stack = sampled.map(|sampled| sampled.stack);
        if let Some(sampled) = &sampled {
            if slept.is_some() {
                self.sampler.prove_asleep(&member.worker, sampled);
            }
            if sampled.is_open {
                self.sampler.quality.open += 1;
                *wanted = Some(index);
            }
        }
        member.asleep = slept.map(|look| Asleep { look, stack });
        self.add(index, current, look, stack, !is_asleep);
    }

    /// Adds a sample of a stack, `None` between requests.
    fn add(
        &mut self,
        index: usize,
        current: u64,
        look: Option<Look>,
        stack: Option<Stack>,
        ran: bool,
    ) {
        let member = &mut self.members[index];
        let (quality, aggregate) = (&mut self.sampler.quality, &mut self.aggregate);
        quality.taken += 1;
        // A sample's wall value is the time that it stands for.
        let wall = i64::try_from(current - member.sampled_at).unwrap_or(i64::MAX);
        member.sampled_at = current;
        let counted = match stack {
            Some(_) => {
                member.busy_samples += 1;
                stack
            }
            None => {
                quality.idle += 1;
                member.idle_samples += 1;
                self.options
                    .include_idle
                    .then(|| Stack::of_phase(Names::IDLE))
            }
        };
        if let Some(stack) = counted {
            aggregate.add(stack, member.worker.process.tid, wall);
        }
        member.spend(look, counted.filter(|_| ran), aggregate);
    }
}
