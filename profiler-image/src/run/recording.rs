//! The options of a run, and its result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nix::sched::CpuSet;
use phpprof_zend::engine::Engine;
use phpprof_zend::extensions::Extensions;

use super::aggregate::Aggregate;
use super::heap::HeapTold;
use super::lateness::Lateness;
use super::recorder::Recorder;
use super::requests::Told;
use super::snapshot::{Ended, Keep, Seen};
use super::stop::Stop;
use crate::request::asked::Asked;
use crate::sample::Sampler;
use crate::target::Scope;
use crate::target::diagnosis::Refused;
use crate::target::process::calls::Calls;

/// What to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose PHP.
    pub scope: Scope,
    /// Of each worker.
    pub samples_per_second: u32,
    /// From the first turn on.
    pub duration: Duration,
    /// Ends the run after so many samples, however long it has taken.
    pub max_samples: Option<u64>,
    /// Takes samples one after the other instead of on time.
    pub unpaced: bool,
    /// Keeps the time between requests, as `[idle]`.
    pub include_idle: bool,
    /// Leaves out the samples of workers that slept.
    pub only_running: bool,
    /// Tells what the workers' heaps do.
    pub heap: bool,
    /// The target is a program that was started for this run: it is waited for as long as it takes, and signals are left to whoever
    /// has started it.
    pub of_program: bool,
    /// Share of one core that the sampler may use, in percent; nothing holds it without one.
    pub cpu_budget_percent: Option<u32>,
    /// CPUs that the quiescent reader is held to; all that the kernel allows by default.
    pub quiescent_cpus: Option<CpuSet>,
    /// Ends the run from outside, as a signal does.
    pub stop: Stop,
    /// Keeps what was sampled so far while the run goes on.
    pub checkpoints: Option<Arc<dyn Keep>>,
    /// What is told of requests, and which are kept.
    pub requests: Asked,
}

/// A run's result.
#[derive(Debug)]
pub struct Recording {
    /// What is known of functions, call paths and edges.
    pub sampler: Sampler,
    /// All samples.
    pub aggregate: Aggregate,
    /// What is told of requests, where that was asked for.
    pub requests: Option<Told>,
    /// What is told of heaps, where that was asked for.
    pub heap: Option<HeapTold>,
    /// What ran when, where routes are told.
    pub recorder: Option<Recorder>,
    /// That of the worker that was found first.
    pub engine: Arc<Engine>,
    /// The JIT had compiled code for a worker.
    pub jit: bool,
    /// The extensions of a worker, as they were last seen.
    pub extensions: Option<Extensions>,
    /// The workers of the run, by the number that their samples were summed under ([`crate::target::process::Process::tid`]).
    pub seen: HashMap<i32, Seen>,
    /// For each worker that was busy at least once: the share of its turns in which it was, in percent.
    pub busy_percents: Vec<u8>,
    /// Why the run ended.
    pub ended: Ended,
    /// Unix time of the first turn, and how long the run took.
    pub began_unix_nanoseconds: i64,
    /// How long the run took.
    pub took: Duration,
    /// Between two samples of a worker: as it was asked for, and as it was kept.
    pub asked_period: Duration,
    /// Between two samples of a worker, as it was kept.
    pub effective_period: Duration,
    /// CPU time of workers that no running sample could be given.
    pub cpu_unattributed: Duration,
    /// Samples that were left out, because the worker slept; `None` where all are kept.
    pub not_running: Option<u64>,
    /// Calls of the kernel that looked at targets, from the first turn to the last.
    pub calls: Calls,
    /// Those of turns that found a worker between two requests.
    pub idle_calls: Calls,
    /// How late the turns were.
    pub lateness: Lateness,
}

/// Why nothing could be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// With the most telling reason why a process was not taken.
    #[error("no PHP was found")]
    NoPhp(Option<Refused>),
    /// By a signal, or because nobody wants it.
    #[error("stopped before the first sample")]
    Stopped,
    /// Clocks, signals or CPU sets.
    #[error("the kernel refused a call that the sampler needs")]
    Kernel(#[from] nix::Error),
    /// The kernel gives no thread for it.
    #[error("starting the quiescent reader failed")]
    QuiescentReader(#[from] std::io::Error),
    /// The kernel gives no thread for it.
    #[error("starting the scanner failed")]
    Scanner(#[source] std::io::Error),
}
