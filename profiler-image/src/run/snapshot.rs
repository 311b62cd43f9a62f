//! What was sampled until a moment, apart from the run, which may go on: all that a profile is made of.
//!
//! Taking one takes as long as there are distinct stacks; names are shared.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use phpprof_zend::engine::Engine;

use super::aggregate::{Aggregate, Settled};
use super::{Recording, Seen};
use crate::sample::{Quality, Sampler};
use crate::stack::names::NameList;
use crate::target::process::calls::Calls;

/// What a profile is made of.
#[derive(Debug)]
pub struct Snapshot {
    pub samples: Samples,
    pub engine: Arc<Engine>,
    pub jit: bool,
    pub seen: HashMap<i32, Seen>,
    pub busy_percents: Vec<u8>,
    pub began_unix_nanoseconds: i64,
    pub took: Duration,
    /// Between two samples of a worker, as it was asked for.
    pub asked_period: Duration,
    /// The same as it was kept on average.
    pub effective_period: Duration,
    /// CPU time of workers that no running sample could be given.
    pub cpu_unattributed: Duration,
}

/// The stacks, and what their lines are.
#[derive(Debug)]
pub struct Samples {
    pub settled: Settled,
    pub names: NameList,
    pub quality: Quality,
}

impl Samples {
    /// What a sampler has summed until now.
    #[must_use]
    pub fn of(sampler: &Sampler, aggregate: &Aggregate) -> Self {
        Self {
            settled: aggregate.settle(&sampler.tree, &sampler.edges),
            names: sampler.functions.names.list(),
            quality: sampler.quality,
        }
    }
}

impl Recording {
    /// All of it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            samples: Samples::of(&self.sampler, &self.aggregate),
            engine: Arc::clone(&self.engine),
            jit: self.jit,
            seen: self.seen.clone(),
            busy_percents: self.busy_percents.clone(),
            began_unix_nanoseconds: self.began_unix_nanoseconds,
            took: self.took,
            asked_period: self.asked_period,
            effective_period: self.effective_period,
            cpu_unattributed: self.cpu_unattributed,
        }
    }
}

/// Keeps what was sampled so far while a run goes on.
pub trait Keep: fmt::Debug + Send + Sync {
    /// Keeps a snapshot where one is due after so much time.
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> Snapshot);

    /// Whether a profile was being made since this was asked last: work that is no part of sampling.
    fn have_worked(&self) -> bool;

    /// Sees what was counted so far, about ten times a second: `make bench` tells the first seconds from the rest by it.
    fn observe(&self, _sampled: Duration, _counted: &Counted) {}
}

/// What a run has counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub quality: Quality,
    /// Calls of turns that found a worker between two requests.
    pub idle: Calls,
}
