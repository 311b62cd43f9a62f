//! A worker as a thread: its samples in the order of time, and its markers.
//!
//! Invariant: times do not decrease, and each value of the worker is in one sample.

use std::collections::HashMap;

use serde::Serialize;

use super::columns::{SampleColumns, SharedColumns};
use super::markers::MarkerColumns;
use super::milliseconds;
use super::tables::SharedTables;
use super::workers::{FoundWorkers, WorkerId, WorkerRun};
use crate::proto::Profile;
use crate::stacks::StackStep;
use crate::timeline::Timeline;

/// A thread, as the format has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FirefoxThread {
    process_type: &'static str,
    process_name: String,
    process_startup_time: u8,
    process_shutdown_time: Option<f64>,
    register_time: u8,
    unregister_time: Option<f64>,
    paused_ranges: [u8; 0],
    show_markers_in_timeline: bool,
    name: String,
    is_main_thread: bool,
    pid: String,
    tid: String,
    samples: SampleColumns,
    markers: MarkerColumns,
    /// Nanoseconds since the run began.
    #[serde(skip)]
    pub end: i64,
    /// The time of its samples; the longest threads are visible at first.
    #[serde(skip)]
    pub length: i64,
}

/// What the weights of samples are.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleUnit {
    /// The index of the chosen sample type.
    chosen: usize,
    weight_type: &'static str,
    /// What one of its values is in the unit of `weight_type`.
    scale: f64,
    /// Nanoseconds of one of its values; `None` if it is not a time.
    nanoseconds: Option<i64>,
    wall: Option<usize>,
    cpu: Option<usize>,
    /// Nanoseconds from sample to sample, for values that are not times.
    period: i64,
}

impl SampleUnit {
    pub fn of(profile: &Profile, chosen: usize) -> Self {
        let unit = profile.sample_types().nth(chosen).map(|(_, unit)| unit);
        let nanoseconds = match unit {
            Some("nanoseconds") => Some(1),
            Some("microseconds") => Some(1_000),
            Some("milliseconds") => Some(1_000_000),
            Some("seconds") => Some(1_000_000_000),
            _ => None,
        };
        SampleUnit {
            chosen,
            weight_type: match (nanoseconds, unit) {
                (Some(_), _) => "tracing-ms",
                (None, Some("bytes")) => "bytes",
                (None, _) => "samples",
            },
            scale: nanoseconds.map_or(1.0, milliseconds),
            nanoseconds,
            wall: of_nanoseconds(profile, "wall"),
            cpu: of_nanoseconds(profile, "cpu"),
            period: interval(profile),
        }
    }

    fn weight(&self, values: &[i64]) -> f64 {
        let value = values.get(self.chosen).copied().unwrap_or(0);
        match self.nanoseconds {
            // A division gives the number with the fewest digits, so that sums can be exact.
            Some(1) => milliseconds(value),
            _ => value as f64 * self.scale,
        }
    }

    /// How long a sample without times is shown.
    fn length(&self, values: &[i64]) -> i64 {
        let value = |index: usize| values.get(index).copied().unwrap_or(0);
        let chosen = self
            .nanoseconds
            .map(|scale| value(self.chosen).saturating_mul(scale));
        let lengths = self.wall.map(value).into_iter().chain(chosen);
        let known = lengths.filter(|length| *length > 0);
        known.take(1).next().unwrap_or(self.period)
    }
}

fn of_nanoseconds(profile: &Profile, wanted: &str) -> Option<usize> {
    let mut types = profile.sample_types();
    types.position(|(name, unit)| name == wanted && unit == "nanoseconds")
}

/// Nanoseconds from sample to sample; a millisecond if the profile does not say it.
pub(super) fn interval(profile: &Profile) -> i64 {
    let unit = profile.period_type.map(|kind| profile.string(kind.unit));
    match unit {
        Some("nanoseconds") if profile.period > 0 => profile.period,
        _ => 1_000_000,
    }
}

/// Writes one thread after the other.
pub(super) struct ThreadWriter<'a> {
    tables: SharedTables<'a>,
    stacks: &'a [Vec<StackStep>],
    /// The numbers of stacks in the file, by what their leaves wait for.
    known: HashMap<(usize, Option<&'a str>), usize>,
    unit: SampleUnit,
    timeline: Option<&'a Timeline>,
    title: &'a str,
    /// Where samples without times begin.
    run_end: i64,
}

impl<'a> ThreadWriter<'a> {
    pub fn new(
        found: &'a FoundWorkers<'a>,
        unit: SampleUnit,
        timeline: Option<&'a Timeline>,
        title: &'a str,
    ) -> Self {
        let timed = found.runs.iter().flat_map(|run| &run.timed);
        let ends = timed.map(|timed| timed.end);
        let duration = timeline.map(|timeline| timeline.duration_nanoseconds);
        ThreadWriter {
            tables: SharedTables::new(&found.functions),
            stacks: &found.stacks,
            known: HashMap::new(),
            unit,
            timeline,
            title,
            run_end: ends.chain(duration).max().unwrap_or(0).max(0),
        }
    }

    pub fn finish(self) -> SharedColumns {
        self.tables.finish()
    }

    /// The number of a stack in the file.
    fn stack(&mut self, stack: usize, waits: Option<&'a str>) -> usize {
        if let Some(known) = self.known.get(&(stack, waits)) {
            return *known;
        }
        let steps = self.stacks.get(stack).map(Vec::as_slice);
        let number = self.tables.stack(steps.unwrap_or_default(), waits);
        self.known.insert((stack, waits), number);
        number
    }

    pub fn thread(&mut self, run: &WorkerRun<'a>) -> FirefoxThread {
        let mut track = SampleTrack::new(self.unit);
        for timed in &run.timed {
            let stack = self.stack(timed.stack, timed.waits);
            track.add(timed.begin, timed.end, stack, &timed.values);
        }
        let mut markers = MarkerColumns::default();
        if let Some(timeline) = self.timeline {
            for request in &run.requests {
                markers.add_request(&mut self.tables, timeline, request);
            }
        }
        let mut at = self.run_end;
        for (stack, waits, values) in others(run) {
            let end = at.saturating_add(self.unit.length(values));
            let stack = self.stack(stack, waits);
            track.add(at, end, stack, values);
            at = end;
        }
        if at > self.run_end {
            markers.add_untimed(&mut self.tables, self.run_end, at);
        }
        let WorkerId { pod, pid, thread } = &run.id;
        let tid = match (pid, thread) {
            (0, _) => "all".to_owned(),
            (pid, 0) => pid.to_string(),
            (pid, thread) => format!("{pid}/{thread}"),
        };
        let length = track.length;
        let samples = track.finish();
        FirefoxThread {
            process_type: "default",
            process_name: if pod.is_empty() { self.title } else { pod }.to_owned(),
            process_startup_time: 0,
            process_shutdown_time: None,
            register_time: 0,
            unregister_time: None,
            paused_ranges: [],
            show_markers_in_timeline: true,
            name: match pid {
                0 => "workers".to_owned(),
                _ => format!("worker {tid}"),
            },
            is_main_thread: false,
            // The workers of a pod, or of the host, are tracks of one process.
            pid: if pod.is_empty() { "PHP" } else { pod }.to_owned(),
            tid,
            samples,
            markers,
            end: at,
            length,
        }
    }
}

/// The samples without times, in the order of their stacks.
fn others<'r, 'a>(
    run: &'r WorkerRun<'a>,
) -> impl Iterator<Item = (usize, Option<&'a str>, &'r [i64])> {
    let stacks = run.untimed.iter();
    stacks.flat_map(|(stack, by_wait)| {
        let by_wait = by_wait.iter();
        by_wait.map(|(waits, values)| (*stack, *waits, values.as_slice()))
    })
}

/// The samples of a thread while they grow. Each lasts until the next one.
struct SampleTrack {
    unit: SampleUnit,
    columns: SampleColumns,
    /// The end of the last sample, and its CPU time.
    end: Option<i64>,
    cpu: i64,
    length: i64,
}

impl SampleTrack {
    fn new(unit: SampleUnit) -> Self {
        SampleTrack {
            unit,
            columns: SampleColumns {
                weight_type: unit.weight_type,
                cpu: unit.cpu.map(|_| Vec::new()),
                ..SampleColumns::default()
            },
            end: None,
            cpu: 0,
            length: 0,
        }
    }

    fn add(&mut self, begin: i64, end: i64, stack: usize, values: &[i64]) {
        if let Some(last) = self.end.filter(|last| *last < begin) {
            self.push(last, None, 0.0);
        }
        // Requests of one worker do not overlap, but a list of them could.
        let begin = begin.max(self.end.unwrap_or(begin));
        self.push(begin, Some(stack), self.unit.weight(values));
        let cpu = self.unit.cpu.and_then(|cpu| values.get(cpu));
        self.cpu = cpu.copied().unwrap_or(0);
        self.end = Some(begin.max(end));
        self.length = self.length.saturating_add(end.saturating_sub(begin));
    }

    fn push(&mut self, at: i64, stack: Option<usize>, weight: f64) {
        self.columns.length += 1;
        self.columns.time.push(milliseconds(at));
        self.columns.stack.push(stack);
        self.columns.weight.push(weight);
        let cpu = std::mem::take(&mut self.cpu);
        if let Some(column) = &mut self.columns.cpu {
            column.push(cpu);
        }
    }

    fn finish(mut self) -> SampleColumns {
        if let Some(end) = self.end {
            self.push(end, None, 0.0);
        }
        self.columns
    }
}
