//! A copy of everything sampled so far, from which a profile is built while the run continues.
//!
//! Taking one takes as long as there are distinct stacks; names are shared.

use std::fmt;
use std::time::Duration;

use super::aggregate::{Aggregate, Settled};
use super::facts::RunFacts;
use crate::sample::{SampleQuality, StackSampler};
use crate::stack::names::NameList;
use crate::target::process::calls::SystemCallCounts;

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
    /// All but the samples.
    pub facts: RunFacts,
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
