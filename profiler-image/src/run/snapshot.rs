//! A copy of everything sampled so far, from which a profile is built while the run continues.
//!
//! Taking one takes as long as there are distinct stacks; names are shared.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use phpprof_zend::engine::Engine;
use phpprof_zend::extensions::Extensions;

use super::Recording;
use super::aggregate::{Aggregate, Settled};
use super::heap::HeapTold;
use super::requests::RequestReport;
use super::seen::{Busy, WorkerLabels};
use crate::read::on_cpu::CpuProofs;
use crate::sample::{SampleQuality, StackSampler};
use crate::stack::names::NameList;
use crate::target::discovery::Missed;
use crate::target::process::calls::SystemCallCounts;
use crate::target::process::throttle::ThrottleCounts;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// The time was over.
    Done,
    /// SIGTERM, SIGINT, SIGHUP, or a request that was cancelled: the samples so far are kept.
    Stopped,
    /// All workers ended before the time was over.
    WorkersGone,
}

/// The data for a profile.
#[derive(Debug)]
pub struct Snapshot {
    /// The samples.
    pub samples: Samples,
    /// The data about requests, if it was requested.
    pub requests: Option<RequestReport>,
    /// The data about heaps, if it was requested.
    pub heap: Option<HeapTold>,
    /// The engine of the worker that was found first.
    pub engine: Arc<Engine>,
    /// The JIT had compiled code for a worker.
    pub jit: bool,
    /// The extensions of a worker, if they could be read.
    pub extensions: Option<Extensions>,
    /// The workers, by the number that their samples were summed under.
    pub seen: HashMap<i32, WorkerLabels>,
    /// How busy the workers were that were busy at least once.
    pub busy: Busy,
    /// Unix time of the first turn.
    pub began_unix_nanoseconds: i64,
    /// How long the run has taken.
    pub took: Duration,
    /// The requested time between two samples of a worker.
    pub asked_period: Duration,
    /// The average one, of the turns that were taken.
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
    /// Whether the list of requests is stored, if one was wanted.
    pub list_stored: Option<bool>,
}

/// The stacks, and the names of their lines.
#[derive(Debug)]
pub struct Samples {
    /// The stacks with their sums.
    pub settled: Settled,
    /// The names of their functions and files.
    pub names: NameList,
    /// What happened to the samples.
    pub quality: SampleQuality,
}

impl Samples {
    /// All samples of a sampler until now.
    #[must_use]
    pub fn of(sampler: &StackSampler, aggregate: &Aggregate) -> Self {
        Self {
            settled: aggregate.settle(&sampler.tree, &sampler.edges),
            names: sampler.functions.names.list(),
            quality: sampler.quality,
        }
    }
}

impl Recording {
    /// A snapshot of the whole run.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            samples: Samples::of(&self.sampler, &self.aggregate),
            requests: self.requests.clone(),
            heap: self.heap,
            engine: Arc::clone(&self.engine),
            jit: self.jit,
            extensions: self.extensions,
            seen: self.seen.clone(),
            busy: self.busy,
            began_unix_nanoseconds: self.began_unix_nanoseconds,
            took: self.took,
            asked_period: self.asked_period,
            effective_period: self.effective_period,
            seed: self.seed,
            cpu_unattributed: self.cpu_unattributed,
            cpu_waited: self.cpu_waited,
            gave_way: self.gave_way,
            throttled: self.throttled,
            cpu_proofs: self.cpu_proofs,
            not_running: self.not_running,
            without_room: self.without_room,
            missed: self.missed,
            list_stored: None,
        }
    }
}

/// Keeps the samples so far while a run continues.
pub trait Keep: fmt::Debug + Send + Sync {
    /// Keeps a snapshot if one is due after this time.
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> Snapshot);

    /// Whether a profile was built since the last call: its CPU time does not count as sampling.
    fn have_worked(&self) -> bool;

    /// Whether each sample is given in one snapshot only.
    fn gives_once(&self) -> bool {
        false
    }

    /// Receives the counts so far, about ten times a second. `make bench` uses it to separate the
    /// first seconds from the rest.
    fn observe(&self, _sampled: Duration, _counted: &RunCounts) {}
}

/// The counts of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunCounts {
    /// What happened to the samples.
    pub quality: SampleQuality,
    /// Calls of turns that found a worker between two requests.
    pub idle: SystemCallCounts,
    /// The current number of workers.
    pub workers: usize,
    /// The number of kept samples.
    pub samples: u64,
}
