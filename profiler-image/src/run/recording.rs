//! The options of a run, and its result.

use std::sync::Arc;
use std::time::Duration;

use nix::sched::CpuSet;

use super::aggregate::Aggregate;
use super::facts::RunFacts;
use super::fibers::FiberSchedule;
use super::lateness::Lateness;
use super::recorder::Recorder;
use super::snapshot::{Keep, RunEnd, Samples, Snapshot};
use super::stop::StopSwitch;
use crate::request::asked::RequestSettings;
use crate::sample::StackSampler;
use crate::target::Scope;
use crate::target::diagnosis::Refused;
use crate::target::process::calls::SystemCallCounts;

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
    /// When it visits the workers' suspended fibers, if at all.
    pub fibers: Option<FiberSchedule>,
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
    /// All but the samples.
    pub facts: RunFacts,
    /// The known functions, call paths and edges.
    pub sampler: StackSampler,
    /// All samples.
    pub aggregate: Aggregate,
    /// What ran when, if the label Route was requested.
    pub recorder: Option<Recorder>,
    /// Why the run ended.
    pub ended: RunEnd,
    /// System calls that read targets, from the first turn to the last.
    pub calls: SystemCallCounts,
    /// Those of turns that found a worker between two requests.
    pub idle_calls: SystemCallCounts,
    /// How late the turns were.
    pub lateness: Lateness,
}

impl Recording {
    /// A snapshot of the whole run.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            samples: Samples::of(&self.sampler, &self.aggregate),
            facts: self.facts.clone(),
            list_stored: None,
        }
    }
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
