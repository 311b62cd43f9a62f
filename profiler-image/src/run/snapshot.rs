//! A copy of everything sampled so far, from which a profile is built; the run may go on.
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
use super::requests::Told;
use crate::sample::{Quality, Sampler};
use crate::stack::names::NameList;
use crate::target::process::calls::Calls;

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The time was over.
    Done,
    /// SIGTERM, SIGINT, SIGHUP, or a request that was cancelled: what was sampled is kept.
    Stopped,
    /// All workers went away before the time was over.
    WorkersGone,
}

/// What a sample's labels say of its worker.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its process.
    pub pid: i32,
    /// Its version and SAPI.
    pub engine: Arc<Engine>,
}

/// What a profile is made of.
#[derive(Debug)]
pub struct Snapshot {
    /// What was sampled.
    pub samples: Samples,
    /// What is told of requests, where that was asked for.
    pub requests: Option<Told>,
    /// What is told of heaps, where that was asked for.
    pub heap: Option<HeapTold>,
    /// That of the worker that was found first.
    pub engine: Arc<Engine>,
    /// The JIT had compiled code for a worker.
    pub jit: bool,
    /// The extensions of a worker, where they could be read.
    pub extensions: Option<Extensions>,
    /// The workers, by the number that their samples were summed under.
    pub seen: HashMap<i32, Seen>,
    /// For each worker that was busy at least once: the share of its turns in which it was, in percent.
    pub busy_percents: Vec<u8>,
    /// Unix time of the first turn.
    pub began_unix_nanoseconds: i64,
    /// How long the run has taken.
    pub took: Duration,
    /// Between two samples of a worker, as it was asked for.
    pub asked_period: Duration,
    /// The same as it was kept on average.
    pub effective_period: Duration,
    /// CPU time of workers that no running sample could be given.
    pub cpu_unattributed: Duration,
    /// Samples that were left out, because the worker slept; `None` where all are kept.
    pub not_running: Option<u64>,
    /// Whether the list of requests is stored, where one is wanted.
    pub list_stored: Option<bool>,
}

/// The stacks, and what their lines are.
#[derive(Debug)]
pub struct Samples {
    /// The stacks with their sums.
    pub settled: Settled,
    /// What their lines are called.
    pub names: NameList,
    /// What happened to the samples.
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
            requests: self.requests.clone(),
            heap: self.heap,
            engine: Arc::clone(&self.engine),
            jit: self.jit,
            extensions: self.extensions,
            seen: self.seen.clone(),
            busy_percents: self.busy_percents.clone(),
            began_unix_nanoseconds: self.began_unix_nanoseconds,
            took: self.took,
            asked_period: self.asked_period,
            effective_period: self.effective_period,
            cpu_unattributed: self.cpu_unattributed,
            not_running: self.not_running,
            list_stored: None,
        }
    }
}

/// Keeps what was sampled so far while a run goes on.
pub trait Keep: fmt::Debug + Send + Sync {
    /// Keeps a snapshot where one is due after so much time.
    fn keep(&self, sampled: Duration, snapshot: &mut dyn FnMut() -> Snapshot);

    /// Whether a profile was being made since this was asked last: work that is no part of sampling.
    fn have_worked(&self) -> bool;

    /// Whether what a snapshot has shall be in no later one.
    fn gives_once(&self) -> bool {
        false
    }

    /// Sees what was counted so far, about ten times a second: `make bench` tells the first seconds from the rest by it.
    fn observe(&self, _sampled: Duration, _counted: &Counted) {}
}

/// What a run has counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    /// What happened to the samples.
    pub quality: Quality,
    /// Calls of turns that found a worker between two requests.
    pub idle: Calls,
    /// Workers that are there now.
    pub workers: usize,
    /// Samples that are kept.
    pub samples: u64,
}
