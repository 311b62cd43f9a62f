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
use super::requests::RequestReport;
use super::seen::Busy;
use super::seen::WorkerLabels;
use super::snapshot::{Keep, RunEnd};
use super::stop::StopSwitch;
use crate::read::on_cpu::CpuProofs;
use crate::request::asked::RequestSettings;
use crate::sample::StackSampler;
use crate::target::Scope;
use crate::target::diagnosis::Refused;
use crate::target::discovery::Missed;
use crate::target::process::calls::SystemCallCounts;
use crate::target::process::throttle::ThrottleCounts;

/// What to record.
#[derive(Debug, Clone)]
pub struct RecordingOptions {
    /// The processes to sample.
    pub scope: Scope,
    /// The rate for each worker.
    pub samples_per_second: u32,
    /// The duration, from the first turn on.
    pub duration: Duration,
    /// Ends the run after this many samples, however long it has taken.
    pub max_samples: Option<u64>,
    /// Takes samples without a pause instead of on schedule.
    pub unpaced: bool,
    /// Keeps the time between requests, as `[idle]`.
    pub include_idle: bool,
    /// Leaves out the samples of workers that slept.
    pub only_running: bool,
    /// Records the changes of the workers' heaps.
    pub heap: bool,
    /// The target is a program that was started for this run: the run waits for it as long as it
    /// takes, and leaves signals to the code that started it.
    pub of_program: bool,
    /// The percentage of one core that the sampler may use; without it there is no limit.
    pub cpu_budget_percent: Option<u32>,
    /// The CPUs that the quiescent reader may use; by default all that the kernel allows.
    pub quiescent_cpus: Option<CpuSet>,
    /// Ends the run from outside, like a signal.
    pub stop: StopSwitch,
    /// Keeps the samples so far while the run goes on.
    pub checkpoints: Option<Arc<dyn Keep>>,
    /// The requested labels of requests, and the filter.
    pub requests: RequestSettings,
}

/// A run's result.
#[derive(Debug)]
pub struct Recording {
    /// The known functions, call paths and edges.
    pub sampler: StackSampler,
    /// All samples.
    pub aggregate: Aggregate,
    /// The data about requests, if it was requested.
    pub requests: Option<RequestReport>,
    /// The data about heaps, if it was requested.
    pub heap: Option<HeapTold>,
    /// What ran when, if the label Route was requested.
    pub recorder: Option<Recorder>,
    /// The engine of the worker that was found first.
    pub engine: Arc<Engine>,
    /// The JIT had compiled code for a worker.
    pub jit: bool,
    /// The extensions of a worker, when they were last read.
    pub extensions: Option<Extensions>,
    /// The workers of the run, by the number that their samples were summed under
    /// ([`crate::target::process::Process::tid`]).
    pub seen: HashMap<i32, WorkerLabels>,
    /// How busy the workers were that were busy at least once.
    pub busy: Busy,
    /// Why the run ended.
    pub ended: RunEnd,
    /// The Unix time of the first turn.
    pub began_unix_nanoseconds: i64,
    /// How long the run took.
    pub took: Duration,
    /// The requested time between two samples of a worker.
    pub asked_period: Duration,
    /// The average time between two samples of a worker, of the turns that were taken.
    pub effective_period: Duration,
    /// What the due times were drawn with ([`super::schedule`]).
    pub seed: u32,
    /// CPU time that is in no sample: workers used it between requests, or no sample saw them
    /// running.
    pub cpu_unattributed: Duration,
    /// How long workers waited for a CPU.
    pub cpu_waited: Duration,
    /// How long they waited for the sampler, which had theirs to read them; not part of the above.
    pub gave_way: Duration,
    /// What the CPU limit of the first worker's control group has cost; `None` if that could not be
    /// read.
    pub throttled: Option<ThrottleCounts>,
    /// How often it was not proven whether a worker was on a CPU.
    pub cpu_proofs: CpuProofs,
    /// Samples that were left out because the worker slept; `None` if all are kept.
    pub not_running: Option<u64>,
    /// The most workers at one time that were not sampled, because the limit of open files had no
    /// room for them.
    pub without_room: usize,
    /// What came and went unseen; `None` if that could not be found out.
    pub missed: Option<Missed>,
    /// System calls that read targets, from the first turn to the last.
    pub calls: SystemCallCounts,
    /// Those of turns that found a worker between two requests.
    pub idle_calls: SystemCallCounts,
    /// How late the turns were.
    pub lateness: Lateness,
}

/// Why nothing could be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// With the best reason why a process was not sampled.
    #[error("no PHP was found")]
    NoPhp(Option<Refused>),
    /// By a signal, or because the profile is not wanted.
    #[error("stopped before the first sample")]
    Stopped,
    /// An error of clocks, signals or CPU sets.
    #[error("the kernel refused a call that the sampler needs")]
    Kernel(#[from] nix::Error),
    /// The kernel cannot start its thread.
    #[error("starting the quiescent reader failed")]
    QuiescentReader(#[from] std::io::Error),
    /// The kernel cannot start its thread.
    #[error("starting the scanner failed")]
    Scanner(#[source] std::io::Error),
}
