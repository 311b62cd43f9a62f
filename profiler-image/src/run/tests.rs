//! The loop by a clock of the test: one worker, whose stack is in the memory of this test, for
//! seconds that do not pass.

use std::rc::Rc;
use std::sync::Mutex;

use phpprof_zend::testing::IS_NULL;

use super::testing::{FakeClock, FakeScanner, MILLISECOND, SECONDS, found, gone};
use super::turn::tests::options;
use super::*;
use crate::sample::tests::Scene;
use crate::target::process::Process;

/// A worker that runs: its clocks are those of the thread that samples it.
fn worker(scene: &Scene) -> Process {
    let mut process = scene.process();
    process.tid = nix::unistd::gettid().as_raw();
    process
}

/// 99 Hz for ten seconds.
fn paced() -> RecordingOptions {
    RecordingOptions {
        duration: SECONDS(10),
        unpaced: false,
        ..options()
    }
}

/// Runs with these reports of the scanner, each at its time.
fn run(
    options: &RecordingOptions,
    clock: &Rc<FakeClock>,
    reports: Vec<(Duration, ScanReport)>,
) -> Result<Recording, RecordError> {
    let scanner = FakeScanner::new(clock, reports);
    let mut run = RunLoop::by(options, Box::new(Rc::clone(clock)), Box::new(scanner))?;
    let engine = run.wait_for_workers(None)?;
    Ok(run.record(None, engine))
}

/// The same, with one worker from the begin.
fn of_one(
    options: &RecordingOptions,
    clock: &Rc<FakeClock>,
    more: Vec<(Duration, ScanReport)>,
) -> Recording {
    let scene = Scene::frameless("strpos", IS_NULL);
    let mut reports = vec![(Duration::ZERO, found(vec![worker(&scene)]))];
    reports.extend(more);
    run(options, clock, reports).unwrap()
}

#[test]
fn each_slot_has_one_sample() {
    let recording = of_one(&paced(), &FakeClock::new(), Vec::new());
    let quality = recording.sampler.quality;
    assert_eq!(recording.ended, RunEnd::Done);
    assert_eq!(recording.facts.took, SECONDS(10));
    assert_eq!((quality.due, quality.taken, quality.late), (990, 990, 0));
    assert_eq!(
        recording.facts.effective_period,
        recording.facts.asked_period
    );
}

#[test]
fn sampler_over_budget_lowers_its_rate() {
    let options = RecordingOptions {
        cpu_budget_percent: Some(10),
        duration: SECONDS(60),
        ..paced()
    };
    let clock = FakeClock::new();
    // 30 % of a core at 99 Hz.
    clock.work.set(3 * MILLISECOND);
    let recording = of_one(&options, &clock, Vec::new());
    let slower =
        recording.facts.effective_period.as_secs_f64() / recording.facts.asked_period.as_secs_f64();
    // Three times as slow is enough. The period grows by half at a time, which may be one step more
    // than needed; the slots' drawn times decide whether a further step follows.
    assert!((2.0..3.0 * 1.5 * 1.5).contains(&slower), "{slower}");
    let used = clock.own_cpu() as f64 / 60e9;
    // Its first three seconds do not count.
    assert!(used < 0.15, "{used}");
    // Next to nothing was late: the lower rate is a decision. A turn at the end of its slot and one
    // at the begin of the next can both pass in one sleep.
    let quality = recording.sampler.quality;
    assert!(quality.late * 100 <= quality.due, "{quality:?}");
}

#[test]
fn late_turns_are_counted_and_not_repeated() {
    let clock = FakeClock::new();
    clock.late.set(25 * MILLISECOND);
    let recording = of_one(&paced(), &clock, Vec::new());
    let quality = recording.sampler.quality;
    assert_eq!(quality.due, quality.taken + quality.late);
    assert!((980..=990).contains(&quality.due), "{quality:?}");
    assert!((280..=400).contains(&quality.taken), "{quality:?}");
    let late = recording.lateness.percentile(0.5);
    assert!((15..=30).contains(&(late / MILLISECOND)), "{late}");
    assert!(recording.facts.effective_period > recording.facts.asked_period * 2);
}

#[test]
fn short_run_takes_turns_though_late() {
    let clock = FakeClock::new();
    // Each wake-up comes later than the whole run is long, or so late that nobody waits for more.
    for (late, expected) in [(200, 3), (4000, 1)] {
        clock.late.set(late * MILLISECOND);
        let options = RecordingOptions {
            duration: Duration::from_millis(100),
            ..paced()
        };
        let recording = of_one(&options, &clock, Vec::new());
        assert_eq!(recording.sampler.quality.taken, expected);
    }
}

#[test]
fn thread_has_its_timers_back_after_a_run() {
    let of_thread = std::thread::spawn(|| {
        let slack = || nix::sys::prctl::get_timerslack().unwrap();
        let before = slack();
        let options = RecordingOptions {
            scope: crate::target::Scope::Pids(vec![i32::MAX]),
            of_program: true,
            ..paced()
        };
        options.stop.request("end");
        let error = record(&options).unwrap_err();
        assert!(matches!(error, RecordError::Stopped), "{error:?}");
        assert_eq!(slack(), before);
    });
    of_thread.join().unwrap();
}

#[test]
fn target_without_php_is_given_up_soon() {
    for (reports, expected) in [
        (vec![(SECONDS(1), found(Vec::new()))], 1.5),
        (Vec::new(), 10.0),
    ] {
        let clock = FakeClock::new();
        let began = clock.now();
        let error = run(&paced(), &clock, reports).unwrap_err();
        assert!(matches!(error, RecordError::NoPhp(None)), "{error:?}");
        let waited = (clock.now() - began) as f64 / SECOND as f64;
        assert!((expected..expected + 0.1).contains(&waited), "{waited}");
    }
}

#[test]
fn a_program_that_was_started_is_waited_for() {
    let options = RecordingOptions {
        of_program: true,
        duration: SECONDS(2),
        ..paced()
    };
    let scene = Scene::frameless("strpos", IS_NULL);
    let late = (SECONDS(20), found(vec![worker(&scene)]));
    let recording = run(&options, &FakeClock::new(), vec![late]).unwrap();
    assert_eq!(recording.sampler.quality.taken, 198);
}

#[test]
fn later_worker_has_its_own_samples() {
    let scene = Scene::frameless("strpos", IS_NULL);
    let second = (SECONDS(5), found(vec![worker(&scene)]));
    let recording = of_one(&paced(), &FakeClock::new(), vec![second]);
    let taken = recording.sampler.quality.taken;
    assert!((990 + 480..=990 + 496).contains(&taken), "{taken}");
}

#[test]
fn a_run_ends_soon_after_its_target() {
    let recording = of_one(&paced(), &FakeClock::new(), vec![(SECONDS(3), gone())]);
    assert_eq!(recording.ended, RunEnd::WorkersGone);
    let late = recording.facts.took - SECONDS(3);
    assert!(late < Duration::from_millis(165), "{late:?}");
}

#[test]
fn a_runs_facts_name_the_error_handler() {
    let scene = Scene::frameless("strpos", IS_NULL).with_error_handler("on_error");
    let reports = vec![(Duration::ZERO, found(vec![worker(&scene)]))];
    let recording = run(&paced(), &FakeClock::new(), reports).unwrap();
    assert_eq!(recording.facts.error_handlers, ["on_error"]);
    let without = of_one(&paced(), &FakeClock::new(), Vec::new());
    assert_eq!(without.facts.error_handlers, Vec::<String>::new());
}

/// Keeps the first snapshot after two seconds, and then asks for the end.
#[derive(Debug)]
struct KeepOnce {
    stop: stop::StopSwitch,
    kept: Mutex<Option<(Duration, u64)>>,
}

impl snapshot::Keep for KeepOnce {
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> snapshot::Snapshot) {
        let mut kept = self.kept.lock().unwrap();
        if sampled >= SECONDS(2) && kept.is_none() {
            let snapshot = snapshot();
            assert_eq!(snapshot.facts.took, sampled);
            *kept = Some((sampled, snapshot.samples.quality.taken));
            self.stop.request("keep");
        }
    }

    fn have_worked(&self) -> bool {
        false
    }
}

#[test]
fn checkpoint_has_samples_and_stop_keeps_them() {
    let stop = stop::StopSwitch::default();
    let keep = Arc::new(KeepOnce {
        stop: stop.clone(),
        kept: Mutex::default(),
    });
    let options = RecordingOptions {
        stop,
        checkpoints: Some(Arc::clone(&keep) as Arc<dyn snapshot::Keep>),
        ..paced()
    };
    let recording = of_one(&options, &FakeClock::new(), Vec::new());
    let (at, taken) = keep.kept.lock().unwrap().unwrap();
    assert!(at < SECONDS(2) + Duration::from_millis(100), "{at:?}");
    assert!((198..=208).contains(&taken), "{taken}");
    assert_eq!(recording.ended, RunEnd::Stopped);
    assert!(recording.facts.took < at + Duration::from_millis(165));
    assert!(recording.sampler.quality.taken >= taken);
}
