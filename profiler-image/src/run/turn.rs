//! One turn: checks each worker that is due, reads it unless it still sleeps, and sums its sample.
//!
//! Invariant: a turn that failed keeps its time, which goes to the worker's next sample. A read of a process that is known to
//! be gone is not summed: its PID may belong to another one.

use super::aggregate::Sum;
use super::member::{Asleep, Member};
use super::recorder::{Recorder, Taken};
use super::requests::Fate;
use super::schedule::{Slot, Turn};
use super::{Run, now};
use crate::read::clocks::{Look, Mark, NoLook};
use crate::sample::Outcome;
use crate::stack::names::Names;
use crate::stack::trace::{Ending, Stack};
use crate::target::process::calls::Calls;

impl Run<'_> {
    /// Reads the workers that are due.
    pub(super) fn take(&mut self, turn: Turn) {
        let mut wanted = None;
        self.slot = turn.slot;
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
        let mark = member.mark();
        match member.still_asleep(mark) {
            Some(asleep) => self.add(index, current, None, (asleep.stack, true), false),
            None => self.read_one(index, current, mark, wanted),
        }
    }

    /// Reads a worker's stack; `mark` is the worker's mark before.
    fn read_one(
        &mut self,
        index: usize,
        current: u64,
        mark: Option<Mark>,
        wanted: &mut Option<usize>,
    ) {
        let member = &mut self.members[index];
        member.asleep = None;
        let (sampled, may_sleep) = match self.sampler.sample(&mut member.worker, current) {
            Outcome::Failed(_) => {
                self.failed();
                return;
            }
            Outcome::Idle => (None, true),
            Outcome::Sample(sampled) => (Some(sampled), sampled.may_sleep),
        };
        let is_asleep = may_sleep && member.worker.clocks.is_asleep() == Some(true);
        member.note(!is_asleep);
        // Nothing ran from before the read to after it: the stack is true, and remains so for as long as the sleep lasts.
        let slept = mark.filter(|mark| is_asleep && member.worker.clocks.mark() == Some(*mark));
        let look = member.worker.clocks.look();
        // The read used the thread id, which may have been another's by then, or that of another program.
        if look == Err(NoLook::Gone) || !member.runs_the_same_program(current) {
            self.failed();
            return;
        }
        let stack = sampled.map(|sampled| sampled.stack);
        if let Some(sampled) = &sampled {
            if slept.is_some() {
                self.sampler.prove_asleep(&member.worker, sampled);
            }
            if sampled.is_open {
                self.sampler.quality.open += 1;
            }
            // A quiescent read may prove the edge, or name the function above the callers that stood.
            if sampled.is_open || sampled.stack.ending == Ending::Cut {
                *wanted = Some(index);
            }
        }
        let is_certain = match stack {
            Some(_) => {
                let (served, reader) = (&mut member.served, &mut member.worker.reader);
                self.requests.look(served, reader, current)
            }
            None => {
                self.requests.idle(&mut member.served, current);
                true
            }
        };
        // The next turn determines the request.
        let slept = slept.filter(|_| is_certain);
        member.asleep = slept.map(|mark| Asleep { mark, stack });
        self.add(index, current, look.ok(), (stack, is_certain), !is_asleep);
    }

    /// Counts a turn that read nothing that is true.
    fn failed(&mut self) {
        self.sampler.quality.denied += 1;
        self.may_be_gone = true;
    }

    /// Adds a sample of a stack, `None` between requests. `is_certain` tells whether its request is certain.
    pub(super) fn add(
        &mut self,
        index: usize,
        current: u64,
        look: Option<Look>,
        (stack, is_certain): (Option<Stack>, bool),
        ran: bool,
    ) {
        self.sampler.quality.taken += 1;
        let fate = self.fate(index, current, (stack, is_certain), ran);
        let (member, aggregate) = (&mut self.members[index], &mut self.aggregate);
        // A sample's wall value is the time that it represents. The time since the last sample would be longer the later in its slot
        // this one is, and so count the functions there twice.
        let slot = member.sampled(current, self.slot);
        let wall = i64::try_from(slot.to - slot.from).unwrap_or(i64::MAX);
        let (requests, served) = (&mut self.requests, &mut member.served);
        let fate = match fate {
            Fate::Summed(_, sample) => {
                requests.release_young(served, member.summed_as, aggregate);
                aggregate.add(sample, member.summed_as, wall);
                fate
            }
            Fate::Young(number, sample) => {
                let has_room = requests.keep_young(served, number, sample, Sum::of_one(wall));
                if has_room { fate } else { Fate::Dropped }
            }
            Fate::Dropped | Fate::Idle => fate,
        };
        member.decide();
        if let Some(heap) = &mut member.heap {
            let fate = stack.map(|_| fate);
            heap.take(&member.worker.reader, fate, |fate, change| {
                member
                    .served
                    .give(fate, member.summed_as, change, aggregate);
            });
            self.heap.offer(heap.highest(fate));
        }
        let mut recorder = self.recorder.as_mut();
        if let Some(recorder) = recorder.as_deref_mut() {
            record(recorder, member, stack, fate, (slot, ran));
        }
        member.spend(look, ran.then_some(fate), aggregate, recorder);
    }

    /// The fate of a sample, which it counts as busy or idle.
    fn fate(
        &mut self,
        index: usize,
        current: u64,
        (stack, is_certain): (Option<Stack>, bool),
        ran: bool,
    ) -> Fate {
        let member = &mut self.members[index];
        let Some(stack) = stack else {
            self.sampler.quality.idle += 1;
            member.idle_samples += 1;
            let is_kept = self.options.include_idle && !self.requests.asked().filter.is_on();
            return match is_kept {
                true => Fate::Summed(0, Stack::of_phase(Names::IDLE).into()),
                false => Fate::Idle,
            };
        };
        member.busy_samples += 1;
        if self.options.only_running && !ran {
            self.not_running += 1;
            return Fate::Dropped;
        }
        let served = &mut member.served;
        self.requests.fate(served, stack, current, is_certain)
    }
}

/// Records a worker's newest sample, with its stack if it was in a request.
fn record(
    recorder: &mut Recorder,
    member: &Member,
    stack: Option<Stack>,
    fate: Fate,
    (slot, ran): (Slot, bool),
) {
    let tid = member.worker.process.tid;
    let Some(stack) = stack else {
        recorder.idle(tid);
        return;
    };
    if let Fate::Dropped | Fate::Idle = fate {
        recorder.serves(tid, member.served.number());
        return;
    }
    let taken = Taken {
        tid,
        summed_as: member.summed_as,
        at: member.sampled_at,
        from: slot.from,
        to: slot.to,
        ran,
        stack,
        heap: member.worker.reader.heap,
    };
    recorder.add(&taken, member.served.of(fate));
}

#[cfg(test)]
pub(super) mod tests;
