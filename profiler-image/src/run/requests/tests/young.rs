//! Requests that are too young for the filter: which samples count in the end, and that their CPU
//! time and heap do with them.

use std::sync::Arc;
use std::time::Duration;

use phpprof_zend::testing::IS_NULL;

use super::*;
use crate::read::clocks::SchedStat;
use crate::read::heap::HeapWatch;
use crate::read::heap::tests::{memory, read};
use crate::run::heap::HeapAccount;
use crate::run::member::Member;
use crate::run::turn::tests::{did, options, seen};
use crate::run::{RecordingOptions, RunLoop};
use crate::stack::call_tree::{CallPath, PathId};
use crate::stack::names::NameId;

/// A period, in nanoseconds.
const PERIOD: u64 = 10 * MS;

fn options_of(include_young: bool) -> RecordingOptions {
    let filter = RequestFilter {
        min_age: Some(Duration::from_millis(200)),
        include_young,
        ..RequestFilter::default()
    };
    RecordingOptions {
        requests: asked("", filter),
        ..options()
    }
}

/// A run of one worker that runs all the time, and is sampled once a period.
struct Busy<'a> {
    run: RunLoop<'a>,
    /// The time, and the worker's CPU time.
    now: u64,
}

impl<'a> Busy<'a> {
    fn new(options: &'a RecordingOptions) -> Self {
        let mut run = RunLoop::new(options).unwrap();
        let mut process = Scene::frameless("strpos", IS_NULL).process();
        // Its SAPI keeps the heap.
        Arc::get_mut(&mut process.engine).unwrap().sapi = "cli".to_owned();
        let mut member = Member::new(process.into(), 7, 0);
        member.heap = Some(HeapAccount::new(&member.worker.process));
        run.members.push(member);
        Self { run, now: 0 }
    }

    fn begin(&mut self) {
        let (requests, served) = (&mut self.run.requests, &mut self.run.members[0].served);
        let known = requests.known(&HttpRequest::default());
        requests.begin(served, known, RequestSource::FastCgi, None, self.now);
    }

    fn sample(&mut self, stack: Option<SummedStack>) {
        let look = SchedStat {
            run_nanoseconds: self.now,
            delay_nanoseconds: 0,
            slices: 1,
        };
        let ran = stack.is_some();
        let seen = seen(look, ran);
        self.run.add(0, self.now, seen, stack, true, did(ran));
        self.now += PERIOD;
    }

    /// A request of this many samples of a stack.
    fn serve(&mut self, samples: u64, phase: NameId) {
        self.begin();
        (0..samples).for_each(|_| self.sample(Some(SummedStack::of_phase(phase))));
    }

    /// Sets the size of the heap that the next samples show.
    fn hold(&mut self, size: u64) {
        let reader = &mut self.run.members[0].worker.reader;
        let layout = reader.layout();
        let watch = reader
            .heap_watch
            .get_or_insert_with(|| HeapWatch::new(layout));
        reader.heap = read(watch, &memory(layout, size, 1 << 20));
        reader.has_frame = true;
    }

    /// Ends the run; returns the sums of each stack, and the number of dropped samples.
    fn end(mut self) -> (Vec<StackSum>, u64) {
        let served = &mut self.run.members[0].served;
        self.run.requests.idle(served, self.now);
        self.sample(None);
        let RunLoop {
            aggregate,
            sampler,
            members,
            ..
        } = &mut self.run;
        members[0].settle(aggregate, None);
        let settled = aggregate.settle(&sampler.tree, &sampler.edges);
        let (stacks, _) = settled.sum();
        let sums = stacks.iter().map(|stack| stack.sum).collect();
        (sums, self.run.requests.counts.young)
    }
}

/// The samples, and the periods of CPU time, of each stack.
fn counted(sums: &[StackSum]) -> Vec<(i64, i64)> {
    let period = i64::try_from(PERIOD).unwrap();
    let periods = sums
        .iter()
        .map(|sum| (sum.samples, sum.cpu_nanoseconds / period));
    periods.collect()
}

#[track_caller]
fn check(include_young: bool, requests: &[u64], expected: &[(i64, i64)], dropped: u64) {
    let options = options_of(include_young);
    let mut busy = Busy::new(&options);
    requests
        .iter()
        .for_each(|samples| busy.serve(*samples, FunctionNames::COMPILING));
    let (sums, young) = busy.end();
    assert_eq!(
        (&*counted(&sums), young),
        (expected, dropped),
        "{requests:?}"
    );
}

#[test]
fn sample_counts_once_its_request_is_old() {
    check(false, &[40], &[(20, 20)], 20);
    check(false, &[20], &[], 20);
}

#[test]
fn youth_counts_once_the_request_is_old() {
    check(true, &[40], &[(40, 40)], 0);
    check(true, &[20], &[], 20);
}

/// CPU time is shared by 64 samples, so it becomes known in a later request.
#[test]
fn young_cpu_time_follows_its_samples() {
    check(true, &[40; 10], &[(400, 400)], 0);
    check(true, &[10, 40, 20, 30, 10], &[(70, 70)], 40);
}

#[test]
fn each_stack_has_its_samples_cpu_time() {
    let options = options_of(true);
    let mut busy = Busy::new(&options);
    for _ in 0..5 {
        busy.serve(40, FunctionNames::COMPILING);
        busy.serve(10, FunctionNames::STARTUP);
        busy.serve(30, FunctionNames::LOADING);
    }
    let (sums, dropped) = busy.end();
    let mut stacks = counted(&sums);
    stacks.sort_unstable();
    assert_eq!((stacks, dropped), (vec![(150, 150), (200, 200)], 50));
}

#[test]
fn later_frees_reduce_young_samples() {
    let options = options_of(true);
    let mut busy = Busy::new(&options);
    for size in [1000, 9000, 9000, 1000] {
        busy.begin();
        busy.hold(size);
        (0..40).for_each(|_| busy.sample(Some(stack())));
    }
    let (sums, _) = busy.end();
    assert_eq!(sums.iter().map(|sum| sum.heap_change).sum::<i64>(), 0);
}

#[test]
fn young_stacks_take_bounded_room() {
    let filter = RequestFilter {
        min_age: Some(Duration::from_secs(10)),
        include_young: true,
        ..RequestFilter::default()
    };
    let options = RecordingOptions {
        requests: asked("", filter),
        ..options()
    };
    let mut busy = Busy::new(&options);
    busy.begin();
    for line in 0..1100 {
        let tree = &mut busy.run.sampler.tree;
        let path = tree.add(
            PathId::NONE,
            FunctionNames::IDLE,
            line,
            line,
            CallPath::default(),
        );
        let stack = SummedStack {
            path: path.unwrap(),
            ..stack()
        };
        busy.sample(Some(stack));
        let served = &busy.run.members[0].served;
        assert!(served.young.len() <= MAX_YOUNG);
    }
    let kept = MAX_YOUNG as i64 + 100;
    let (sums, dropped) = busy.end();
    let stacks = counted(&sums);
    let sum = |of: fn(&(i64, i64)) -> i64| stacks.iter().map(of).sum::<i64>();
    assert_eq!((sum(|it| it.0), sum(|it| it.1)), (kept, kept));
    assert_eq!(dropped, 1000 - MAX_YOUNG as u64);
}
