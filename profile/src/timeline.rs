//! What ran when: the file `requests.json` next to a profile, gzip of one JSON object.
//!
//! It has what a profile's aggregation loses: steps of time, and single requests with their actions
//! in order. Times are nanoseconds since `began_unix_nanoseconds` unless stated otherwise.
//! Invariant: a decoded [`Timeline`] has no invalid index, and no list is longer than its bound
//! here.

mod bounded;
mod cell_sums;
mod cells;
mod codec;
mod merge;
mod parts;
mod rows;
mod tree;

use serde::{Deserialize, Serialize};

pub use cell_sums::{CellLimits, CellMerger, CellOwner, CellPlace, CellSums, WORKER_GROUPS};
pub(crate) use cells::MAX_CELL_STRING;
pub use cells::{CellTable, CellTime, FIRST_SLICE, RouteCell};
pub use codec::{
    MAX_BYTES, TimelineError, decode, decode_without_bad_cells, encode, encode_within,
};
pub use merge::TimelineMerger;
pub use parts::{MAX_PARTS, MAX_STACKS, PartStack, Parts, TimelinePart};
pub use rows::{Slot, TimelineRows};
pub use tree::TimelineTree;

use bounded::bounded;

/// The version of a file without cells. Newer versions than [`VERSION_WITH_CELLS`] are refused.
pub const VERSION: u32 = 1;
/// The version of a file with cells, which readers of the first version do not know.
pub const VERSION_WITH_CELLS: u32 = 2;
/// The most steps of a run. If a run lasts longer than expected, two steps become one.
pub const MAX_STEPS: usize = 600;
/// The most rows of one kind. The rest is in the row `(other)`.
pub const MAX_ROWS: usize = 64;
/// The most requests that are listed. These are the slowest.
pub const MAX_REQUESTS: usize = 2_000;
/// The most requests with their moments.
pub const MAX_RECORDED: usize = 200;
/// The most moments of one request.
pub const MAX_MOMENTS: usize = 500;
/// The most frames of the call tree.
pub const MAX_NODES: usize = 1 << 17;
/// The most functions of the call tree.
pub const MAX_FUNCTIONS: usize = 1 << 15;
/// The most bytes of a text.
pub const MAX_STRING: usize = 1024;
/// The smallest step. Larger ones are this one doubled several times, so that the steps of several
/// runs nest.
pub const FIRST_STEP: i64 = 20_000_000;
/// The name of the row for the rest.
pub const OTHER: &str = "(other)";

/// A run, or the runs of several pods, over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timeline {
    /// [`VERSION`] or [`VERSION_WITH_CELLS`]. Whoever writes the file sets it.
    pub version: u32,
    /// Unix time of the first turn.
    pub began_unix_nanoseconds: i64,
    /// How long the run was.
    pub duration_nanoseconds: i64,
    /// The length of a step: [`FIRST_STEP`], doubled several times.
    pub step_nanoseconds: i64,
    /// The time of each worker.
    #[serde(deserialize_with = "bounded::<_, _, MAX_ROWS>")]
    pub workers: Vec<WorkerRow>,
    /// The time of each route's requests, on all workers together.
    #[serde(deserialize_with = "bounded::<_, _, MAX_ROWS>")]
    pub routes: Vec<RouteRow>,
    /// What ran in each minute, in order, if the run was longer than one.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::<_, _, MAX_PARTS>"
    )]
    pub parts: Vec<TimelinePart>,
    /// The requests, slowest first.
    #[serde(deserialize_with = "bounded::<_, _, MAX_REQUESTS>")]
    pub requests: Vec<TimelineRequest>,
    /// The number of requests that were seen but not listed.
    pub unlisted_requests: u64,
    /// The number of recorded requests that lost their moments, so that the file is not too large.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cut: u64,
    /// How the time of requests varies, for a verdict on two profiles. Files of earlier releases
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cells: Option<CellTable>,
    /// Functions of the call tree.
    #[serde(deserialize_with = "bounded::<_, _, MAX_FUNCTIONS>")]
    pub functions: Vec<TreeFunction>,
    /// The call tree of the recorded requests and of the parts. A node's parent comes before it.
    #[serde(deserialize_with = "bounded::<_, _, MAX_NODES>")]
    pub nodes: Vec<TimelineNode>,
}

/// A worker process or thread.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerRow {
    /// Empty on a host; the operator sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// 0 in the row of the workers without their own row.
    pub pid: i32,
    /// 0 if a process has one worker.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thread: i32,
    /// In the order of the steps.
    #[serde(deserialize_with = "bounded::<_, _, MAX_STEPS>")]
    pub cells: Vec<TimelineCell>,
}

/// A route: the value of the label `route`, or `(other)`. Empty for requests whose route is not
/// known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RouteRow {
    /// The template, for instance `/users/{id}`.
    pub route: String,
    /// In the order of the steps.
    #[serde(deserialize_with = "bounded::<_, _, MAX_STEPS>")]
    pub cells: Vec<TimelineCell>,
}

/// One step of a row. Steps without time have no cell. As JSON: `[step, busy, waiting, heap]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, i64, i64, u64)", into = "(u32, i64, i64, u64)")]
pub struct TimelineCell {
    /// The number of the step, from 0.
    pub step: u32,
    /// Nanoseconds of wall time in samples that ran, within requests.
    pub busy: i64,
    /// Nanoseconds of wall time in samples that slept, within requests.
    pub waiting: i64,
    /// The largest heap in bytes that a worker of the row was seen with; 0 if heaps were not
    /// sampled.
    pub heap: u64,
}

/// A request that was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimelineRequest {
    /// When it began; negative if it was running before the first turn.
    pub begin: i64,
    /// When it was last seen.
    pub end: i64,
    /// Whether it was still running when the run ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unfinished: bool,
    /// Empty on a host; the operator sets it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The worker's process.
    pub pid: i32,
    /// 0 if a process has one worker.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thread: i32,
    /// Empty if it is not known or was not recorded. The same applies to the next three.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// The template, for instance `/users/{id}`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub route: String,
    /// The file that PHP was asked to run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub script: String,
    /// 32 hexadecimal digits from the header `traceparent`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// The number of its samples.
    pub samples: u64,
    /// The wall time of its samples.
    pub wall_nanoseconds: i64,
    /// The CPU time of its samples.
    pub cpu_nanoseconds: i64,
    /// 0 if heaps were not sampled.
    #[serde(default, skip_serializing_if = "is_none")]
    pub peak_heap_bytes: u64,
    /// Its moments in order. They do not overlap. Empty if the request was not among the slowest.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "bounded::<_, _, MAX_MOMENTS>"
    )]
    pub moments: Vec<Moment>,
}

/// A stack and how long it was seen. As JSON: `[begin, duration, node, waits]`, where `waits` is 0
/// or 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(i64, i64, u32, u8)", into = "(i64, i64, u32, u8)")]
pub struct Moment {
    /// Nanoseconds since the beginning of the request.
    pub begin: i64,
    /// Nanoseconds for which it was seen.
    pub duration: i64,
    /// The stack's leaf in [`Timeline::nodes`].
    pub node: u32,
    /// Whether the worker slept for most of it.
    pub waits: bool,
}

/// A function of the call tree. As JSON: `[name, file]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct TreeFunction {
    /// The name in the profile.
    pub name: String,
    /// The file of its declaration.
    pub file: String,
}

/// A frame of the call tree. As JSON: `[parent, function, line]`; a root's parent is -1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "(i64, u32, u32)", into = "(i64, u32, u32)")]
pub struct TimelineNode {
    /// Its caller's index in [`Timeline::nodes`]; `None` for a root.
    pub parent: Option<u32>,
    /// The function's index in [`Timeline::functions`].
    pub function: u32,
    /// The line being executed.
    pub line: u32,
}

impl From<(u32, i64, i64, u64)> for TimelineCell {
    fn from((step, busy, waiting, heap): (u32, i64, i64, u64)) -> Self {
        Self {
            step,
            busy,
            waiting,
            heap,
        }
    }
}

impl From<TimelineCell> for (u32, i64, i64, u64) {
    fn from(cell: TimelineCell) -> Self {
        (cell.step, cell.busy, cell.waiting, cell.heap)
    }
}

impl From<(i64, i64, u32, u8)> for Moment {
    fn from((begin, duration, node, waits): (i64, i64, u32, u8)) -> Self {
        Self {
            begin,
            duration,
            node,
            waits: waits != 0,
        }
    }
}

impl From<Moment> for (i64, i64, u32, u8) {
    fn from(moment: Moment) -> Self {
        (
            moment.begin,
            moment.duration,
            moment.node,
            u8::from(moment.waits),
        )
    }
}

impl From<(String, String)> for TreeFunction {
    fn from((name, file): (String, String)) -> Self {
        Self { name, file }
    }
}

impl From<TreeFunction> for (String, String) {
    fn from(function: TreeFunction) -> Self {
        (function.name, function.file)
    }
}

impl From<(i64, u32, u32)> for TimelineNode {
    fn from((parent, function, line): (i64, u32, u32)) -> Self {
        Self {
            parent: u32::try_from(parent).ok(),
            function,
            line,
        }
    }
}

impl From<TimelineNode> for (i64, u32, u32) {
    fn from(node: TimelineNode) -> Self {
        (node.parent.map_or(-1, i64::from), node.function, node.line)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_none(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_written_as_its_format_says() {
        let timeline = Timeline {
            version: VERSION,
            step_nanoseconds: 50_000_000,
            routes: vec![RouteRow {
                route: "/shop/{id}".to_owned(),
                cells: vec![TimelineCell {
                    step: 3,
                    busy: 20,
                    waiting: 30,
                    heap: 0,
                }],
            }],
            requests: vec![TimelineRequest {
                begin: -5,
                end: 80,
                pid: 7,
                samples: 2,
                moments: vec![Moment {
                    begin: 6,
                    duration: 20,
                    node: 1,
                    waits: true,
                }],
                ..TimelineRequest::default()
            }],
            functions: vec![TreeFunction {
                name: "usleep".to_owned(),
                file: String::new(),
            }],
            nodes: vec![
                TimelineNode::default(),
                TimelineNode {
                    parent: Some(0),
                    function: 0,
                    line: 4,
                },
            ],
            ..Timeline::default()
        };
        let json = serde_json::to_string(&timeline).unwrap();
        insta::assert_snapshot!(json);
        let read: Timeline = serde_json::from_str(&json).unwrap();
        assert_eq!(read, timeline);
    }
}
