//! What a profile's comment says, and samples without a worker.

use std::collections::HashMap;
use std::sync::Arc;

use phpprof_profile::{Limits, decode};
use phpprof_zend::testing::IS_NULL;

use super::*;
use crate::run::Seen;
use crate::run::aggregate::Aggregate;
use crate::run::seen::Busy;
use crate::run::snapshot::Samples;
use crate::sample::Sampler;
use crate::sample::tests::Scene;
use crate::stack::names::Names;
use crate::stack::trace::Stack;

/// A snapshot with one sample of each of this many workers, all in one stack.
fn snapshot_of(workers: i32) -> Snapshot {
    let engine = Scene::frameless("strpos", IS_NULL).process().engine;
    let mut aggregate = Aggregate::default();
    let mut seen = HashMap::new();
    for pid in 1..=workers {
        aggregate.add(Stack::of_phase(Names::IDLE), pid, 1);
        let engine = Arc::clone(&engine);
        seen.insert(pid, Seen { pid, engine });
    }
    Snapshot {
        samples: Samples::of(&Sampler::new(), &aggregate),
        requests: None,
        heap: None,
        engine,
        jit: false,
        extensions: None,
        seen,
        busy: Busy::default(),
        began_unix_nanoseconds: 0,
        took: Duration::from_secs(1),
        asked_period: Duration::from_millis(10),
        effective_period: Duration::from_millis(10),
        seed: 7,
        cpu_unattributed: Duration::ZERO,
        not_running: None,
        without_room: 0,
        list_stored: None,
    }
}

#[track_caller]
fn check_without_worker(workers: i32, are_some: bool) {
    let output = output(&snapshot_of(workers), &[], OfSampler::default());
    let profile = decode(&output.bytes, &Limits::default()).unwrap();
    let comment = profile.comments().next().unwrap();
    let comment: serde_json::Value = serde_json::from_str(comment).unwrap();
    let unlabelled = profile.sample.iter();
    let unlabelled: i64 = unlabelled
        .filter(|sample| sample.label.is_empty())
        .map(|sample| sample.value[0])
        .sum();
    assert_eq!(comment["quality"]["withoutWorker"], unlabelled);
    assert_eq!(i64::try_from(output.without_worker), Ok(unlabelled));
    assert_eq!((unlabelled > 0, output.samples), (are_some, workers as u64));
}

#[test]
fn samples_that_found_no_room_by_worker_are_counted() {
    check_without_worker(64, false);
    check_without_worker(60_000, true);
}

#[test]
fn the_comment_has_the_fields_of_the_contract() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../contract/comment.json")).unwrap();
    let ours = serde_json::to_value(Comment {
        phpprof: "0.1.0",
        contract: contract::NUMBER,
        php: Php {
            version: "8.2.29",
            sapi: "fpm-fcgi",
            thread_safe: false,
            jit: "off",
            xdebug: Some("off"),
            opcache: Some("on"),
            opcache_restarts: Some(0),
        },
        workers: 4,
        workers_not_sampled: 2,
        busy_percents: vec![61, 30, 8, 1],
        samples: 2970,
        quality: Counts {
            due: 11880,
            taken: 11873,
            late: 7,
            quiescent: 12,
            unstable: 27,
            denied: 0,
            idle: 8903,
            open: 0,
            cpu_unattributed_milliseconds: milliseconds(Duration::from_micros(17_900)),
            without_worker: 3,
            unnamed: 0,
            unchecked_names: 0,
            not_running: None,
        },
        duration_seconds: 30,
        samples_per_second: 99,
        effective_samples_per_second: one_decimal(per_second(Duration::from_micros(10_132))),
        seed: 2_882_400_001,
        sampler_cpu_milliseconds: 120,
        sampler_peak_bytes: 3_145_728,
        requests: Some(Requests {
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
        heap: Some(Heap {
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
    })
    .unwrap();
    assert_eq!(ours, golden);
}
