//! Where each worker is now, and what it waits for.
//!
//! A run of a tenth of a second samples all workers about ten times; then the kernel is asked for
//! each worker's state. The result is a value (`phpprof_profile::dump`): `dump` prints it, and a
//! pod delivers it as a profile. A stack is as in a profile: proven, or cut with `[unstable]`.
//! Invariant: the kernel's data about a wait is only reported with a stack if the worker slept in
//! that one stack for the whole run.

mod kernel;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use phpprof_profile::dump::{DumpFrame, DumpState, DumpWorker, SuspendedFibers};

use crate::request::asked::SampleLabels;
use crate::run::aggregate::{FrameLine, Settlement, StackSum};
use crate::run::facts::RunFacts;
use crate::run::snapshot::Snapshot;
use crate::stack::names::FunctionNames;
use crate::target::process::held::Held;
pub use kernel::{Begin, KernelReport};

/// The rate of the run.
pub const SAMPLES_PER_SECOND: u32 = 99;
/// How long it samples.
pub const TAKES: Duration = Duration::from_millis(100);
/// The labels of requests: their method, route and script.
pub const LABELS: SampleLabels = [true, true, true, false, false];

/// The stacks of one worker, and whether there were several.
#[derive(Debug)]
struct SampledWorker {
    most: Settlement,
    is_only: bool,
}

/// The workers with a sample.
pub fn workers(snapshot: &Snapshot, said: &HashMap<i32, KernelReport>) -> Vec<DumpWorker> {
    let mut sampled: BTreeMap<i32, SampledWorker> = BTreeMap::new();
    let mut suspended: BTreeMap<i32, Vec<Settlement>> = BTreeMap::new();
    snapshot.samples.settled.each(|stack| {
        if stack.sum.fibers > 0 {
            suspended.entry(stack.tid).or_default().push(stack);
            return;
        }
        let known = sampled.get(&stack.tid).map(|known| known.most);
        let other = known.filter(|known| weight(&known.sum) >= weight(&stack.sum));
        let most = other.unwrap_or(stack);
        let is_only = known.is_none_or(|known| known.is_of_stack(&stack))
            && sampled.get(&stack.tid).is_none_or(|known| known.is_only);
        sampled.insert(stack.tid, SampledWorker { most, is_only });
    });
    let none = KernelReport::default();
    let worker = |(tid, sampled): (&i32, &SampledWorker)| {
        let fibers = suspended.get(tid).map_or(&[][..], Vec::as_slice);
        let worker = worker(snapshot, *tid, sampled, said.get(tid).unwrap_or(&none))?;
        Some(DumpWorker {
            fibers: snapshot.facts.fibers.map(|_| groups(snapshot, fibers)),
            ..worker
        })
    };
    sampled.iter().filter_map(worker).collect()
}

/// How many workers were seen that are not among these: they ended, could not be read, or could not
/// be sampled for lack of open files.
#[must_use]
pub fn without_sample(facts: &RunFacts, workers: &[DumpWorker]) -> usize {
    let unread = facts.seen.len().saturating_sub(workers.len());
    unread.saturating_add(facts.without_room)
}

/// Orders the stacks of a worker: the one with the most weight is shown.
fn weight(sum: &StackSum) -> (i64, i64) {
    (sum.samples, sum.cpu_nanoseconds)
}

/// Whether it slept in most samples. A worker that wakes up for a moment still waits.
fn mostly_slept(sum: &StackSum) -> bool {
    sum.cpu_nanoseconds.saturating_mul(2) < sum.wall_nanoseconds
}

fn frame(snapshot: &Snapshot, line: &FrameLine) -> DumpFrame {
    let (id, line) = *line;
    let name = snapshot.samples.names.get(id);
    DumpFrame {
        function: name.name.to_string(),
        file: name.file.to_string(),
        line: line.into(),
    }
}

/// The fibers with each of these stacks.
fn groups(snapshot: &Snapshot, suspended: &[Settlement]) -> Vec<SuspendedFibers> {
    let group = |settlement: &Settlement| {
        let mut lines = Vec::new();
        snapshot.samples.settled.lines(settlement, &mut lines);
        // Without the root that all of them have.
        let is_root = |line: &&FrameLine| line.0 == FunctionNames::SUSPENDED;
        let frames = lines.iter().rev().filter(|line| !is_root(line));
        SuspendedFibers {
            count: settlement.sum.fibers,
            stack: frames.map(|line| frame(snapshot, line)).collect(),
        }
    };
    let mut groups: Vec<_> = suspended.iter().map(group).collect();
    groups.sort_by_key(|group| Reverse(group.count));
    groups
}

fn worker(
    snapshot: &Snapshot,
    tid: i32,
    sampled: &SampledWorker,
    said: &KernelReport,
) -> Option<DumpWorker> {
    // A thread id that is no worker's has the samples of all workers without room of their own.
    let seen = snapshot.facts.seen.get(&tid)?;
    let mut lines = Vec::new();
    snapshot.samples.settled.lines(&sampled.most, &mut lines);
    let is_idle = matches!(lines.last(), Some(&(FunctionNames::IDLE, _)));
    let state = if said.is_stopped {
        DumpState::Stopped
    } else if is_idle {
        DumpState::Idle
    } else if mostly_slept(&sampled.most.sum) && !said.is_runnable {
        DumpState::Waiting
    } else {
        DumpState::Running
    };
    let waits_for_cpu =
        state == DumpState::Running && sampled.most.held == Held::Cpu && said.is_runnable;
    let slept = state == DumpState::Waiting && sampled.is_only;
    let seconds = |time: Duration| (time.as_secs_f64() * 1000.0).round() / 1000.0;
    let told = snapshot.facts.requests.as_ref().map(|told| &told.table);
    let of_request = |key: &str| {
        let mut labels = told?.labels(sampled.most.labels);
        labels
            .find(|(of, _)| *of == key)
            .map(|(_, value)| value.to_owned())
    };
    Some(DumpWorker {
        pod: None,
        container: None,
        pid: seen.pid.into(),
        thread: seen.engine.is_thread_safe().then_some(tid.into()),
        method: of_request("method"),
        route: of_request("route"),
        script: of_request("script"),
        pool: said.pool.clone(),
        php: seen.engine.version.clone(),
        sapi: seen.engine.sapi.clone(),
        state,
        waits_for_cpu,
        system_call: said.call.clone().filter(|_| slept),
        request_seconds: said.request.filter(|_| !is_idle).map(seconds),
        stack: if is_idle {
            Vec::new()
        } else {
            let lines = lines.iter().rev();
            lines.map(|line| frame(snapshot, line)).collect()
        },
        memory: None,
        fibers: None,
    })
}
