//! One run of phpprof in a process of its own: its options come from the command line, and its
//! counts are printed as JSON.
//!
//! Invariant: everything that is printed was counted, by the sampler, its allocator or the kernel;
//! nothing is estimated.

use std::alloc::System;
use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use phpprof::run::snapshot::{Keep, RunCounts, Snapshot};
use phpprof::run::stop::StopSwitch;
use phpprof::run::{Recording, RecordingOptions, record};
use phpprof::target::Scope;
use phpprof::target::process::calls::SystemCallCounts;
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What to record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordOptions {
    pub pids: Vec<i32>,
    pub samples_per_second: u32,
    pub seconds: u64,
    /// The counts after this many seconds are printed separately.
    pub steady_after_seconds: u64,
    /// Reads `/proc/PID/mem`, as if seccomp refused the call.
    pub mem: bool,
    /// Prints the stacks, too.
    pub stacks: bool,
}

/// The counts of a part of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PartCounts {
    pub seconds: f64,
    pub due: u64,
    pub taken: u64,
    pub idle: u64,
    pub gathers: u64,
    pub memory_reads: u64,
    pub vectors: u64,
    pub bytes: u64,
    pub opens: u64,
    pub file_reads: u64,
    pub clock_reads: u64,
    /// Gathers and other calls of idle turns, which the counts above include.
    pub idle_gathers: u64,
    pub idle_calls: u64,
    pub idle_vectors: u64,
    pub idle_bytes: u64,
    pub allocations: u64,
    /// Calls of `read` and `pread`, counted by the kernel, of any file.
    pub reads: u64,
    /// Sleeps that ended, counted by the kernel.
    pub wake_ups: u64,
    /// Processes and threads that have started on this machine, whoever started them: a sampler
    /// looks at each process once, because it may be a worker's child.
    #[serde(default)]
    pub started: u64,
    pub cpu_nanoseconds: u64,
}

/// The output of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOutput {
    pub whole: PartCounts,
    /// Absent if the run ended before.
    pub steady: Option<PartCounts>,
    /// All system calls of the process, with its start and end, as strace sees them.
    pub process_memory_reads: u64,
    pub process_opens: u64,
    pub process_reads: u64,
    pub process_clock_reads: u64,
    pub lateness_p50_us: f64,
    pub lateness_p99_us: f64,
    pub unstable: u64,
    /// Samples a second at the end: fewer than requested if the sampler reduced its rate.
    pub effective_rate: f64,
    /// Samples by stack, root first.
    pub stacks: Vec<(Vec<String>, u64)>,
}

/// Records, and prints the counts.
pub fn run(asked: &str) -> Result<()> {
    let asked: RecordOptions = serde_json::from_str(asked).context("what to record is JSON")?;
    if asked.mem {
        phpprof_bench::refused::refuse_process_vm_readv()?;
    }
    let watch = Arc::new(CountsWatch::new(asked.steady_after_seconds));
    let begin = CountsAt::now();
    let recording = record(&options(&asked, &watch))?;
    let whole = CountsAt::now().since(&begin, &counted(&recording), recording.facts.took);
    let said = said(&asked, &recording, whole, &watch);
    println!("{}", serde_json::to_string(&said)?);
    Ok(())
}

fn options(asked: &RecordOptions, watch: &Arc<CountsWatch>) -> RecordingOptions {
    RecordingOptions {
        scope: Scope::Pids(asked.pids.clone()),
        samples_per_second: asked.samples_per_second,
        duration: Duration::from_secs(asked.seconds),
        max_samples: None,
        unpaced: false,
        include_idle: false,
        only_running: false,
        // The limits on calls apply with it, too.
        heap: std::env::var("BENCH").is_ok_and(|form| form == "smoke"),
        of_program: false,
        // The cost of a sample has to be visible, and not be hidden by a lower rate.
        cpu_budget_percent: None,
        quiescent_cpus: None,
        stop: StopSwitch::default(),
        requests: phpprof::request::asked::RequestSettings::default(),
        fibers: None,
        checkpoints: Some(Arc::clone(watch) as Arc<dyn Keep>),
    }
}

/// The counts outside of the run, at a moment.
#[derive(Debug, Clone, Copy)]
struct CountsAt {
    calls: SystemCallCounts,
    allocations: u64,
    reads: u64,
    wake_ups: u64,
    started: u64,
    cpu_nanoseconds: u64,
}

impl CountsAt {
    fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF);
        Self {
            calls: SystemCallCounts::now(),
            allocations: ALLOCATOR.stats().allocations as u64
                + ALLOCATOR.stats().reallocations as u64,
            reads: own_reads(),
            started: started(),
            wake_ups: usage.map_or(0, |usage| {
                u64::try_from(usage.voluntary_context_switches()).unwrap_or(0)
            }),
            cpu_nanoseconds: phpprof::run::own_cpu(),
        }
    }

    /// The counts from an earlier moment to this one, with those of the run itself in between.
    fn since(&self, begin: &Self, counted: &RunCounts, took: Duration) -> PartCounts {
        let calls = self.calls.since(begin.calls);
        let idle = counted.idle;
        PartCounts {
            seconds: took.as_secs_f64(),
            due: counted.quality.due,
            taken: counted.quality.taken,
            idle: counted.quality.idle,
            gathers: calls.gathers,
            memory_reads: calls.memory_reads,
            vectors: calls.vectors,
            bytes: calls.bytes,
            opens: calls.opens,
            file_reads: calls.file_reads,
            clock_reads: calls.clock_reads,
            idle_gathers: idle.gathers,
            idle_calls: idle.memory_reads + idle.opens + idle.file_reads + idle.clock_reads,
            idle_vectors: idle.vectors,
            idle_bytes: idle.bytes,
            allocations: self.allocations - begin.allocations,
            reads: self.reads - begin.reads,
            wake_ups: self.wake_ups - begin.wake_ups,
            started: self.started - begin.started,
            cpu_nanoseconds: self.cpu_nanoseconds - begin.cpu_nanoseconds,
        }
    }
}

/// The kernel's count of `read` and `pread`, without `process_vm_readv`.
fn own_reads() -> u64 {
    count_in::<512>("/proc/self/io", "syscr: ")
}

/// The kernel's count of processes and threads that have started. It is below a line for all
/// interrupts.
fn started() -> u64 {
    count_in::<16_384>("/proc/stat", "processes ")
}

/// The number after a word at the beginning of a line; 0 if there is none. It makes no allocation,
/// which would count as the sampler's.
fn count_in<const BYTES: usize>(path: &str, word: &str) -> u64 {
    let mut bytes = [0_u8; BYTES];
    let length = File::open(path).and_then(|mut file| file.read(&mut bytes));
    let text = length
        .ok()
        .and_then(|length| std::str::from_utf8(&bytes[..length]).ok());
    let mut lines = text.unwrap_or_default().lines();
    let count = lines.find_map(|line| line.strip_prefix(word)?.parse().ok());
    count.unwrap_or(0)
}

/// How often the end of the steady part is noted. It takes about 50 microseconds, which count as
/// the sampler's.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps the counts at the beginning of the steady part, and at its end, in the last second: the
/// work of the sampler after the duration is not part of it.
#[derive(Debug)]
struct CountsWatch {
    after: Duration,
    steady: Mutex<Option<[(CountsAt, RunCounts, Duration); 2]>>,
}

impl CountsWatch {
    fn new(after_seconds: u64) -> Self {
        Self {
            after: Duration::from_secs(after_seconds),
            steady: Mutex::new(None),
        }
    }

    fn counts(&self) -> Option<PartCounts> {
        let steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let [(begin, before, began), (end, counted, ended)] = (*steady)?;
        let mut between = counted;
        between.quality.due -= before.quality.due;
        between.quality.taken -= before.quality.taken;
        between.quality.idle -= before.quality.idle;
        between.idle = between.idle.since(before.idle);
        (ended > began).then(|| end.since(&begin, &between, ended - began))
    }
}

impl Keep for CountsWatch {
    fn keep(&self, _: Duration, _: &mut dyn FnMut() -> Snapshot) {}

    fn have_worked(&self) -> bool {
        false
    }

    fn observe(&self, sampled: Duration, counted: &RunCounts) {
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let next = steady.map_or(self.after, |[_, (_, _, last)]| last + EVERY);
        if sampled < next {
            return;
        }
        let now = (CountsAt::now(), *counted, sampled);
        let begin = steady.map_or(now, |[begin, _]| begin);
        *steady = Some([begin, now]);
    }
}

fn counted(recording: &Recording) -> RunCounts {
    RunCounts {
        quality: recording.sampler.quality,
        idle: recording.idle_calls,
        ..RunCounts::default()
    }
}

fn said(
    asked: &RecordOptions,
    recording: &Recording,
    whole: PartCounts,
    watch: &CountsWatch,
) -> RunOutput {
    let samples = recording.snapshot().samples;
    let (stacks, unstable) = samples.settled.sum();
    let stacks = stacks.iter().filter(|_| asked.stacks);
    let mut lines = Vec::new();
    let stacks = stacks.map(|stack| {
        samples.settled.lines(stack, &mut lines);
        let name = |id| samples.names.get(id).name.to_string();
        let names = lines.iter().map(|&(id, _)| name(id)).collect();
        (names, u64::try_from(stack.sum.samples).unwrap_or(0))
    });
    let microseconds = |share| recording.lateness.percentile(share) as f64 / 1000.0;
    let calls = SystemCallCounts::now();
    RunOutput {
        whole,
        steady: watch.counts(),
        process_memory_reads: calls.memory_reads,
        process_opens: calls.opens,
        process_reads: own_reads(),
        process_clock_reads: calls.clock_reads,
        lateness_p50_us: microseconds(0.5),
        lateness_p99_us: microseconds(0.99),
        unstable: u64::try_from(unstable).unwrap_or(0),
        effective_rate: 1.0 / recording.facts.effective_period.as_secs_f64(),
        stacks: stacks.collect(),
    }
}
