//! What a profile's comment says, and samples without a worker.

use std::collections::HashMap;
use std::sync::Arc;

use phpprof_profile::{DecodeLimits, decode};
use phpprof_zend::testing::IS_NULL;

use super::*;
use crate::heap::{HeapContents, HeapRead};
use crate::now;
use crate::read::on_cpu::CpuProofs;
use crate::run::WorkerLabels;
use crate::run::aggregate::{ANY_WORKER, Aggregate, Labelled};
use crate::run::facts::{RunAsked, RunFacts};
use crate::run::seen::Busy;
use crate::run::snapshot::Samples;
use crate::sample::StackSampler;
use crate::sample::tests::Scene;
use crate::stack::call_tree::{CallPath, PathId};
use crate::stack::names::{FunctionName, FunctionNames};
use crate::stack::trace::{Ending, SummedStack};
use crate::target::process::held::Held;
use phpprof_profile::dump;
use phpprof_profile::waiting;

/// A snapshot with one sample of each of this many workers, all in one stack.
fn snapshot_of(workers: i32) -> Snapshot {
    let engine = Scene::frameless("strpos", IS_NULL).process().engine;
    let mut aggregate = Aggregate::default();
    let mut seen = HashMap::new();
    for pid in 1..=workers {
        aggregate.add(SummedStack::of_phase(FunctionNames::IDLE), pid, 1);
        let engine = Arc::clone(&engine);
        seen.insert(pid, WorkerLabels { pid, engine });
    }
    Snapshot {
        samples: Samples::of(&StackSampler::new(), &aggregate),
        facts: RunFacts {
            asked: RunAsked::default(),
            requests: None,
            heap: None,
            fibers: None,
            engine,
            jit: false,
            extensions: None,
            error_handlers: Vec::new(),
            seen,
            busy: Busy::default(),
            began_unix_nanoseconds: 0,
            took: Duration::from_secs(1),
            asked_period: Duration::from_millis(10),
            effective_period: Duration::from_millis(10),
            seed: 7,
            cpu_unattributed: Duration::ZERO,
            cpu_waited: Duration::ZERO,
            gave_way: Duration::ZERO,
            throttled: None,
            cpu_proofs: CpuProofs::default(),
            not_running: None,
            without_room: 0,
            missed: None,
        },
        list_stored: None,
    }
}

#[track_caller]
fn check_without_worker(workers: i32, are_some: bool) {
    let output = output(&snapshot_of(workers), &[], OfSampler::default());
    let profile = decode(&output.bytes, &DecodeLimits::default()).unwrap();
    let comment = profile.comments().next().unwrap();
    let comment: serde_json::Value = serde_json::from_str(comment).unwrap();
    let unlabelled = profile.sample.iter();
    let unlabelled: i64 = unlabelled
        .filter(|sample| sample.label.is_empty())
        .map(|sample| sample.value[0])
        .sum();
    assert_eq!(comment["quality"]["withoutWorker"], unlabelled);
    assert_eq!(output.untold.without_worker, unlabelled);
    assert_eq!((unlabelled > 0, output.samples), (are_some, workers as u64));
}

#[test]
fn samples_without_worker_are_counted() {
    check_without_worker(64, false);
    check_without_worker(60_000, true);
}

/// Of five workers, two have no sample, and three more had no room.
#[test]
fn snapshot_counts_workers_without_a_sample() {
    let mut snapshot = snapshot_of(3);
    let workers = now::workers(&snapshot, &HashMap::new());
    let counted = |snapshot: &Snapshot| {
        let output = of_workers(snapshot, &workers, &[], OfSampler::default());
        let profile = decode(&output.bytes, &DecodeLimits::default()).unwrap();
        let listed = dump::workers(&profile).len();
        (listed, dump::without_sample(&profile))
    };
    assert_eq!(counted(&snapshot), (3, 0));
    let seen = snapshot.facts.seen[&1].clone();
    snapshot.facts.seen.extend([(4, seen.clone()), (5, seen)]);
    snapshot.facts.without_room = 3;
    assert_eq!(counted(&snapshot), (3, 5));
}

/// The label `waiting` of each sample of `strpos` or `flock`, by the state of the worker.
#[track_caller]
fn check_waiting(leaf: &str, held: Held, expected: Option<&str>) {
    let leaf = FrameRef {
        name: leaf,
        ..FrameRef::default()
    };
    let label = waits(held, Some(&leaf)).map(|label| match label {
        SampleTag::Str(waiting::LABEL, kind) => kind,
        other => panic!("{other:?}"),
    });
    assert_eq!(label, expected);
}

#[test]
fn stopped_workers_wait_whatever_their_leaf() {
    check_waiting("strpos", Held::Stopped, Some("stopped"));
    check_waiting("mysqli_query", Held::Stopped, Some("stopped"));
    check_waiting("strpos", Held::Disk, Some("disk"));
    check_waiting("mysqli_query", Held::Disk, None);
    check_waiting("strpos", Held::Cpu, Some("cpu"));
    check_waiting("mysqli_query", Held::Cpu, Some("cpu"));
    check_waiting("strpos", Held::No, None);
    assert!(waits(Held::Disk, None).is_some());
}

#[test]
fn stopped_workers_have_their_own_rows() {
    let mut aggregate = Aggregate::default();
    for (held, times) in [(Held::No, 3), (Held::Stopped, 2)] {
        for _ in 0..times {
            let sample = Labelled {
                held,
                ..SummedStack::of_phase(FunctionNames::COMPILING).into()
            };
            aggregate.merge(sample, 1, StackSum::of_one(5));
        }
    }
    let mut snapshot = snapshot_of(1);
    snapshot.samples = Samples::of(&StackSampler::new(), &aggregate);
    snapshot.samples.quality.stopped = 2;
    let output = output(&snapshot, &[], OfSampler::default());
    let profile = decode(&output.bytes, &DecodeLimits::default()).unwrap();
    let stopped = |sample: &&phpprof_profile::proto::Sample| {
        let mut labels = sample.label.iter();
        labels.any(|it| profile.string(it.key) == "waiting" && profile.string(it.str) == "stopped")
    };
    let rows: Vec<_> = profile.sample.iter().map(|it| it.value[0]).collect();
    assert_eq!(rows.iter().sum::<i64>(), 5);
    let samples: Vec<_> = profile.sample.iter().filter(stopped).collect();
    assert_eq!(
        samples.iter().map(|it| it.value[0]).collect::<Vec<_>>(),
        [2]
    );
    let comment: serde_json::Value =
        serde_json::from_str(profile.comments().next().unwrap()).unwrap();
    assert_eq!(comment["quality"]["stopped"], 2);
    assert!(comment["quality"].get("withoutName").is_none());
}

/// The samples of a run whose table of sums, call paths or names is full.
#[test]
fn samples_without_room_are_counted_by_their_table() {
    let mut sampler = StackSampler::new();
    let names = &mut sampler.functions.names;
    let tree = &mut sampler.tree;
    let name = |text| FunctionName {
        name: text,
        file: "/a.php",
        start_line: 1,
    };
    let known = names.intern(name("f"));
    let mut call = |name| {
        let path = tree.add(PathId::NONE, name, 0, 1, CallPath::default());
        path.unwrap()
    };
    let paths = [call(known), call(FunctionNames::OVERFLOW)];
    let stack = |path, ending| SummedStack {
        path,
        ending,
        ..SummedStack::of_phase(FunctionNames::COMPILING)
    };
    let whole = |path| SummedStack {
        phase: None,
        ..stack(path, Ending::Whole)
    };
    let mut aggregate = Aggregate::default();
    let samples = [
        (whole(paths[0]), 7, 100),
        (whole(paths[1]), 7, 5),
        (stack(paths[0], Ending::Full), 7, 3),
        (SummedStack::NO_ROOM, ANY_WORKER, 2),
    ];
    for (stack, tid, times) in samples {
        (0..times).for_each(|_| aggregate.add(stack, tid, 1));
    }
    let mut snapshot = snapshot_of(1);
    snapshot.samples = Samples::of(&sampler, &aggregate);
    let output = output(&snapshot, &[], OfSampler::default());
    let expected = Lost {
        samples: 110,
        names: 5,
        paths: 3,
        stacks: 2,
    };
    assert_eq!(output.lost, expected);
    let profile = decode(&output.bytes, &DecodeLimits::default()).unwrap();
    let comment: serde_json::Value =
        serde_json::from_str(profile.comments().next().unwrap()).unwrap();
    let counts = ["withoutName", "withoutPath", "withoutStack"].map(|key| &comment["quality"][key]);
    assert_eq!(counts, [5, 3, 2]);
}

#[test]
fn the_comment_has_the_fields_of_the_contract() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../contract/comment.json")).unwrap();
    let ours = serde_json::to_value(Comment {
        phpprof: "0.1.0",
        contract: contract::NUMBER,
        php: PhpBuild {
            version: "8.2.29",
            sapi: "fpm-fcgi",
            thread_safe: false,
            jit: "off",
            xdebug: Some("off"),
            opcache: Some("on"),
            opcache_restarts: Some(0),
            error_handlers: vec!["Shop\\Errors::handle".to_owned()],
        },
        workers: 4,
        workers_not_sampled: 2,
        workers_without_sample: 0,
        missed: Some(MissedCounts {
            processes: 217,
            cpu_milliseconds: 4870,
        }),
        throttled: Some(ThrottledTime {
            periods: 61,
            milliseconds: 4980,
        }),
        busy_percents: vec![61, 30, 8, 1],
        asked: AskedData {
            labels: vec!["method", "route"],
            filter: Some(asked::FilterData {
                path_prefix: Some("/export".to_owned()),
                min_request_age_milliseconds: Some(500),
                ..asked::FilterData::default()
            }),
            include_idle: false,
            only_running: false,
        },
        samples: 2970,
        quality: SampleCounts {
            due: 11880,
            taken: 11873,
            late: 7,
            quiescent: 12,
            unstable: 27,
            denied: 0,
            idle: 8903,
            open: 0,
            cpu_unattributed_milliseconds: milliseconds(Duration::from_micros(17_900)),
            cpu_wait_milliseconds: 5210,
            cpu_unproven: 9,
            cpu_uncounted: 6,
            without_worker: 3,
            without_labels: 8,
            truncated: 4,
            unnamed: 0,
            unchecked_names: 0,
            without_name: 5,
            without_path: 7,
            without_stack: 2,
            folded: 13,
            stopped: 11,
            not_running: None,
        },
        duration_seconds: 30,
        samples_per_second: 99,
        effective_samples_per_second: one_decimal(per_second(Duration::from_micros(10_132))),
        seed: 2_882_400_001,
        sampler_cpu_milliseconds: 120,
        workers_gave_way_milliseconds: 90,
        sampler_peak_bytes: 3_145_728,
        requests: Some(RequestFates {
            read: 1204,
            unknown: 3,
            changed: 1,
            other: BTreeMap::from([("route", 17)]),
            dropped: Some(Dropped {
                filtered: 410,
                young: 96,
                undecided: 4,
            }),
            list_stored: Some(true),
        }),
        heap: Some(HeapData {
            highest: Some(heap::Peak {
                peak_bytes: 92_274_688,
                real_peak_bytes: 98_566_144,
                limit_bytes: Some(134_217_728),
                route: Some("/export/{id}".to_owned()),
                stack: ["str_repeat", "Export::row", "Export::run", "{main}"]
                    .map(str::to_owned)
                    .to_vec(),
            }),
            refused: 2,
            without_heap: 1,
        }),
        fibers: Some(FiberCounts {
            visits: 31,
            most: 52,
            unproven: 3,
            lost: 4,
            refused: 1,
            workers_without_fibers: 2,
        }),
        in_heap: None,
    })
    .unwrap();
    assert_eq!(ours, golden);
}

#[test]
fn heaps_are_counted_read_or_not() {
    let snapshot = snapshot_of(4);
    let labels = [("pod".to_owned(), "web-1".to_owned())];
    let mut heaps = HeapsProfile::begin(&snapshot, &labels);
    let heap = dump::HeapReport {
        size: 5 << 20,
        free_in_bins: 100,
        free_pages: 2,
        ..dump::HeapReport::default()
    };
    let contents = HeapContents::All {
        held: Box::default(),
        is_moment: true,
    };
    let read = HeapRead {
        heap: heap.clone(),
        contents: Some(Ok(contents)),
    };
    heaps.add(1, Ok(read));
    // It is not torn: there was no time for what is in it.
    let late = HeapRead {
        heap,
        contents: None,
    };
    heaps.add(2, Ok(late));
    heaps.add(3, Err("the process has ended".to_owned()));
    // No worker of the run.
    heaps.add(99, Err(String::new()));
    let file = heaps.finish(1, OfSampler::default());
    let profile = decode(&file.bytes, &DecodeLimits::default()).unwrap();
    let types: Vec<_> = profile.sample_types().map(|(name, _)| name).collect();
    assert_eq!(types, ["inuse_objects", "inuse_space"]);
    let comments: Vec<serde_json::Value> = profile
        .comments()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let expected = serde_json::json!({
        "workers": 1, "moments": 1, "withoutHeap": 1, "late": 2, "cut": 0, "drawn": 0,
        "lostObjects": 0, "heapBytes": 5 << 20, "freeBytes": 100 + 8192, "heldBytes": 0,
    });
    assert_eq!(comments[0]["inHeap"], expected);
    assert_eq!((comments.len(), &comments[0]["samples"]), (4, &0.into()));
    let limited = serde_json::json!({
        "heapOf": 1, "isMoment": true, "isWhole": true, "heapBytes": 5 << 20, "heldBytes": 0,
    });
    assert_eq!(comments[1], limited);
    assert_eq!(comments[3]["refused"], "the process has ended");
}
