//! One turn: checks each worker that is due, reads it unless it still sleeps, and sums its sample.
//!
//! Invariant: a turn that failed keeps its time, which goes to the worker's next sample. A read of a process that is known to
//! be gone is not summed: its PID may belong to another one.

use super::aggregate::Sum;
use super::member::{Asleep, Member};
use super::recorder::{Recorder, Taken};
use super::requests::Fate;
use super::schedule::Turn;
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
    fn add(
        &mut self,
        index: usize,
        current: u64,
        look: Option<Look>,
        (stack, is_certain): (Option<Stack>, bool),
        ran: bool,
    ) {
        let member = &mut self.members[index];
        let (quality, aggregate) = (&mut self.sampler.quality, &mut self.aggregate);
        quality.taken += 1;
        // A sample's wall value is the time that it represents.
        let wall = i64::try_from(current - member.sampled_at).unwrap_or(i64::MAX);
        let from = std::mem::replace(&mut member.sampled_at, current);
        let (requests, served) = (&mut self.requests, &mut member.served);
        let counted = match stack {
            Some(stack) => {
                member.busy_samples += 1;
                let is_left_out = self.options.only_running && !ran;
                self.not_running += u64::from(is_left_out);
                (!is_left_out).then(|| requests.fate(served, stack, current, is_certain))
            }
            None => {
                quality.idle += 1;
                member.idle_samples += 1;
                let is_kept = self.options.include_idle && !requests.asked().filter.is_on();
                is_kept.then(|| Fate::Summed(0, Stack::of_phase(Names::IDLE).into()))
            }
        };
        let is_kept = match counted {
            Some(Fate::Summed(_, sample)) => {
                requests.release_young(served, member.summed_as, aggregate);
                aggregate.add(sample, member.summed_as, wall);
                true
            }
            Some(Fate::Young(number, sample)) => {
                let sum = Sum::of_one(wall);
                requests.keep_young(served, number, sample, sum)
            }
            Some(Fate::Dropped) | None => false,
        };
        let fate = stack.map(|_| counted.unwrap_or(Fate::Dropped));
        if let Some(heap) = &mut member.heap {
            heap.take(&member.worker.reader, fate, |fate, change| {
                served.give(fate, member.summed_as, change, aggregate);
            });
            self.heap.offer(heap.highest(fate));
        }
        let mut recorder = self.recorder.as_mut();
        if let Some(recorder) = recorder.as_deref_mut() {
            let fate = counted.filter(|_| is_kept);
            record(recorder, member, stack, fate, (from, ran));
        }
        member.spend(look, counted.filter(|_| ran), aggregate, recorder);
    }
}

/// Records a worker's newest sample: its stack if it was in a request, and its fate if it is kept.
fn record(
    recorder: &mut Recorder,
    member: &Member,
    stack: Option<Stack>,
    fate: Option<Fate>,
    (from, ran): (u64, bool),
) {
    let tid = member.worker.process.tid;
    let Some(stack) = stack else {
        recorder.idle(tid);
        return;
    };
    let Some(fate) = fate else {
        recorder.serves(tid, member.served.number());
        return;
    };
    let taken = Taken {
        tid,
        summed_as: member.summed_as,
        from,
        to: member.sampled_at,
        ran,
        stack,
        heap: member.worker.reader.heap,
    };
    recorder.add(&taken, member.served.of(fate));
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::time::Duration;

    use phpprof_zend::testing::IS_NULL;

    use super::*;
    use crate::request::asked::Asked;
    use crate::run::stop::Stop;
    use crate::run::{Options, SECOND, Schedule};
    use crate::sample::tests::Scene;
    use crate::target::Scope;
    use crate::target::process::ProcessMemory;

    /// A process that waits for input.
    fn sleeper() -> (Child, i32) {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Before its first answer it may sleep because of a page fault.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let answer = &mut [0];
        child.stdout.as_mut().unwrap().read_exact(answer).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        (child, pid)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn options() -> Options {
        Options {
            scope: Scope::Pids(Vec::new()),
            samples_per_second: 99,
            duration: Duration::from_secs(1),
            max_samples: None,
            unpaced: true,
            include_idle: false,
            only_running: false,
            heap: false,
            of_program: false,
            cpu_budget_percent: None,
            quiescent_cpus: None,
            stop: Stop::default(),
            checkpoints: None,
            requests: Asked::default(),
        }
    }

    /// A run of one worker: its stack is the scene's, in the memory of this test, and its clocks are those of that process.
    fn run_of<'a>(options: &'a Options, scene: &Scene, pid: i32) -> Run<'a> {
        let mut run = Run::new(options).unwrap();
        let mut process = scene.process();
        (process.pid, process.tid) = (pid, pid);
        run.members.push(Member::new(process.into(), pid, now()));
        run
    }

    /// The numbers of taken and failed turns, and the samples of each stack.
    fn counts(run: &Run<'_>) -> (u64, u64, Vec<i64>) {
        let settled = run.aggregate.settle(&run.sampler.tree, &run.sampler.edges);
        let (stacks, _) = settled.sum();
        let samples = stacks.iter().map(|stack| stack.sum.samples).collect();
        let quality = run.sampler.quality;
        (quality.taken, quality.denied, samples)
    }

    #[test]
    fn what_was_read_of_a_worker_that_has_ended_meanwhile_is_not_summed() {
        let (child, pid) = sleeper();
        let options = options();
        let scene = Scene::frameless("strpos", IS_NULL);
        let mut run = run_of(&options, &scene, pid);
        let mark = run.members[0].worker.clocks.mark();
        run.read_one(0, now(), mark, &mut None);
        assert_eq!(counts(&run), (1, 0, vec![1]));
        let sampled_at = run.members[0].sampled_at;
        end(child);
        // The memory can still be read, as if another process had the same PID.
        run.read_one(0, now(), mark, &mut None);
        assert_eq!(counts(&run), (1, 1, vec![1]));
        assert_eq!(run.members[0].sampled_at, sampled_at);
    }

    #[test]
    fn what_was_read_of_a_worker_that_runs_another_program_is_not_summed() {
        let (child, pid) = sleeper();
        let options = options();
        let scene = Scene::frameless("strpos", IS_NULL);
        let mut run = run_of(&options, &scene, pid);
        let mut process = scene.process();
        (process.pid, process.tid) = (pid, pid);
        process.fingerprint ^= 1;
        run.members[0] = Member::new(process.into(), pid, now());
        for failed in 1..=2 {
            run.read_one(0, now(), None, &mut None);
            assert_eq!(counts(&run), (0, failed, vec![]));
            assert!(std::mem::take(&mut run.may_be_gone));
        }
        end(child);
    }

    #[test]
    fn turns_that_are_missed_lower_the_effective_rate() {
        let (child, pid) = sleeper();
        let options = Options {
            unpaced: false,
            ..options()
        };
        let scene = Scene::frameless("strpos", IS_NULL);
        let mut run = run_of(&options, &scene, pid);
        let engine = Arc::clone(&run.members[0].worker.process.engine);
        let mut schedule = Schedule::new(0, run.period, 1);
        // Each turn comes three periods after the one before: two of three are missed.
        for number in 0..10 {
            let turn = run.turn(&mut schedule, run.period * (number * 3 + 2));
            run.take(turn);
        }
        let snapshot = run.snapshot(&engine, 0, Duration::from_secs(1));
        let (asked, effective) = (snapshot.asked_period, snapshot.effective_period);
        assert!(effective >= asked * 3, "{effective:?} instead of {asked:?}");
        let quality = run.sampler.quality;
        assert_eq!((quality.due, quality.late, quality.taken), (30, 20, 10));
        end(child);
    }

    #[test]
    fn a_look_waits_for_the_next_turn_if_that_is_soon() {
        let options = options();
        let mut run = Run::new(&options).unwrap();
        run.next_look = 10 * SECOND;
        let next = |due: u64| run.next_wake_up(&Schedule::new(due, SECOND, 1));
        assert_eq!(next(9 * SECOND), 9 * SECOND);
        assert_eq!(next(10 * SECOND + SECOND / 99), 10 * SECOND + SECOND / 99);
        assert_eq!(next(10 * SECOND + SECOND / 50), 10 * SECOND);
    }

    #[test]
    fn a_sample_that_is_cut_asks_for_a_quiescent_read_and_a_whole_one_does_not() {
        let (child, pid) = sleeper();
        let options = options();
        let whole = Scene::frameless("strpos", IS_NULL);
        for (scene, expected) in [(Scene::cut(), Some(0)), (whole, None)] {
            let mut run = run_of(&options, &scene, pid);
            let mut wanted = None;
            run.read_one(0, now(), None, &mut wanted);
            assert_eq!(wanted, expected);
        }
        end(child);
    }

    #[test]
    fn the_mark_of_a_worker_that_has_run_for_long_is_not_read_until_it_sleeps() {
        let (child, pid) = sleeper();
        let options = options();
        let scene = Scene::frameless("strpos", IS_NULL);
        let mut run = run_of(&options, &scene, pid);
        let member = &mut run.members[0];
        for _ in 0..8 {
            assert!(member.mark().is_some());
            member.note(true);
        }
        assert_eq!(member.mark(), None);
        let sleeps = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            run.take_one(0, &mut None);
            run.members[0].mark().is_some()
        });
        assert!(sleeps);
        end(child);
    }

    #[test]
    fn a_worker_that_still_sleeps_is_not_read_again_and_keeps_its_stack() {
        let (mut child, pid) = sleeper();
        let options = options();
        let scene = Scene::frameless("strpos", IS_NULL);
        let mut run = run_of(&options, &scene, pid);
        let is_asleep = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            run.take_one(0, &mut None);
            run.members[0].asleep.is_some()
        });
        assert!(is_asleep);
        let (taken, _, _) = counts(&run);
        let (ended, gone) = sleeper();
        run.members[0].worker.reader.memory = Arc::new(ProcessMemory::open(gone).unwrap());
        end(ended);
        // Each read of memory fails from here on, so each turn that reads would fail.
        (0..3).for_each(|_| run.take_one(0, &mut None));
        let all = taken + 3;
        assert_eq!(counts(&run), (all, 0, vec![i64::try_from(all).unwrap()]));
        // Once the worker has run, its turns read, and fail.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let is_read_again = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            run.take_one(0, &mut None);
            run.sampler.quality.denied > 0
        });
        assert!(is_read_again);
        end(child);
    }
}
