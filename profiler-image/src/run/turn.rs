//! One turn: checks each worker that is due, reads it unless it still sleeps, and sums its sample.
//!
//! Invariant: a turn that failed keeps its time, which goes to the worker's next sample. A read of
//! a process that is known to be gone is not summed: its PID may belong to another one.

use phpprof_profile::waiting::kind;
use rustc_hash::FxHashMap;

use super::RunLoop;
use super::aggregate::StackSum;
use super::cells::leaf_of;
use super::member::{Did, LeafFate, Member, OwnRead, SchedulerSight, Unmoved, UnspentSample};
use super::recorder::{Recorder, TakenSample};
use super::requests::Fate;
use super::schedule::{SampleSlot, SampleTurn, WakeSchedule};
use crate::read::clocks::{Mark, NoLook, SchedStat};
use crate::read::on_cpu::Activity;
use crate::read::own_cpu::JobAnswer;
use crate::read::place::{Stands, activity_here};
use crate::sample::TurnOutcome;
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::{Ending, SummedStack};
use crate::target::process::calls::SystemCallCounts;
use crate::target::process::held::Held;

/// What the kernel said of a worker that was read.
struct SeenByKernel {
    look: Result<SchedStat, NoLook>,
    activity: Activity,
    /// It sleeps now.
    is_asleep: bool,
    /// The worker's mark, if it slept during the whole read.
    slept: Option<Mark>,
    /// The same, if it waited for a CPU instead, and its place was asked for: one whose place was
    /// taken for granted may run elsewhere, and its numbers move at the kernel's ticks only.
    queued: Option<Mark>,
}

/// Whether a leaf of this name says what it waits for.
pub(super) type Says = FxHashMap<NameId, bool>;

impl RunLoop<'_> {
    /// Takes the turn that is due.
    pub(super) fn turn(&mut self, schedule: &mut WakeSchedule, current: u64) -> SampleTurn {
        if self.options.unpaced {
            return SampleTurn {
                group: 0,
                groups: 1,
                missed: 0,
                slot: None,
            };
        }
        self.turns = self.turns.saturating_add(1);
        self.lateness.add(current.saturating_sub(schedule.due()));
        let turn = schedule.take(current);
        let members = self.members.len().div_ceil(turn.groups) as u64;
        self.sampler.quality.late += turn.missed * members;
        self.sampler.quality.due += turn.missed * members;
        turn
    }

    /// Reads the workers that are due.
    pub(super) fn take(&mut self, turn: SampleTurn) {
        let mut wanted = None;
        self.slot = turn.slot;
        let unsettled = self.sampler.edges.unsettled();
        let lent = self.lent();
        let due = (turn.group..self.members.len()).step_by(turn.groups);
        let is_idle = |index: &usize| self.members[*index].is_idle();
        let idle = due.clone().filter(is_idle).count();
        for index in due {
            if self.members[index].is_idle() && !turn.asks(index, idle) {
                self.pass_over();
                continue;
            }
            self.members[index].ask(&turn, idle);
            if !lent.contains(&index) {
                self.take_due(index, &mut wanted);
            }
        }
        self.collect(true);
        for &index in &lent {
            self.take_due(index, &mut wanted);
        }
        self.ask_for(wanted, self.sampler.edges.unsettled() > unsettled);
    }

    /// Takes it that a worker is still between requests.
    fn pass_over(&mut self) {
        let quality = &mut self.sampler.quality;
        quality.due += 1;
        quality.taken += 1;
        quality.idle += 1;
    }

    fn take_due(&mut self, index: usize, wanted: &mut Option<usize>) {
        self.sampler.quality.due += 1;
        let (idle, calls) = (self.sampler.quality.idle, SystemCallCounts::now());
        self.take_one(index, wanted);
        if self.sampler.quality.idle > idle {
            self.totals.idle_calls += SystemCallCounts::now().since(calls);
        }
    }

    pub(super) fn take_one(&mut self, index: usize, wanted: &mut Option<usize>) {
        let current = self.clock.now();
        let member = &mut self.members[index];
        if let Some(read) = member.read.take() {
            self.take_own(index, read, wanted);
            return;
        }
        let mark = member.mark();
        match member.still_unmoved(mark) {
            Some(unmoved) => self.stayed(index, current, unmoved),
            // The first sample is worth more than its moment: a snapshot has few turns, and beside
            // busy programs all of them may be late.
            None if self.own.is_late && !self.members[index].is_unsampled() => {
                self.sampler.quality.late += 1;
            }
            None => self.read_one(index, current, mark, wanted),
        }
    }

    /// Adds a sample of a worker that has not run since its last one.
    fn stayed(&mut self, index: usize, current: u64, unmoved: Unmoved) {
        let Unmoved { mark, stack, .. } = unmoved;
        if unmoved.is_queued {
            let queued = |look| SchedulerSight {
                look,
                activity: Activity::Queued { displaced: false },
            };
            let seen = Mark::of_thread(mark).map(queued);
            self.add(index, current, seen, stack, true, Did::Queued);
            return;
        }
        let member = &mut self.members[index];
        let held = unmoved.held.unwrap_or_else(|| member.held());
        member.unmoved = Some(Unmoved {
            held: Some(held),
            ..unmoved
        });
        self.add(index, current, None, stack, true, Did::Slept(held));
    }

    /// Takes what was read on the worker's own CPU.
    fn take_own(&mut self, index: usize, read: OwnRead, wanted: &mut Option<usize>) {
        let OwnRead {
            answer,
            mut observation,
            at,
        } = read;
        let member = &mut self.members[index];
        match answer {
            JobAnswer::Observed {
                stands,
                numbers,
                was_on_cpu,
            } => {
                let is_asleep = stands == Stands::Asleep;
                let is_steady = member.worker.place.is_steady;
                let activity = activity_here(stands, is_steady, was_on_cpu);
                let is_queued = !is_asleep && !is_steady;
                member.unmoved = None;
                let outcome =
                    self.sampler
                        .sample_observed(&mut member.worker, &mut observation, at);
                let seen = SeenByKernel {
                    look: Ok(numbers),
                    activity,
                    is_asleep,
                    slept: is_asleep.then_some(Mark::Thread(numbers)),
                    queued: is_queued.then_some(Mark::Thread(numbers)),
                };
                self.finish_one(index, at, outcome, seen, wanted);
            }
            JobAnswer::Late if member.is_unsampled() => {
                let mark = member.mark();
                self.read_one(index, at, mark, wanted);
            }
            JobAnswer::Late => self.sampler.quality.late += 1,
            JobAnswer::Unmoved | JobAnswer::Pending | JobAnswer::Elsewhere => {
                if let Some(unmoved) = member.unmoved {
                    self.stayed(index, at, unmoved);
                }
            }
        }
        if let Some(readers) = &mut self.own.readers {
            readers.keep(observation);
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
        member.unmoved = None;
        let outcome = self.sampler.sample(&mut member.worker, current);
        let may_sleep = match &outcome {
            TurnOutcome::Sample(sampled) => sampled.may_sleep,
            TurnOutcome::Idle | TurnOutcome::Failed(_) => true,
        };
        if let TurnOutcome::Failed(_) = outcome {
            self.failed(index);
            return;
        }
        let is_steady = member.worker.place.is_steady;
        let stands = member.worker.take_stands();
        let (look, is_asleep, activity) = match stands {
            Some((stands, numbers)) => {
                let is_in_doubt = stands == Stands::Displaced && !is_steady;
                let watch = member.worker.watch().filter(|_| is_in_doubt);
                let was_on_cpu =
                    watch.and_then(|watch| self.own.times.was_on_cpu(&watch, self.own.came_at));
                let activity = activity_here(stands, is_steady, was_on_cpu);
                (Ok(numbers), stands == Stands::Asleep, activity)
            }
            None => {
                let look = member.worker.clocks.look();
                // Code can be stopped anywhere, so it is asked for as well once its clock stands.
                let may_sleep = member.stands_still(look.ok(), current) || may_sleep;
                let is_asleep = may_sleep && member.worker.clocks.ask_asleep() == Some(true);
                let before = mark.and_then(Mark::of_thread);
                let told = &mut self.totals.cpu_proofs;
                let activity = member.activity(before, look.ok(), is_asleep, told);
                (look, is_asleep || activity == Activity::Slept, activity)
            }
        };
        // Nothing ran from before the read to after it: the stack is true, and remains so for as
        // long as the sleep lasts.
        let slept = mark.filter(|mark| is_asleep && member.worker.clocks.mark() == Some(*mark));
        // The same for one that waits for a CPU.
        let queued = match (stands, activity) {
            (Some((Stands::Displaced, numbers)), _) if !is_steady => Some(Mark::Thread(numbers)),
            (None, Activity::Queued { .. }) => mark,
            _ => None,
        };
        let seen = SeenByKernel {
            look,
            activity,
            is_asleep,
            slept,
            queued,
        };
        self.finish_one(index, current, outcome, seen, wanted);
    }

    /// Adds the sample of a worker that was read.
    fn finish_one(
        &mut self,
        index: usize,
        current: u64,
        outcome: TurnOutcome,
        seen: SeenByKernel,
        wanted: &mut Option<usize>,
    ) {
        let sampled = match outcome {
            TurnOutcome::Sample(sampled) => Some(sampled),
            TurnOutcome::Idle | TurnOutcome::Failed(_) => None,
        };
        let SeenByKernel {
            look,
            activity,
            is_asleep,
            slept,
            queued,
        } = seen;
        let member = &mut self.members[index];
        member.note(!is_asleep);
        // The read used the thread id, which may have been another's by then, or that of another
        // program.
        if look == Err(NoLook::Gone) || !member.runs_the_same_program(current) {
            self.failed(index);
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
            // A quiescent read may prove the edge, or name the function above the callers that
            // stood.
            if sampled.is_open || sampled.stack.ending == Ending::Cut {
                *wanted = Some(index);
            }
        }
        let stack = stack.filter(|stack| !is_asleep || !self.is_in_loop(index, stack));
        let is_certain = self.follow_request(index, stack.is_some(), current);
        // The next turn determines the request.
        let unmoved = slept.or(queued).filter(|_| is_certain);
        let held = self.held(index, is_asleep, stack);
        self.members[index].unmoved = unmoved.map(|mark| Unmoved {
            mark,
            stack,
            held,
            is_queued: slept.is_none(),
        });
        let did = match activity {
            Activity::Slept => Did::Slept(held.unwrap_or_default()),
            Activity::Queued { .. } => Did::Queued,
            Activity::Ran | Activity::Runnable | Activity::Changed => Did::Ran,
        };
        let seen = look.ok().map(|look| SchedulerSight { look, activity });
        self.add(index, current, seen, stack, is_certain, did);
    }

    /// Follows the request of a worker that is busy or not. Returns whether it is certain.
    fn follow_request(&mut self, index: usize, is_busy: bool, current: u64) -> bool {
        let member = &mut self.members[index];
        if is_busy {
            let (served, reader) = (&mut member.served, &mut member.worker.reader);
            return self.requests.look(served, reader, current);
        }
        self.requests.idle(&mut member.served, current);
        true
    }

    /// Whether a worker that sleeps can continue; `None` as long as that need not be known. A leaf
    /// that says what it waits for, as most do that sleep, is believed until the sleep lasts for
    /// another sample: few disks take that long, and a worker that was stopped stays so.
    fn held(&mut self, index: usize, is_asleep: bool, stack: Option<SummedStack>) -> Option<Held> {
        let stack = stack.filter(|_| is_asleep)?;
        let leaf = stack.phase.or_else(|| self.sampler.tree.name(stack.path))?;
        let names = &self.sampler.functions.names;
        let says = self
            .says
            .entry(leaf.shown())
            .or_insert_with(|| kind(&names.get(leaf).name.to_string()).is_some());
        (!*says).then(|| self.members[index].held())
    }

    /// Counts a turn that read nothing that is true.
    fn failed(&mut self, index: usize) {
        let failed = self.members.get(index);
        let failed = failed.map(|member| member.worker.process.pid);
        self.watch.note_failed(failed);
        self.sampler.quality.denied += 1;
    }

    /// Adds a sample of a stack, `None` between requests. `seen` is what the scheduler told, and
    /// `is_certain` tells whether the sample's request is certain.
    pub(super) fn add(
        &mut self,
        index: usize,
        current: u64,
        seen: Option<SchedulerSight>,
        stack: Option<SummedStack>,
        is_certain: bool,
        did: Did,
    ) {
        self.sampler.quality.taken += 1;
        // What waits for a CPU does not wait for anything that a timeline shows.
        let ran = !matches!(did, Did::Slept(_));
        let fate = self.fate(index, current, stack, is_certain, did);
        let (member, aggregate) = (&mut self.members[index], &mut self.aggregate);
        // A sample's wall value is the time that it represents. The time since the last sample
        // would be longer the later in its slot this one is, and so count the functions there
        // twice.
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
                let has_room = requests.keep_young(served, number, sample, StackSum::of_one(wall));
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
            self.totals.heap.offer(heap.highest(fate));
        }
        let leaf = stack.map(|stack| leaf_of(stack, &self.sampler.tree));
        let leaf = leaf.unwrap_or(FunctionNames::IDLE);
        let mut recorder = self.recorder.as_mut();
        if let Some(recorder) = recorder.as_deref_mut() {
            let sample = stack.map(|stack| LeafStack { stack, leaf });
            record(recorder, member, sample, fate, slot, ran);
        }
        if let Some(seen) = seen {
            let wall = slot.to.saturating_sub(slot.from);
            let sample = LeafFate { fate, leaf };
            let newest = UnspentSample { sample, wall };
            member.spend(seen, newest, aggregate, recorder);
        }
    }

    /// The fate of a sample, which it counts as busy or idle.
    fn fate(
        &mut self,
        index: usize,
        current: u64,
        stack: Option<SummedStack>,
        is_certain: bool,
        did: Did,
    ) -> Fate {
        let member = &mut self.members[index];
        member.count_turn(stack.is_some());
        let Some(stack) = stack else {
            self.sampler.quality.idle += 1;
            let is_kept = self.options.include_idle && !self.requests.asked().filter.is_on();
            return if is_kept {
                Fate::Summed(0, SummedStack::of_phase(FunctionNames::IDLE).into()).held(did.held())
            } else {
                Fate::Idle
            };
        };
        if did.held() == Held::Stopped {
            self.sampler.quality.stopped += 1;
        }
        if self.options.only_running && did != Did::Ran {
            self.totals.not_running += 1;
            return Fate::Dropped;
        }
        let served = &mut member.served;
        let fate = self.requests.fate(served, stack, current, is_certain);
        fate.held(did.held())
    }
}

/// A stack with its [`leaf_of`].
#[derive(Debug, Clone, Copy)]
struct LeafStack {
    stack: SummedStack,
    leaf: NameId,
}

/// Records a worker's newest sample, with its stack and the function of its leaf if it was in a
/// request.
fn record(
    recorder: &mut Recorder,
    member: &Member,
    sample: Option<LeafStack>,
    fate: Fate,
    slot: SampleSlot,
    ran: bool,
) {
    let tid = member.worker.process.tid;
    let Some(LeafStack { stack, leaf }) = sample else {
        recorder.idle(tid);
        return;
    };
    if let Fate::Dropped | Fate::Idle = fate {
        recorder.serves(tid, member.served.number());
        return;
    }
    let taken = TakenSample {
        tid,
        summed_as: member.summed_as,
        at: member.sampled_at,
        from: slot.from,
        to: slot.to,
        ran,
        stack,
        leaf,
        heap: member.worker.reader.heap,
    };
    recorder.add(&taken, member.served.of(fate));
}

#[cfg(test)]
pub(super) mod tests;
