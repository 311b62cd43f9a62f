//! One turn: each worker that is due is looked at, read where it does not still sleep, and summed.
//!
//! Invariant: a turn that failed keeps its time; it goes to the worker's next sample.

use super::aggregate::StackId;
use super::member::Asleep;
use super::schedule::Turn;
use super::{Run, now};
use crate::read::clocks::{Look, NoLook};
use crate::sample::{Outcome, Sampled};
use crate::stack::names::Names;
use crate::stack::trace::Stack;

/// The workers of a turn that a quiescent read can help, by their index.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Its stack has an open edge.
    pub open: Option<usize>,
    /// Its call path has not been confirmed.
    pub unconfirmed: Option<usize>,
}

impl Run<'_> {
    /// Reads the workers that are due.
    pub(super) fn take(&mut self, turn: Turn) {
        let mut wanted = Wanted::default();
        let unsettled = self.sampler.edges.unsettled();
        for index in (turn.group..self.members.len()).step_by(turn.groups) {
            self.sampler.quality.due += 1;
            self.take_one(index, &mut wanted);
        }
        self.ask_for(&wanted, self.sampler.edges.unsettled() > unsettled);
    }

    fn take_one(&mut self, index: usize, wanted: &mut Wanted) {
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
        let (stack, may_sleep) = match self.sampler.sample(&mut member.worker, current) {
            Outcome::Failed(_) => {
                self.sampler.quality.denied += 1;
                return;
            }
            Outcome::Idle => (None, true),
            Outcome::Sample(Sampled { stack, may_sleep }) => (Some(stack), may_sleep),
        };
        if stack.is_some() {
            self.sampler.check_functions(&mut member.worker, current);
        }
        let is_asleep = may_sleep && member.worker.clocks.is_asleep() == Some(true);
        // Nothing ran from before the read to after it: the stack is true, and stands for as long as the sleep lasts.
        let slept = look
            .filter(|_| is_asleep)
            .filter(|look| member.worker.clocks.look() == Ok(*look));
        if let (Some(_), Some(stack)) = (slept, &stack) {
            self.sampler.prove_asleep(&member.worker, stack);
        }
        let stack = stack.map(|stack| {
            if !stack.open.is_empty() {
                self.sampler.quality.open += 1;
                wanted.open = Some(index);
            }
            if stack.unconfirmed.is_some() {
                wanted.unconfirmed = Some(index);
            }
            self.sampler.aggregate.id(&stack)
        });
        self.members[index].asleep = slept.map(|look| Asleep { look, stack });
        self.add(index, current, look, stack, !is_asleep);
    }

    /// Adds a sample of a stack, `None` between requests.
    fn add(
        &mut self,
        index: usize,
        current: u64,
        look: Option<Look>,
        stack: Option<StackId>,
        ran: bool,
    ) {
        let member = &mut self.members[index];
        let (quality, aggregate) = (&mut self.sampler.quality, &mut self.sampler.aggregate);
        quality.taken += 1;
        // A sample's wall value is the time that it stands for.
        let wall = i64::try_from(current - member.sampled_at).unwrap_or(i64::MAX);
        member.sampled_at = current;
        let id = match stack {
            Some(_) => {
                member.busy_samples += 1;
                stack
            }
            None => {
                quality.idle += 1;
                member.idle_samples += 1;
                let idle = || Stack {
                    lines: vec![(Names::IDLE, 0)],
                    ..Stack::default()
                };
                self.options.include_idle.then(|| aggregate.id(&idle()))
            }
        };
        if let Some(id) = id {
            aggregate.add(id, member.worker.process.tid, wall);
        }
        member.spend(look, id.filter(|_| ran), aggregate);
    }
}
