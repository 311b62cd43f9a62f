//! From what was sampled to a pprof: pure.
//!
//! The first comment is the full receipt (`contract/comment.json`). Invariant: the sum of `samples/count` is the number
//! of busy turns that were taken.

use std::time::Duration;

use phpprof_profile::{FrameRef, Label, MappingInfo, Settings, Writer};
use serde::Serialize;

use crate::run::aggregate::{ANY_WORKER, Settlement};
use crate::run::snapshot::Snapshot;

/// Workers whose busy share is in the receipt: the contract has 4 KiB for all of it.
const MAX_BUSY_PERCENTS: usize = 64;

/// What the sampler itself has used; measured by the caller at the end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pub cpu_milliseconds: u64,
    pub peak_bytes: u64,
}

/// A finished profile as a file, and how many samples it holds.
#[derive(Debug)]
pub struct Output {
    pub bytes: Vec<u8>,
    pub samples: u64,
    /// Those among them that found no room by worker.
    pub without_worker: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Comment<'a> {
    phpprof: &'a str,
    php: Php<'a>,
    workers: usize,
    busy_percents: Vec<u8>,
    samples: i64,
    quality: Counts,
    duration_seconds: u64,
    /// As it was asked for, and as it was kept on average.
    samples_per_second: u64,
    effective_samples_per_second: f64,
    #[serde(rename = "samplerCPUMilliseconds")]
    sampler_cpu_milliseconds: u64,
    sampler_peak_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Php<'a> {
    version: &'a str,
    sapi: &'a str,
    thread_safe: bool,
    jit: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    due: u64,
    taken: u64,
    late: u64,
    quiet: u64,
    unstable: i64,
    denied: u64,
    idle: u64,
    open: u64,
    cpu_unattributed_milliseconds: u64,
    without_worker: i64,
}

/// Builds the profile. `labels` are added to each sample.
#[must_use]
pub fn output(snapshot: &Snapshot, labels: &[(String, String)], cost: Cost) -> Output {
    let mut writer = Writer::new(Settings {
        period: i64::try_from(snapshot.effective_period.as_nanos()).unwrap_or(i64::MAX),
        time_nanos: snapshot.began_unix_nanoseconds,
        duration_nanos: i64::try_from(snapshot.took.as_nanos()).unwrap_or(i64::MAX),
        mapping: MappingInfo {
            filename: snapshot.engine.module.path.clone(),
            build_id: snapshot.engine.build_id.clone(),
        },
        ..Settings::default()
    });
    // In their order, so that the same samples make the same file; one by one, for all of them take many megabytes.
    let settled = &snapshot.samples.settled;
    let (mut lines, mut samples, mut without_worker) = (Vec::new(), 0, 0);
    let unstable = settled.each(|stack| {
        let Settlement { tid, sum, .. } = &stack;
        settled.lines(&stack, &mut lines);
        let frames: Vec<FrameRef<'_>> = lines
            .iter()
            .rev()
            .map(|&(id, line)| {
                let name = snapshot.samples.names.get(id);
                FrameRef {
                    name: name.name,
                    file: name.file,
                    start_line: name.start_line.into(),
                    line: line.into(),
                }
            })
            .collect();
        let mut all: Vec<Label<'_>> = labels
            .iter()
            .map(|(key, value)| Label::Str(key, value))
            .collect();
        if let Some(worker) = snapshot.seen.get(tid) {
            // Several versions may run in one container, so each sample says which it is from.
            all.push(Label::Str("php", &worker.engine.version));
            all.push(Label::Str("sapi", &worker.engine.sapi));
            all.push(Label::Num("pid", i64::from(worker.pid), ""));
            if worker.engine.is_thread_safe() {
                all.push(Label::Num("thread", i64::from(*tid), ""));
            }
        }
        writer.add(
            &frames,
            &[sum.samples, sum.cpu_nanoseconds, sum.wall_nanoseconds],
            &all,
        );
        samples += sum.samples;
        if *tid == ANY_WORKER {
            without_worker += sum.samples;
        }
    });
    writer.comment(comment(snapshot, samples, (unstable, without_worker), cost));
    Output {
        bytes: writer.finish(),
        samples: u64::try_from(samples).unwrap_or(0),
        without_worker: u64::try_from(without_worker).unwrap_or(0),
    }
}

/// The busiest workers first, as many as a receipt holds.
fn busiest(percents: &[u8]) -> Vec<u8> {
    let mut percents = percents.to_vec();
    percents.sort_unstable_by(|one, other| other.cmp(one));
    percents.truncate(MAX_BUSY_PERCENTS);
    percents
}

fn comment(
    snapshot: &Snapshot,
    samples: i64,
    (unstable, without_worker): (i64, i64),
    cost: Cost,
) -> String {
    let quality = snapshot.samples.quality;
    let comment = Comment {
        phpprof: env!("CARGO_PKG_VERSION"),
        php: Php {
            version: &snapshot.engine.version,
            sapi: &snapshot.engine.sapi,
            thread_safe: snapshot.engine.is_thread_safe(),
            jit: if snapshot.jit { "on" } else { "off" },
        },
        workers: snapshot.busy_percents.len(),
        busy_percents: busiest(&snapshot.busy_percents),
        samples,
        quality: Counts {
            due: quality.due,
            taken: quality.taken,
            late: quality.late,
            quiet: quality.quiet,
            unstable,
            denied: quality.denied,
            idle: quality.idle,
            open: quality.open,
            cpu_unattributed_milliseconds: milliseconds(snapshot.cpu_unattributed),
            without_worker,
        },
        duration_seconds: snapshot.took.as_secs_f64().round() as u64,
        samples_per_second: per_second(snapshot.asked_period).round() as u64,
        effective_samples_per_second: one_decimal(per_second(snapshot.effective_period)),
        sampler_cpu_milliseconds: cost.cpu_milliseconds,
        sampler_peak_bytes: cost.peak_bytes,
    };
    serde_json::to_string(&comment).unwrap_or_default()
}

/// How often something happens that happens once in this period.
#[must_use]
pub fn per_second(period: Duration) -> f64 {
    1.0 / period.as_secs_f64().max(1e-9)
}

fn one_decimal(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use phpprof_profile::{Limits, decode};
    use phpprof_zend::testing::IS_NULL;

    use super::*;
    use crate::run::Seen;
    use crate::run::aggregate::Aggregate;
    use crate::run::snapshot::Samples;
    use crate::sample::Sampler;
    use crate::sample::tests::Scene;
    use crate::stack::names::Names;
    use crate::stack::trace::Stack;

    /// One sample of each of so many workers, all in one stack.
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
            engine,
            jit: false,
            seen,
            busy_percents: Vec::new(),
            began_unix_nanoseconds: 0,
            took: Duration::from_secs(1),
            asked_period: Duration::from_millis(10),
            effective_period: Duration::from_millis(10),
            cpu_unattributed: Duration::ZERO,
        }
    }

    #[track_caller]
    fn check_without_worker(workers: i32, are_some: bool) {
        let output = output(&snapshot_of(workers), &[], Cost::default());
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
            serde_json::from_str(include_str!("../../../contract/comment.json")).unwrap();
        let ours = serde_json::to_value(Comment {
            phpprof: "0.1.0",
            php: Php {
                version: "8.2.29",
                sapi: "fpm-fcgi",
                thread_safe: false,
                jit: "off",
            },
            workers: 4,
            busy_percents: busiest(&[8, 30, 61, 1]),
            samples: 2970,
            quality: Counts {
                due: 11880,
                taken: 11873,
                late: 7,
                quiet: 12,
                unstable: 27,
                denied: 0,
                idle: 8903,
                open: 0,
                cpu_unattributed_milliseconds: milliseconds(Duration::from_micros(17_900)),
                without_worker: 3,
            },
            duration_seconds: 30,
            samples_per_second: 99,
            effective_samples_per_second: one_decimal(per_second(Duration::from_micros(10_132))),
            sampler_cpu_milliseconds: 120,
            sampler_peak_bytes: 3_145_728,
        })
        .unwrap();
        assert_eq!(ours, golden);
    }
}
