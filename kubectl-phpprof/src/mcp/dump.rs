//! The tool `dump`: where each worker stood in a snapshot. It takes none.
//!
//! Invariant: stuck workers come first, as in `kubectl phpprof dump`. Idle ones are shown if fibers
//! wait in them.

use std::collections::BTreeMap;

use phpprof_profile::dump::{
    DumpFrame, DumpState, DumpWorker, SuspendedFibers, without_sample, workers,
};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths};
use super::quote::{quoted, quoted_path};
use crate::failure::{Exit, Failure};
use crate::source::ProfileSource;

/// The innermost frames of a worker that are shown.
const FRAMES: usize = 8;
/// The most stacks of a worker's fibers, and frames of each.
const FIBERS: usize = 3;
const FIBER_FRAMES: usize = 4;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DumpBody {
    states: BTreeMap<&'static str, usize>,
    /// Without those that are idle and have no suspended fibers.
    workers: Vec<WorkerShown>,
    left_out: usize,
    /// Workers that were seen and could not be sampled.
    #[serde(skip_serializing_if = "is_zero")]
    without_sample: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerShown {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    pid: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_in: Option<String>,
    /// Leaf first.
    stack: Vec<FrameShown>,
    /// Where its fibers are suspended, most of them first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fibers: Vec<FibersShown>,
    /// The fibers in other places.
    #[serde(skip_serializing_if = "is_zero")]
    fibers_left_out: usize,
}

#[derive(Serialize)]
struct FibersShown {
    count: i64,
    /// Leaf first.
    stack: Vec<FrameShown>,
}

#[derive(Serialize)]
struct FrameShown {
    function: String,
    file: String,
    line: i64,
}

pub fn answer(
    source: &ProfileSource,
    place: &AgentPlace,
    name: &str,
    allows_run: bool,
) -> Result<AgentAnswer, Failure> {
    let all = workers(&source.profile);
    let further = without_sample(&source.profile);
    if all.is_empty() && further == 0 {
        return Err(Failure::new(
            Exit::Usage,
            "this profile is not a snapshot",
            if allows_run {
                "take one with the tool run and snapshot: true; of this profile, ask top"
            } else {
                "a user can take one with kubectl phpprof dump TYPE/NAME; of this profile, ask top"
            },
        ));
    }
    let mut states = BTreeMap::new();
    for worker in &all {
        *states.entry(state(worker)).or_insert(0) += 1;
    }
    let busy: Vec<&DumpWorker> = all
        .iter()
        .filter(|it| it.state != DumpState::Idle || !groups(it).is_empty())
        .collect();
    let mut next = AgentNexts::default();
    next.add(
        "callees",
        "the stacks of all workers as one tree",
        json!({"profile": name, "sampleType": "samples"}),
    );
    next.add("list_profiles", "other profiles", json!({}));
    let body = |count: usize| DumpBody {
        states: states.clone(),
        workers: busy.iter().take(count).map(|it| shown(it)).collect(),
        left_out: busy.len().saturating_sub(count),
        without_sample: further,
    };
    AgentAnswer::fitted(place, busy.len(), body, &next)
}

fn state(worker: &DumpWorker) -> &'static str {
    match worker.state {
        DumpState::Stopped => "stopped",
        DumpState::Waiting => "waiting",
        DumpState::Running => "running",
        DumpState::Idle => "idle",
    }
}

/// The stacks of a worker's fibers.
fn groups(worker: &DumpWorker) -> &[SuspendedFibers] {
    worker.fibers.as_deref().unwrap_or_default()
}

fn frames(stack: &[DumpFrame], most: usize) -> Vec<FrameShown> {
    let shown = |frame: &DumpFrame| FrameShown {
        function: quoted(&frame.function),
        file: quoted_path(&frame.file),
        line: frame.line,
    };
    stack.iter().take(most).map(shown).collect()
}

fn shown(worker: &DumpWorker) -> WorkerShown {
    let groups = groups(worker);
    let (first, others) = groups.split_at(groups.len().min(FIBERS));
    let fibers = first.iter().map(|group| FibersShown {
        count: group.count,
        stack: frames(&group.stack, FIBER_FRAMES),
    });
    let left_out: i64 = others.iter().map(|group| group.count).sum();
    let call = worker.system_call.as_ref().map(|call| {
        let on = call.on.as_deref().unwrap_or_default();
        let port = call.peer_port.map(|port| format!(" port {port}"));
        quoted(&format!("{} {on}{}", call.name, port.unwrap_or_default()))
    });
    WorkerShown {
        state: state(worker),
        pod: worker.pod.as_deref().map(quoted),
        pid: worker.pid,
        request_seconds: worker.request_seconds.map(hundredths),
        route: worker.route.as_deref().map(quoted),
        waits_in: call,
        stack: frames(&worker.stack, FRAMES),
        fibers: fibers.collect(),
        fibers_left_out: usize::try_from(left_out).unwrap_or(0),
    }
}
