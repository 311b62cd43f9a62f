//! Turns of a worker whose stack is in the memory of this test, and whose clocks are those of a
//! small process.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use phpprof_zend::testing::IS_NULL;

use super::*;
use crate::read::clocks::SchedStat;
use crate::read::lasting::Lasting;
use crate::request::asked::RequestSettings;
use crate::run::stop::StopSwitch;
use crate::run::testing::now;
use crate::run::{RecordingOptions, SECOND, WakeSchedule};
use crate::sample::tests::Scene;
use crate::target::Scope;
use crate::target::process::ProcessMemory;

mod held;

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

/// What a worker did that was not held.
pub(crate) fn did(ran: bool) -> Did {
    if ran { Did::Ran } else { Did::Slept(Held::No) }
}

/// What its clock told of a worker that did not wait.
pub(crate) fn seen(look: SchedStat, ran: bool) -> Option<SchedulerSight> {
    let activity = if ran {
        Activity::Runnable
    } else {
        Activity::Slept
    };
    Some(SchedulerSight { look, activity })
}

/// 99 Hz, and nothing else is requested.
pub(crate) fn options() -> RecordingOptions {
    RecordingOptions {
        scope: Scope::Pids(Vec::new()),
        samples_per_second: 99,
        duration: Duration::from_secs(1),
        max_samples: None,
        unpaced: true,
        include_idle: false,
        only_running: false,
        heap: false,
        fibers: None,
        of_program: false,
        cpu_budget_percent: None,
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        checkpoints: None,
        requests: RequestSettings::default(),
    }
}

/// A run of one worker: its stack is the scene's, in the memory of this test, and its clocks are
/// those of that process.
pub(crate) fn run_of<'a>(options: &'a RecordingOptions, scene: &Scene, pid: i32) -> RunLoop<'a> {
    let mut run = RunLoop::new(options).unwrap();
    let mut process = scene.process();
    (process.pid, process.tid) = (pid, pid);
    run.members.push(Member::new(process.into(), pid, now()));
    run
}

/// Takes turns until the worker has slept during one.
fn take_until_asleep(run: &mut RunLoop<'_>) {
    let is_asleep = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        run.take_one(0, &mut None);
        run.members[0].unmoved.is_some()
    });
    assert!(is_asleep);
}

/// The numbers of taken and failed turns, and the samples of each stack.
fn counts(run: &RunLoop<'_>) -> (u64, u64, Vec<i64>) {
    let settled = run.aggregate.settle(&run.sampler.tree, &run.sampler.edges);
    let (stacks, _) = settled.sum();
    let samples = stacks.iter().map(|stack| stack.sum.samples).collect();
    let quality = run.sampler.quality;
    (quality.taken, quality.denied, samples)
}

#[test]
fn ended_workers_read_is_not_summed() {
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
fn read_of_another_program_is_not_summed() {
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
        assert!(std::mem::take(&mut run.watch.may_be_gone));
    }
    end(child);
}

#[test]
fn turns_that_are_missed_lower_the_effective_rate() {
    let (child, pid) = sleeper();
    let options = RecordingOptions {
        unpaced: false,
        ..options()
    };
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = run_of(&options, &scene, pid);
    let begun = run.begin(Arc::clone(&run.members[0].worker.process.engine));
    let mut schedule = WakeSchedule::new(1, 0, run.period, 1);
    // Each turn comes three periods after the one before: two of three are missed.
    for number in 0..10 {
        let turn = run.turn(&mut schedule, run.period * (number * 3 + 3) - 1);
        run.take(turn);
    }
    let facts = run.snapshot(&begun, Duration::from_secs(1)).facts;
    let (asked, effective) = (facts.asked_period, facts.effective_period);
    assert!(effective >= asked * 3, "{effective:?} instead of {asked:?}");
    let quality = run.sampler.quality;
    assert_eq!((quality.due, quality.late, quality.taken), (30, 20, 10));
    end(child);
}

#[test]
fn look_waits_for_a_near_turn() {
    let options = options();
    let mut run = RunLoop::new(&options).unwrap();
    run.next_look = 10 * SECOND;
    let next = |due: u64| run.next_wake_up(&WakeSchedule::new(1, due, 1, 1));
    assert_eq!(next(9 * SECOND), 9 * SECOND);
    assert_eq!(next(10 * SECOND + SECOND / 99), 10 * SECOND + SECOND / 99);
    assert_eq!(next(10 * SECOND + SECOND / 50), 10 * SECOND);
}

#[test]
fn cut_sample_asks_for_a_quiescent_read() {
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
fn running_workers_mark_waits_for_sleep() {
    let (child, pid) = sleeper();
    let options = options();
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = run_of(&options, &scene, pid);
    let look = run.members[0].worker.clocks.look().unwrap();
    // Waits for a CPU are watched at first.
    let member = &mut run.members[0];
    (0..=8).for_each(|_| member.note(true));
    assert!(member.mark().is_some());
    member.contention.add(0, look);
    member.contention.add(SECOND, look);
    assert_eq!(member.mark(), None);
    member.note(false);
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
fn sleeping_worker_keeps_its_stack_unread() {
    let (mut child, pid) = sleeper();
    let options = options();
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = run_of(&options, &scene, pid);
    take_until_asleep(&mut run);
    let (taken, _, _) = counts(&run);
    let (ended, gone) = sleeper();
    let memory = Arc::new(ProcessMemory::open(gone).unwrap());
    run.members[0].worker.reader.memory = Lasting::new(memory, None);
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

#[test]
fn turn_kept_from_its_cpu_reads_nothing() {
    let (child, pid) = sleeper();
    let options = options();
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = run_of(&options, &scene, pid);
    run.own.is_late = true;
    // But for the first sample: a snapshot has few turns.
    run.take_one(0, &mut None);
    assert_eq!((run.sampler.quality.late, counts(&run).0), (0, 1));
    run.members[0].unmoved = None;
    run.take_one(0, &mut None);
    assert_eq!((run.sampler.quality.late, counts(&run).0), (1, 1));
    run.own.is_late = false;
    take_until_asleep(&mut run);
    // A worker that has not run since is where it was, however late the turn.
    let taken = counts(&run).0;
    run.own.is_late = true;
    run.take_one(0, &mut None);
    assert_eq!((run.sampler.quality.late, counts(&run).0), (1, taken + 1));
    end(child);
}

/// The sums of a worker that runs all the time, seven periods in a request and one after it:
/// samples, periods of CPU time in samples, and those in none.
fn served(include_idle: bool) -> (i64, i64, u64) {
    const PERIOD: u64 = SECOND / 100;
    let options = RecordingOptions {
        include_idle,
        ..options()
    };
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = RunLoop::new(&options).unwrap();
    run.members.push(Member::new(scene.process().into(), 1, 0));
    for period in 0..=800 {
        let look = SchedStat {
            run_nanoseconds: period * PERIOD,
            delay_nanoseconds: 0,
            slices: 1,
        };
        let stack = (period % 8 < 7).then(|| SummedStack::of_phase(FunctionNames::COMPILING));
        let ran = period < 800;
        let current = period * PERIOD;
        run.add(0, current, seen(look, ran), stack, true, did(ran));
    }
    let member = &mut run.members[0];
    member.settle(&mut run.aggregate, None);
    let unattributed = member.cpu_unattributed() / PERIOD;
    let settled = run.aggregate.settle(&run.sampler.tree, &run.sampler.edges);
    let (stacks, _) = settled.sum();
    let sum = |of: fn(&StackSum) -> i64| stacks.iter().map(|stack| of(&stack.sum)).sum::<i64>();
    let cpu = sum(|sum| sum.cpu_nanoseconds) / i64::try_from(PERIOD).unwrap();
    (sum(|sum| sum.samples), cpu, unattributed)
}

#[test]
fn wait_for_a_cpu_has_the_kernels_time() {
    const PERIOD: u64 = SECOND / 100;
    let options = options();
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut run = RunLoop::new(&options).unwrap();
    run.members.push(Member::new(scene.process().into(), 1, 0));
    let stack = Some(SummedStack::of_phase(FunctionNames::COMPILING));
    // It runs for five periods, waits in the samples of the next four, and runs again. The wait
    // took three and a half.
    for period in 1..=20 {
        let has_waited = period > 9;
        let look = SchedStat {
            run_nanoseconds: period * PERIOD,
            delay_nanoseconds: if has_waited { PERIOD * 7 / 2 } else { 0 },
            slices: 1 + u64::from(has_waited),
        };
        let (activity, did) = match period {
            6..=9 => (Activity::Queued { displaced: false }, Did::Queued),
            _ => (Activity::Ran, Did::Ran),
        };
        let seen = Some(SchedulerSight { look, activity });
        run.add(0, period * PERIOD, seen, stack, true, did);
    }
    let member = &mut run.members[0];
    member.settle(&mut run.aggregate, None);
    assert_eq!(member.waited(), PERIOD * 7 / 2);
    let settled = run.aggregate.settle(&run.sampler.tree, &run.sampler.edges);
    let (stacks, _) = settled.sum();
    let of = |held| {
        let mut its = stacks.iter().filter(|stack| stack.held == held);
        let sum = its.next().unwrap().sum;
        assert!(its.next().is_none());
        (sum.samples, sum.wall_nanoseconds, sum.cpu_nanoseconds)
    };
    let period = i64::try_from(PERIOD).unwrap();
    assert_eq!(of(Held::Cpu), (4, period * 7 / 2, 0));
    assert_eq!(of(Held::No), (16, period * 33 / 2, period * 19));
}

#[test]
fn cpu_between_requests_is_in_no_sample() {
    assert_eq!(served(false), (701, 700, 100));
    assert_eq!(served(true), (801, 800, 0));
}
