//! Samples a target by the sampler's library.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::CpuSet;
use nix::time::ClockId;
use nix::unistd::Pid;
use phpprof::request::asked::RequestSettings;
use phpprof::run::aggregate::{Settlement, StackSum};
use phpprof::run::stop::StopSwitch;
use phpprof::run::{Recording, RecordingOptions, RunEnd};
use phpprof::target::Scope;

use crate::CPUS;

/// The leaf of a stack with an unproven part.
pub const UNSTABLE: &str = "[unstable]";

/// One stack of one worker.
pub struct WorkerStack {
    /// Names and lines, root first; the names are without the folders of scripts.
    pub lines: Vec<(String, u32)>,
    /// The worker's thread.
    pub tid: i32,
    pub sum: StackSum,
}

impl WorkerStack {
    pub fn names(&self) -> Vec<&str> {
        self.lines.iter().map(|(name, _)| name.as_str()).collect()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.lines.iter().any(|(other, _)| other == name)
    }
}

/// Options to sample a process at this rate for this long, without a budget. A `remote` quiescent
/// reader may not use the target's CPU.
pub fn options(
    pid: Pid,
    samples_per_second: u32,
    duration: Duration,
    remote: bool,
) -> Result<RecordingOptions> {
    let mut quiescent_cpus = CpuSet::new();
    for &cpu in &CPUS[..if remote { 1 } else { 2 }] {
        quiescent_cpus.set(cpu)?;
    }
    Ok(RecordingOptions {
        scope: Scope::Pids(vec![pid.as_raw()]),
        samples_per_second,
        duration,
        max_samples: None,
        unpaced: false,
        include_idle: false,
        only_running: false,
        heap: false,
        fibers: None,
        of_program: false,
        cpu_budget_percent: None,
        quiescent_cpus: Some(quiescent_cpus),
        stop: StopSwitch::default(),
        checkpoints: None,
        requests: RequestSettings::default(),
    })
}

/// Samples a target, which must not end meanwhile.
pub fn record(options: &RecordingOptions) -> Result<Recording> {
    let recording = phpprof::run::record(options).context("sampling the target")?;
    ensure!(
        recording.ended == RunEnd::Done,
        "the target has ended before it was stopped: {:?}",
        recording.ended
    );
    Ok(recording)
}

/// All stacks of a recording.
pub fn stacks(recording: &Recording) -> Vec<WorkerStack> {
    named(recording, short)
}

/// The same, with the folders of scripts in the names.
pub fn full_names(recording: &Recording) -> Vec<WorkerStack> {
    named(recording, str::to_owned)
}

fn named(recording: &Recording, name: impl Fn(&str) -> String) -> Vec<WorkerStack> {
    let samples = recording.snapshot().samples;
    let (stacks, _) = samples.settled.sum();
    // Closures by their place, whether the function around them was found or not.
    let name = |id| {
        let kept = samples.names.get(id);
        let (own, file) = (kept.name.to_string(), kept.file);
        let is_closure = own.starts_with("{closure:") && !own.starts_with("{closure:pfa:");
        let by_place = || format!("{{closure:{file}:{}}}", kept.start_line);
        name(&if is_closure { by_place() } else { own })
    };
    let mut lines = Vec::new();
    let stack = |settlement: &Settlement| {
        samples.settled.lines(settlement, &mut lines);
        WorkerStack {
            lines: lines.iter().map(|&(id, line)| (name(id), line)).collect(),
            tid: settlement.tid,
            sum: settlement.sum,
        }
    };
    stacks.iter().map(stack).collect()
}

/// When samples were taken, by the monotonic clock, which targets use for their times.
pub fn time(recording: &Recording) -> Result<Range<u64>> {
    let now = |clock: ClockId| -> Result<i64> {
        Ok(i64::try_from(Duration::from(clock.now()?).as_nanos())?)
    };
    let apart = now(ClockId::CLOCK_REALTIME)? - now(ClockId::CLOCK_MONOTONIC)?;
    let begin = u64::try_from(recording.facts.began_unix_nanoseconds - apart)?;
    Ok(begin..begin + u64::try_from(recording.facts.took.as_nanos())?)
}

/// A name without the folder of its script.
pub fn short(name: &str) -> String {
    match (name.split_once('/'), name.rsplit_once('/')) {
        (Some((head, _)), Some((_, tail))) => format!("{head}{tail}"),
        _ => name.to_owned(),
    }
}
