//! Builds a pprof from samples: pure.
//!
//! The first comment is the full receipt (`contract/comment.json`). Invariant: the sum of
//! `samples/count` is the number of turns in which a worker was busy.

use std::collections::BTreeMap;
use std::time::Duration;

use phpprof_profile::dump::{DumpWorker, MemoryLabels};
use phpprof_profile::in_use::InHeap;
use phpprof_profile::room::Lost;
use phpprof_profile::unnamed;
use phpprof_profile::{FrameRef, MappingInfo, SampleTag, Settings, Writer, depth_within};
use phpprof_zend::extensions::OpcacheState;
use serde::Serialize;

use crate::contract;
use crate::now::without_sample;
use crate::request::asked::SampleLabel;
use crate::run::aggregate::{Full, Settlement, StackSum};
use crate::run::facts::RunFacts;
use crate::run::requests::RequestReport;
use crate::run::snapshot::Snapshot;
use asked::AskedData;
use fibers::{FiberCounts, add_fibers};
use heap::HeapData;
pub use held::{HeapOfWorker, HeapsProfile};
use php::PhpBuild;
use rows::{frame_of, frames, of_worker, waits};
pub use untold::Untold;

mod asked;
mod fibers;
mod heap;
mod held;
mod php;
mod rows;
mod untold;

/// How many workers' busy shares are in the receipt: the contract allows 4 KiB for all of it.
const MAX_BUSY_PERCENTS: usize = 64;

/// What the receipt says of the sampler itself. The caller measures the resources at the end.
#[derive(Debug, Clone, Copy)]
pub struct OfSampler {
    /// The number of the contract that the receipt is under.
    pub contract: u32,
    /// User and system time of the process.
    pub cpu_milliseconds: u64,
    /// The peak of its resident memory.
    pub peak_bytes: u64,
}

impl Default for OfSampler {
    /// Without an operator, and without a measurement.
    fn default() -> Self {
        Self {
            contract: contract::NUMBER,
            cpu_milliseconds: 0,
            peak_bytes: 0,
        }
    }
}

/// A finished profile as a file, and its number of samples.
#[derive(Debug)]
pub struct ProfileFile {
    /// A gzip-compressed pprof.
    pub bytes: Vec<u8>,
    /// The number of all samples.
    pub samples: u64,
    /// What its samples do not tell.
    pub untold: Untold,
    /// What was counted of samples without a name.
    pub unnamed: unnamed::Counts,
    /// What was lost for lack of room.
    pub lost: Lost,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Comment<'a> {
    phpprof: &'a str,
    contract: u32,
    php: PhpBuild<'a>,
    workers: usize,
    workers_not_sampled: usize,
    /// In a snapshot: those that are seen and have no sample.
    #[serde(skip_serializing_if = "is_zero")]
    workers_without_sample: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<MissedCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    throttled: Option<ThrottledTime>,
    busy_percents: Vec<u8>,
    asked: AskedData,
    samples: i64,
    quality: SampleCounts,
    duration_seconds: u64,
    /// The requested rate, and the average one.
    samples_per_second: u64,
    effective_samples_per_second: f64,
    /// What the due times were drawn with.
    seed: u32,
    #[serde(rename = "samplerCPUMilliseconds")]
    sampler_cpu_milliseconds: u64,
    /// How long workers waited for the sampler.
    #[serde(skip_serializing_if = "is_zero")]
    workers_gave_way_milliseconds: u64,
    sampler_peak_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<RequestFates>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<HeapData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fibers: Option<FiberCounts>,
    /// In a profile of heaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_heap: Option<InHeap>,
}

impl Comment<'_> {
    fn text(&self) -> String {
        // Serialising strings and numbers cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What came and went unseen.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MissedCounts {
    processes: u64,
    cpu_milliseconds: u64,
}

/// What the CPU limit of the target's control group has cost.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThrottledTime {
    periods: u64,
    milliseconds: u64,
}

/// What happened to requests, if labels or a filter were requested.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestFates {
    read: u64,
    unknown: u64,
    changed: u64,
    /// By the label's key, how many requests have `(other)` for lack of room; labels without such
    /// requests are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    other: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Dropped>,
    /// Whether the list of requests is stored, if one was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    list_stored: Option<bool>,
}

/// Samples that a filter dropped.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dropped {
    filtered: u64,
    young: u64,
    undecided: u64,
}

impl RequestFates {
    fn of(told: &RequestReport, list_stored: Option<bool>) -> Self {
        let other = SampleLabel::ALL
            .into_iter()
            .map(|label| (label.key(), told.table.other[label as usize]));
        Self {
            read: told.counts.requests,
            unknown: told.counts.unknown,
            changed: told.counts.changed,
            other: other.filter(|(_, count)| *count > 0).collect(),
            dropped: told.has_filter.then_some(Dropped {
                filtered: told.counts.filtered,
                young: told.counts.young,
                undecided: told.counts.undecided,
            }),
            list_stored,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleCounts {
    due: u64,
    taken: u64,
    late: u64,
    /// The contract has the older name.
    #[serde(rename = "quiet")]
    quiescent: u64,
    unstable: i64,
    denied: u64,
    idle: u64,
    open: u64,
    cpu_unattributed_milliseconds: u64,
    /// How long workers waited for a CPU.
    #[serde(skip_serializing_if = "is_zero")]
    cpu_wait_milliseconds: u64,
    /// Samples of workers that waited for a CPU lately, of which it is not proven whether they were
    /// on one, and samples without the counts for such a proof.
    #[serde(skip_serializing_if = "is_zero")]
    cpu_unproven: u64,
    #[serde(skip_serializing_if = "is_zero")]
    cpu_uncounted: u64,
    without_worker: i64,
    #[serde(skip_serializing_if = "is_zero")]
    without_labels: i64,
    /// Samples of stacks of which a part is left out.
    #[serde(skip_serializing_if = "is_zero")]
    truncated: i64,
    /// Samples that end below a name that could not be checked. Few runs have any.
    #[serde(skip_serializing_if = "is_zero")]
    unnamed: u64,
    /// Names that only a second read has confirmed. Few runs have any.
    #[serde(skip_serializing_if = "is_zero")]
    unchecked_names: u64,
    /// Samples for which another table had no room, which few runs have.
    #[serde(skip_serializing_if = "is_zero")]
    without_name: i64,
    #[serde(skip_serializing_if = "is_zero")]
    without_path: i64,
    #[serde(skip_serializing_if = "is_zero")]
    without_stack: i64,
    /// Samples that show a recursion shorter than it was.
    #[serde(skip_serializing_if = "is_zero")]
    folded: u64,
    /// Samples of workers that were stopped.
    #[serde(skip_serializing_if = "is_zero")]
    stopped: i64,
    /// For a run that only keeps samples on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_running: Option<u64>,
}

fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

fn writer(snapshot: &Snapshot, settings: Settings) -> Writer {
    Writer::new(Settings {
        time_nanos: snapshot.facts.began_unix_nanoseconds,
        duration_nanos: i64::try_from(snapshot.facts.took.as_nanos()).unwrap_or(i64::MAX),
        mapping: MappingInfo {
            filename: snapshot.facts.engine.module.path.clone(),
            build_id: snapshot.facts.engine.build_id.clone(),
        },
        document_roots: (snapshot.facts.requests.as_ref())
            .map(|told| told.document_roots.clone())
            .unwrap_or_default(),
        ..settings
    })
}

/// The sample types of what was asked for.
fn settings(snapshot: &Snapshot) -> Settings {
    let mut settings = Settings {
        period: i64::try_from(snapshot.facts.effective_period.as_nanos()).unwrap_or(i64::MAX),
        ..Settings::default()
    };
    if snapshot.facts.heap.is_some() {
        settings = settings.with_heap();
    }
    if snapshot.facts.fibers.is_some() {
        settings = settings.with_fibers();
    }
    settings
}

/// The values of a sum, in the order of the sample types.
fn values(sum: &StackSum, facts: &RunFacts) -> Vec<i64> {
    let heap = [sum.heap_growth, sum.heap_change];
    let fibers = [sum.fibers, sum.suspended_nanoseconds];
    let mut values = vec![sum.samples];
    values.extend(heap.iter().filter(|_| facts.heap.is_some()));
    values.extend(fibers.iter().filter(|_| facts.fibers.is_some()));
    values.extend([sum.cpu_nanoseconds, sum.wall_nanoseconds]);
    values
}

/// Builds the profile of a moment: one sample of each worker, whose labels tell its state
/// (`phpprof_profile::dump` reads them).
#[must_use]
pub fn of_workers(
    snapshot: &Snapshot,
    workers: &[DumpWorker],
    labels: &[(String, String)],
    of_sampler: OfSampler,
) -> ProfileFile {
    let mut writer = writer(snapshot, settings(snapshot));
    for worker in workers {
        // A sample needs at least one frame.
        let idle = [FrameRef {
            name: "[idle]",
            ..FrameRef::default()
        }];
        let frames: Vec<_> = worker.stack.iter().map(frame_of).collect();
        let frames = if frames.is_empty() {
            &idle[..]
        } else {
            &frames
        };
        let given = labels.iter();
        let mut all: Vec<_> = given
            .map(|(key, value)| SampleTag::Str(key, value))
            .collect();
        let memory = MemoryLabels::of(worker.memory.as_ref());
        all.extend(worker.labels(&memory));
        let sum = StackSum::of_one(0);
        writer.add(frames, &values(&sum, &snapshot.facts), &all);
        add_fibers(&mut writer, snapshot, worker, labels);
    }
    let all = Lost {
        samples: i64::try_from(workers.len()).unwrap_or(i64::MAX),
        ..Lost::default()
    };
    let untold = Untold::default();
    let comment = Comment {
        workers_without_sample: without_sample(&snapshot.facts, workers),
        ..comment(snapshot, &all, 0, untold, of_sampler)
    };
    writer.comment(comment.text());
    ProfileFile {
        bytes: writer.finish(),
        samples: workers.len() as u64,
        untold,
        unnamed: unnamed::Counts::default(),
        lost: Lost::default(),
    }
}

/// Builds the profile. `labels` are added to each sample.
#[must_use]
pub fn output(
    snapshot: &Snapshot,
    labels: &[(String, String)],
    of_sampler: OfSampler,
) -> ProfileFile {
    let depth = depth_within(snapshot.samples.settled.depths());
    let mut writer = writer(snapshot, settings(snapshot)).with_depth(depth);
    // In order, so that the same samples give the same file; and one by one, because all of them at
    // once take many megabytes.
    let settled = &snapshot.samples.settled;
    let (mut lines, mut lost) = (Vec::new(), Lost::default());
    let mut untold = Untold::of(settled);
    let mut texts = String::new();
    let unstable = settled.each(|stack| {
        let Settlement {
            tid,
            sum,
            labels: of_request,
            ..
        } = &stack;
        settled.lines(&stack, &mut lines);
        lost.samples += sum.samples;
        match stack.full(&lines) {
            Some(Full::Names) => lost.names += sum.samples,
            Some(Full::Paths) => lost.paths += sum.samples,
            Some(Full::Stacks) => lost.stacks += sum.samples,
            None => {}
        }
        let frames = frames(snapshot, &lines, &mut texts);
        let mut all: Vec<SampleTag<'_>> = labels
            .iter()
            .map(|(key, value)| SampleTag::Str(key, value))
            .collect();
        if let Some(told) = &snapshot.facts.requests {
            let of_request = told.table.labels(*of_request);
            all.extend(of_request.map(|(key, value)| SampleTag::Str(key, value)));
        }
        all.extend(of_worker(snapshot, *tid).into_iter().flatten());
        all.extend(waits(stack.held, frames.first()));
        writer.add(&frames, &values(sum, &snapshot.facts), &all);
        untold.count(&stack, &lines);
    });
    writer.comment(comment(snapshot, &lost, unstable, untold, of_sampler).text());
    ProfileFile {
        bytes: writer.finish(),
        samples: u64::try_from(lost.samples).unwrap_or(0),
        untold,
        unnamed: unnamed(snapshot, lost.samples, unstable),
        lost,
    }
}

fn unnamed(snapshot: &Snapshot, samples: i64, unstable: i64) -> unnamed::Counts {
    let opcache = snapshot.facts.extensions.and_then(|it| it.opcache);
    let restarts = match opcache {
        Some(OpcacheState::On { restarts, .. }) => restarts,
        Some(OpcacheState::Off) | None => 0,
    };
    unnamed::Counts {
        samples,
        unstable,
        unnamed: i64::try_from(snapshot.samples.quality.unnamed).unwrap_or(i64::MAX),
        restarts,
    }
}

/// The counts of the comment.
fn counts(snapshot: &Snapshot, lost: &Lost, unstable: i64, untold: Untold) -> SampleCounts {
    let quality = snapshot.samples.quality;
    SampleCounts {
        due: quality.due,
        taken: quality.taken,
        late: quality.late,
        quiescent: quality.quiescent,
        unstable,
        denied: quality.denied,
        idle: quality.idle,
        open: quality.open,
        cpu_unattributed_milliseconds: milliseconds(snapshot.facts.cpu_unattributed),
        cpu_wait_milliseconds: milliseconds(snapshot.facts.cpu_waited),
        cpu_unproven: snapshot.facts.cpu_proofs.changed,
        cpu_uncounted: snapshot.facts.cpu_proofs.uncounted,
        without_worker: untold.without_worker,
        without_labels: untold.without_labels,
        truncated: untold.truncated,
        unnamed: quality.unnamed,
        unchecked_names: quality.unchecked_names,
        without_name: lost.names,
        without_path: lost.paths,
        without_stack: lost.stacks,
        folded: quality.folded,
        stopped: i64::try_from(quality.stopped).unwrap_or(i64::MAX),
        not_running: snapshot.facts.not_running,
    }
}

fn comment<'a>(
    snapshot: &'a Snapshot,
    lost: &Lost,
    unstable: i64,
    untold: Untold,
    of_sampler: OfSampler,
) -> Comment<'a> {
    Comment {
        phpprof: env!("CARGO_PKG_VERSION"),
        contract: of_sampler.contract,
        php: PhpBuild::of(&snapshot.facts),
        workers: snapshot.facts.busy.workers(),
        workers_not_sampled: snapshot.facts.without_room,
        workers_without_sample: 0,
        missed: snapshot.facts.missed.map(|missed| MissedCounts {
            processes: missed.processes,
            cpu_milliseconds: milliseconds(missed.reaped),
        }),
        throttled: snapshot.facts.throttled.map(|throttled| ThrottledTime {
            periods: throttled.periods,
            milliseconds: milliseconds(throttled.time),
        }),
        busy_percents: snapshot.facts.busy.busiest(MAX_BUSY_PERCENTS),
        asked: AskedData::of(&snapshot.facts.asked),
        samples: lost.samples,
        quality: counts(snapshot, lost, unstable, untold),
        duration_seconds: snapshot.facts.took.as_secs_f64().round() as u64,
        samples_per_second: per_second(snapshot.facts.asked_period).round() as u64,
        effective_samples_per_second: one_decimal(per_second(snapshot.facts.effective_period)),
        seed: snapshot.facts.seed,
        sampler_cpu_milliseconds: of_sampler.cpu_milliseconds,
        workers_gave_way_milliseconds: milliseconds(snapshot.facts.gave_way),
        sampler_peak_bytes: of_sampler.peak_bytes,
        requests: (snapshot.facts.requests.as_ref())
            .map(|told| RequestFates::of(told, snapshot.list_stored)),
        heap: snapshot
            .facts
            .heap
            .map(|told| HeapData::of(snapshot, &told)),
        fibers: snapshot.facts.fibers.map(FiberCounts::from),
        in_heap: None,
    }
}

/// The frequency for a period.
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
mod tests;
