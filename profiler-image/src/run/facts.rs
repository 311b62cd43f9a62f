//! What is known of a run, at a checkpoint and at its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use phpprof_zend::engine::Engine;
use phpprof_zend::extensions::Extensions;

use super::fibers::FibersTold;
use super::heap::HeapTold;
use super::requests::RequestReport;
use super::seen::{Busy, WorkerLabels};
use crate::read::on_cpu::CpuProofs;
use crate::request::asked::{RequestFilter, SampleLabels};
use crate::target::discovery::Missed;
use crate::target::process::throttle::ThrottleCounts;

/// What a run was asked for: what is read of requests, and which samples are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunAsked {
    /// The labels of requests.
    pub labels: SampleLabels,
    /// The requests whose samples are kept.
    pub filter: RequestFilter,
    /// The time between requests is kept, too.
    pub include_idle: bool,
    /// Samples of workers that slept are left out.
    pub only_running: bool,
}

/// All but the samples themselves.
#[derive(Debug, Clone)]
pub struct RunFacts {
    /// What it was asked for.
    pub asked: RunAsked,
    /// The data about requests, if it was requested.
    pub requests: Option<RequestReport>,
    /// The data about heaps, if it was requested.
    pub heap: Option<HeapTold>,
    /// The data about suspended fibers, if it was requested.
    pub fibers: Option<FibersTold>,
    /// The engine of the worker that was found first.
    pub engine: Arc<Engine>,
    /// The JIT had compiled code for a worker.
    pub jit: bool,
    /// The extensions of a worker, when they were last read.
    pub extensions: Option<Extensions>,
    /// The names of the functions that handle PHP's errors, as in stacks, as far as they were seen,
    /// those that were seen most often first.
    pub error_handlers: Vec<String>,
    /// The workers of the run, by the number that their samples were summed under
    /// ([`crate::target::process::Process::tid`]).
    pub seen: HashMap<i32, WorkerLabels>,
    /// How busy the workers were that were busy at least once.
    pub busy: Busy,
    /// The Unix time of the first turn.
    pub began_unix_nanoseconds: i64,
    /// How long the run has taken.
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
}
