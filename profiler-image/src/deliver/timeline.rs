//! Builds `requests.json` from recorded requests: pure. `phpprof_profile::timeline` reads it within
//! bounds, and merges the lists of several pods.
//!
//! Invariant: it only contains names that the profile of the same run may contain: the run's
//! functions, proven as far as the profile's stacks, and values of requests from the table of the
//! requested labels.

use phpprof_profile::timeline::{
    Moment, OTHER, RouteRow, Slot, Timeline, TimelineCell, TimelineNode, TimelineRequest,
    TimelineTree, TreeFunction, VERSION, WorkerRow,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::request::asked::SampleLabel;
use crate::request::values::ValueTable;
use crate::run::moments;
use crate::run::recorder::{Recorder, SeenRequest};
use crate::run::snapshot::Snapshot;
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::SummedStack;

/// Builds the list from what a run has recorded; the snapshot is from the run's end.
#[must_use]
pub fn timeline(recorder: Recorder, snapshot: &Snapshot) -> Timeline {
    let empty = ValueTable::default();
    let requests = snapshot.facts.requests.as_ref();
    let table = requests.map_or(&empty, |told| &told.table);
    let mut paths = MomentPaths::of(snapshot);
    let began = recorder.began;
    let slowest = recorder.slowest.iter();
    let requests = slowest
        .map(|seen| request(seen, began, snapshot, table, &mut paths))
        .collect();
    let took = signed(snapshot.facts.took.as_nanos());
    let route_of = |route| table.value(SampleLabel::Route, route);
    let table_of_cells = recorder.cells.finish(route_of, shown_functions(snapshot));
    let parts = recorder.parts.renamed(|stack| paths.leaf(stack));
    let unlisted_requests = recorder.slowest.unlisted;
    let (workers, other_workers) = recorder.workers.finish();
    let (routes, other_routes) = recorder.routes.finish();
    let workers = workers.into_iter().map(|(summed_as, slots)| {
        let (pid, thread) = worker(summed_as, snapshot);
        WorkerRow {
            pid,
            thread,
            cells: cells(slots),
            ..WorkerRow::default()
        }
    });
    let other_workers = some(other_workers).map(|cells| WorkerRow {
        cells,
        ..WorkerRow::default()
    });
    let routes = routes.into_iter().map(|(route, slots)| RouteRow {
        route: table.value(SampleLabel::Route, route).to_owned(),
        cells: cells(slots),
    });
    let other_routes = some(other_routes).map(|cells| RouteRow {
        route: OTHER.to_owned(),
        cells,
    });
    Timeline {
        version: VERSION,
        began_unix_nanoseconds: snapshot.facts.began_unix_nanoseconds,
        duration_nanoseconds: took,
        step_nanoseconds: signed(recorder.step.into()),
        workers: workers.chain(other_workers).collect(),
        routes: routes.chain(other_routes).collect(),
        parts: parts.finish(0, took),
        requests,
        unlisted_requests,
        cut: 0,
        cells: Some(table_of_cells),
        functions: paths.tree.functions,
        nodes: paths.tree.nodes,
    }
}

/// The names of functions that stacks of the run end in, as they are shown. What was the leaf when
/// it was sampled, but is not proven, is `[unstable]`.
fn shown_functions(snapshot: &Snapshot) -> impl Fn(NameId) -> TreeFunction {
    let (settled, names) = (&snapshot.samples.settled, &snapshot.samples.names);
    let (mut leaves, mut lines) = (FxHashSet::default(), Vec::new());
    settled.each(|stack| {
        settled.lines(&stack, &mut lines);
        leaves.extend(lines.last().map(|(name, _)| name.shown()));
    });
    move |name| {
        let is_shown = leaves.contains(&name.shown());
        let name = names.get(if is_shown {
            name
        } else {
            FunctionNames::UNSTABLE
        });
        TreeFunction {
            name: name.name.to_string(),
            file: name.file.to_string(),
        }
    }
}

fn request(
    seen: &SeenRequest,
    began: u64,
    snapshot: &Snapshot,
    table: &ValueTable,
    paths: &mut MomentPaths<'_>,
) -> TimelineRequest {
    let value = |label: SampleLabel| {
        let value = table.value(label, seen.values[label as usize]);
        value.to_owned()
    };
    let (pid, thread) = worker(seen.summed_as, snapshot);
    let since = |time: u64| signed(time.into()) - signed(began.into());
    let moments = seen.moments.iter();
    let moments: Option<Vec<Moment>> = moments
        .filter(|moment| moment.to() > seen.began)
        .map(|moment| paths.moment(moment, seen.began))
        .collect();
    TimelineRequest {
        begin: since(seen.began),
        end: since(seen.ended.max(seen.began)),
        is_unfinished: seen.is_unfinished,
        pod: String::new(),
        pid,
        thread,
        method: value(SampleLabel::Method),
        route: value(SampleLabel::Route),
        script: value(SampleLabel::Script),
        // A value without room in the table is left out.
        trace_id: value(SampleLabel::TraceId)
            .split_once('-')
            .map(|(trace, _)| trace.to_owned())
            .unwrap_or_default(),
        samples: seen.samples,
        wall_nanoseconds: signed(seen.wall.into()),
        cpu_nanoseconds: signed(seen.cpu.into()),
        peak_heap_bytes: seen.peak_heap,
        moments: moments.unwrap_or_default(),
    }
}

/// The process and, if it has several workers, the thread under which the samples were summed.
fn worker(summed_as: i32, snapshot: &Snapshot) -> (i32, i32) {
    match snapshot.facts.seen.get(&summed_as) {
        Some(seen) if seen.engine.is_thread_safe() => (seen.pid, summed_as),
        Some(seen) => (seen.pid, 0),
        None => (0, 0),
    }
}

fn cells(slots: Vec<Slot>) -> Vec<TimelineCell> {
    slots.into_iter().filter_map(|slot| slot.cell(0)).collect()
}

fn some(slots: Vec<Slot>) -> Option<Vec<TimelineCell>> {
    Some(cells(slots)).filter(|cells| !cells.is_empty())
}

fn signed(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The stacks of moments as call paths in the file's tree.
struct MomentPaths<'a> {
    snapshot: &'a Snapshot,
    tree: TimelineTree,
    known: FxHashMap<SummedStack, Option<u32>>,
}

impl<'a> MomentPaths<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            snapshot,
            tree: TimelineTree::default(),
            known: FxHashMap::default(),
        }
    }

    /// A moment of a request that began at this time; `None` if there is no room for its call path.
    fn moment(&mut self, moment: &moments::TimedStack, began: u64) -> Option<Moment> {
        let from = moment.from.max(began);
        Some(Moment {
            begin: signed((from - began).into()),
            duration: signed((moment.to() - from).into()),
            node: self.leaf(moment.stack)?,
            waits: moment.waiting > moment.busy,
        })
    }

    fn leaf(&mut self, stack: SummedStack) -> Option<u32> {
        if let Some(&leaf) = self.known.get(&stack) {
            return leaf;
        }
        let (settled, names) = (&self.snapshot.samples.settled, &self.snapshot.samples.names);
        let mut lines = Vec::new();
        settled.lines_of(settled.shown(stack), &mut lines);
        let mut parent = None;
        for (name, line) in lines {
            let name = names.get(name);
            let function = self
                .tree
                .function(&name.name.to_string(), &name.file.to_string());
            parent = function.and_then(|function| {
                self.tree.node(TimelineNode {
                    parent,
                    function,
                    line,
                })
            });
            if parent.is_none() {
                break;
            }
        }
        self.known.insert(stack, parent);
        parent
    }
}
