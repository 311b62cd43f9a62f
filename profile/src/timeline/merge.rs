//! Merges several timelines into one: those of a request's pods.
//!
//! All are put on one axis, whose steps begin at multiples of the step since 1970. A step of a pod
//! is added completely to the step in which it begins. All steps are one step doubled several
//! times, so each step of the result covers the same number of the pod's steps, and moves by less
//! than one. Invariant: no busy or waiting time is lost. The order of adding does not matter if
//! there are at most 256 routes. Memory is bounded by the bounds of one timeline, however many
//! there are.

use std::cmp::Reverse;

use super::bounded::MAX_TIME;
use super::cell_sums::CellMerger;
use super::codec::step_of;
use super::parts::Parts;
use super::tree::{NodeNumbers, OtherTree};
use super::{
    FIRST_STEP, MAX_RECORDED, MAX_REQUESTS, MAX_STEPS, MAX_STRING, OTHER, RouteRow, Slot, Timeline,
    TimelineCell, TimelineRequest, TimelineRows, TimelineTree, VERSION, WorkerRow,
};
use crate::bounds::beginning;

/// Pod, process, thread.
type WorkerKey = (String, i32, i32);

/// Timelines while they are merged.
#[derive(Debug, Default)]
pub struct TimelineMerger {
    /// Its times are Unix times until it is finished.
    sum: Timeline,
    last: Option<i64>,
    workers: TimelineRows<WorkerKey>,
    routes: TimelineRows<String>,
    cells: CellMerger,
    /// On the axis of the first timeline.
    parts: Option<Parts<u32>>,
}

impl TimelineMerger {
    /// Starts empty.
    #[must_use]
    pub fn new() -> Self {
        let mut merger = Self::default();
        merger.sum.step_nanoseconds = FIRST_STEP;
        merger
    }

    /// Adds the timeline of a pod. The pod's name comes from the caller, not from the timeline.
    /// Cells that no sampler has written are left out; returns why.
    pub fn add(&mut self, mut other: Timeline, pod: &str) -> Option<&'static str> {
        let pod = beginning(pod, MAX_STRING);
        let began = other.began_unix_nanoseconds;
        let ended = began.saturating_add(other.duration_nanoseconds);
        self.widen(began, ended, other.step_nanoseconds);
        let slot = |step: i64, cell: &TimelineCell| Slot {
            at: began
                .saturating_add(i64::from(cell.step).saturating_mul(other.step_nanoseconds))
                .div_euclid(step),
            busy: cell.busy,
            waiting: cell.waiting,
            heap: cell.heap,
        };
        let step = self.sum.step_nanoseconds;
        for row in &other.workers {
            let key = (row.pid != 0).then(|| (pod.to_owned(), row.pid, row.thread));
            for cell in &row.cells {
                self.workers.add(key.as_ref(), slot(step, cell));
            }
        }
        for row in &other.routes {
            let key = Some(&row.route).filter(|route| *route != OTHER);
            for cell in &row.cells {
                self.routes.add(key, slot(step, cell));
            }
        }
        for request in &mut other.requests {
            pod.clone_into(&mut request.pod);
            request.begin = request.begin.saturating_add(began);
            request.end = request.end.saturating_add(began);
        }
        let cells = other.cells.take();
        let fault = cells
            .as_ref()
            .and_then(|cells| cells.fault_of_run(other.duration_nanoseconds));
        if let Some(cells) = cells.filter(|_| fault.is_none()) {
            self.cells.add(&cells, pod, began);
        }
        self.sum.unlisted_requests += other.unlisted_requests;
        self.sum.cut += other.cut;
        self.take(other);
        fault
    }

    /// Makes the axis long enough, and its steps at least this long.
    fn widen(&mut self, began: i64, ended: i64, step: i64) {
        let is_first = self.last.is_none();
        let last = self.last.unwrap_or(ended).max(ended);
        let first = if is_first {
            began
        } else {
            began.min(self.sum.began_unix_nanoseconds)
        };
        (self.sum.began_unix_nanoseconds, self.last) = (first, Some(last));
        let needed = step.max(step_of(last.saturating_sub(first)));
        while self.sum.step_nanoseconds < needed || self.steps() > MAX_STEPS as i64 {
            self.sum.step_nanoseconds *= 2;
            self.workers.double();
            self.routes.double();
        }
    }

    /// The number of steps from the beginning to the end, including both.
    fn steps(&self) -> i64 {
        let step = self.sum.step_nanoseconds;
        let first = self.sum.began_unix_nanoseconds.div_euclid(step);
        self.last.unwrap_or_default().div_euclid(step) - first + 1
    }

    /// Takes the slowest requests with their moments, and the parts.
    fn take(&mut self, mut other: Timeline) {
        let old = std::mem::take(&mut self.sum.requests).into_iter();
        let new = std::mem::take(&mut other.requests).into_iter();
        let mut all: Vec<(bool, TimelineRequest)> = old
            .map(|request| (false, request))
            .chain(new.map(|request| (true, request)))
            .collect();
        all.sort_by(|(_, one), (_, other)| order(one).cmp(&order(other)));
        self.sum.unlisted_requests += all.len().saturating_sub(MAX_REQUESTS) as u64;
        all.truncate(MAX_REQUESTS);
        let (old_tree, new_tree) = (
            OtherTree {
                functions: &self.sum.functions,
                nodes: &self.sum.nodes,
            },
            OtherTree {
                functions: &other.functions,
                nodes: &other.nodes,
            },
        );
        let (mut tree, mut recorded) = (TimelineTree::default(), 0);
        let (mut of_old, mut of_new) = (NodeNumbers::new(), NodeNumbers::new());
        for (is_new, request) in &mut all {
            if recorded == MAX_RECORDED {
                request.moments = Vec::new();
            }
            let had_any = !request.moments.is_empty();
            if *is_new {
                tree.take(new_tree, &mut of_new, request)
            } else {
                tree.take(old_tree, &mut of_old, request)
            }
            let has_any = !request.moments.is_empty();
            self.sum.cut += u64::from(had_any && !has_any);
            recorded += usize::from(has_any);
        }
        let parts = self
            .parts
            .take()
            .map(|parts| parts.renamed(|node| tree.path(old_tree, &mut of_old, node)));
        let mut parts = parts.unwrap_or_else(|| Parts::new(other.began_unix_nanoseconds));
        for part in &other.parts {
            parts.add_part(part, other.began_unix_nanoseconds, |node| {
                tree.path(new_tree, &mut of_new, node)
            });
        }
        self.parts = Some(parts);
        self.sum.requests = all.into_iter().map(|(_, request)| request).collect();
        (self.sum.functions, self.sum.nodes) = (tree.functions, tree.nodes);
    }

    /// The merged timeline.
    #[must_use]
    pub fn finish(self) -> Timeline {
        let steps = self.steps();
        let mut all = self.sum;
        let step = all.step_nanoseconds;
        let first = all.began_unix_nanoseconds.div_euclid(step);
        let began = first.saturating_mul(step);
        let ended = self.last.unwrap_or(began);
        let cells = |slots: Vec<Slot>| -> Vec<TimelineCell> {
            // Data of an upload after its own end counts in its last step.
            let mut cells = TimelineRows::<()>::default();
            for slot in slots {
                let at = slot.at.min(first + steps - 1);
                cells.add(None, Slot { at, ..slot });
            }
            let (_, slots) = cells.finish();
            slots
                .into_iter()
                .filter_map(|slot| slot.cell(first))
                .collect()
        };
        for request in &mut all.requests {
            let since = |time: i64| time.saturating_sub(began).clamp(-MAX_TIME, MAX_TIME);
            (request.begin, request.end) = (since(request.begin), since(request.end));
        }
        let parts = self.parts;
        let (workers, other_workers) = self.workers.finish();
        let (routes, other_routes) = self.routes.finish();
        let worker = |((pod, pid, thread), slots)| WorkerRow {
            pod,
            pid,
            thread,
            cells: cells(slots),
        };
        let route = |(route, slots)| RouteRow {
            route,
            cells: cells(slots),
        };
        let other_workers = Some(other_workers).filter(|slots| !slots.is_empty());
        let other_workers = other_workers.map(|slots| (WorkerKey::default(), slots));
        let other_routes = Some(other_routes).filter(|slots| !slots.is_empty());
        let other_routes = other_routes.map(|slots| (OTHER.to_owned(), slots));
        let mut all = Timeline {
            version: VERSION,
            began_unix_nanoseconds: began,
            duration_nanoseconds: ended - began,
            workers: workers
                .into_iter()
                .chain(other_workers)
                .map(worker)
                .collect(),
            routes: routes.into_iter().chain(other_routes).map(route).collect(),
            parts: parts.map_or_else(Vec::new, |parts| parts.finish(began, ended - began)),
            cells: self.cells.finish(),
            ..all
        };
        all.set_version();
        all
    }
}

impl TimelineRequest {
    /// How long it was seen, in nanoseconds.
    #[must_use]
    pub fn duration(&self) -> i64 {
        self.end.saturating_sub(self.begin)
    }
}

/// Orders the slowest first.
fn order(request: &TimelineRequest) -> impl Ord + '_ {
    let TimelineRequest {
        begin,
        pod,
        pid,
        thread,
        samples,
        ..
    } = request;
    (
        Reverse(request.duration()),
        *begin,
        pod,
        *pid,
        *thread,
        *samples,
    )
}

#[cfg(test)]
mod tests;
