use proptest::prelude::*;

use super::*;
use crate::timeline::{
    CellLimits, CellTable, FIRST_SLICE, Moment, RouteCell, TimelineNode, TreeFunction,
    WORKER_GROUPS, decode, encode,
};

const BEGAN: i64 = 1_700_000_000_000_000_000;

fn cells() -> impl Strategy<Value = Vec<TimelineCell>> {
    let cell = (0_u32..40, 0_i64..1_000, 0_i64..1_000, 0_u64..9);
    prop::collection::btree_map(0_u32..40, cell, 0..12).prop_map(|cells| {
        let cells = cells.into_iter();
        cells
            .map(|(step, (_, busy, waiting, heap))| TimelineCell {
                step,
                busy,
                waiting,
                heap,
            })
            .collect()
    })
}

fn requests() -> impl Strategy<Value = Vec<TimelineRequest>> {
    let request = (-50_i64..50, 0_i64..100, 0_u32..3, 0_i32..1000);
    prop::collection::vec(request, 0..6).prop_map(|requests| {
        let requests = requests.into_iter();
        let mut requests: Vec<TimelineRequest> = requests
            .map(|(begin, duration, moments, pid)| TimelineRequest {
                begin,
                end: begin + duration,
                pid,
                samples: 1,
                moments: (0..moments)
                    .map(|at| Moment {
                        begin: i64::from(at),
                        duration: 1,
                        node: (at + pid as u32) % 3,
                        waits: false,
                    })
                    .collect(),
                ..TimelineRequest::default()
            })
            .collect();
        requests.sort_by_key(|request| Reverse(request.duration()));
        requests
    })
}

fn timelines() -> impl Strategy<Value = Vec<Timeline>> {
    let row = (1_i32..4, cells());
    let one = (
        0_i64..20_000_000_000,
        0_u32..3,
        prop::collection::vec(row, 0..3),
        prop::collection::btree_map("[ab]", cells(), 0..3),
        requests(),
    );
    prop::collection::vec(one, 1..5).prop_map(|all| {
        let all = all.into_iter();
        all.map(|(began, doubled, workers, routes, requests)| {
            let step = FIRST_STEP << doubled;
            Timeline {
                version: VERSION,
                began_unix_nanoseconds: BEGAN + began,
                duration_nanoseconds: 40 * step,
                step_nanoseconds: step,
                workers: workers
                    .into_iter()
                    .map(|(pid, cells)| WorkerRow {
                        pid,
                        cells,
                        ..WorkerRow::default()
                    })
                    .collect(),
                routes: routes
                    .into_iter()
                    .map(|(route, cells)| RouteRow { route, cells })
                    .collect(),
                requests,
                functions: ["a", "b"]
                    .map(|name| TreeFunction {
                        name: name.to_owned(),
                        ..TreeFunction::default()
                    })
                    .into(),
                nodes: [(None, 0), (Some(0), 1), (Some(1), 0)]
                    .map(|(parent, function)| TimelineNode {
                        parent,
                        function,
                        line: 1,
                    })
                    .into(),
                ..Timeline::default()
            }
        })
        .collect()
    })
}

fn merged<'a>(all: impl IntoIterator<Item = (usize, &'a Timeline)>) -> Timeline {
    let mut merger = TimelineMerger::new();
    for (index, timeline) in all {
        merger.add(timeline.clone(), &format!("pod-{index}"));
    }
    merger.finish()
}

/// Busy and waiting time of all workers and of all routes.
fn times(timeline: &Timeline) -> [i64; 4] {
    let workers = timeline.workers.iter().flat_map(|row| &row.cells);
    let routes = timeline.routes.iter().flat_map(|row| &row.cells);
    let sum = |cells: Vec<&TimelineCell>| {
        [
            cells.iter().map(|it| it.busy).sum(),
            cells.iter().map(|it| it.waiting).sum(),
        ]
    };
    let ([a, b], [c, d]) = (sum(workers.collect()), sum(routes.collect()));
    [a, b, c, d]
}

proptest! {
    #[test]
    fn no_time_or_request_is_lost_in_merging(all in timelines()) {
        let merged = merged(all.iter().enumerate());
        let mut sum = [0; 4];
        for timeline in &all {
            for (sum, time) in sum.iter_mut().zip(times(timeline)) {
                *sum += time;
            }
        }
        prop_assert_eq!(times(&merged), sum);
        let requests: usize = all.iter().map(|it| it.requests.len()).sum();
        prop_assert_eq!(merged.requests.len(), requests);
        let read = decode(&encode(&merged).unwrap());
        prop_assert_eq!(read.unwrap(), merged);
    }

    #[test]
    fn the_order_does_not_matter(all in timelines()) {
        let forth = merged(all.iter().enumerate());
        let back = merged(all.iter().enumerate().rev());
        prop_assert_eq!(forth, back);
    }
}

#[test]
fn workers_have_a_pod_and_routes_span_pods() {
    let cells = |step, busy| {
        vec![TimelineCell {
            step,
            busy,
            waiting: 0,
            heap: 5,
        }]
    };
    let one = |began: i64, step: u32| Timeline {
        version: VERSION,
        began_unix_nanoseconds: began,
        duration_nanoseconds: 12_000_000_000,
        step_nanoseconds: FIRST_STEP,
        workers: vec![WorkerRow {
            pod: "of another one".to_owned(),
            pid: 7,
            thread: 0,
            cells: cells(step, 10),
        }],
        routes: vec![RouteRow {
            route: "/".to_owned(),
            cells: cells(step, 10),
        }],
        ..Timeline::default()
    };
    // The second timeline began a second later, so the same step of the axis is 50 steps earlier in
    // it.
    let all = [one(BEGAN, 100), one(BEGAN + 1_000_000_000, 50)];
    let merged = merged(all.iter().enumerate());
    let pods: Vec<_> = merged.workers.iter().map(|row| row.pod.as_str()).collect();
    assert_eq!(pods, ["pod-0", "pod-1"]);
    assert_eq!(merged.step_nanoseconds, 2 * FIRST_STEP);
    let whole = vec![TimelineCell {
        step: 50,
        busy: 20,
        waiting: 0,
        heap: 5,
    }];
    assert_eq!(merged.routes[0].cells, whole);
    assert_eq!(merged.duration_nanoseconds, 13_000_000_000);
}

#[test]
fn cells_of_no_run_are_left_out() {
    let table = CellTable {
        slice_nanoseconds: FIRST_SLICE,
        pods: vec![String::new()],
        routes: vec!["/".to_owned()],
        functions: vec![TreeFunction::default()],
        cells: vec![RouteCell {
            requests: 3,
            samples: 9,
            ..RouteCell::default()
        }],
        ..CellTable::default()
    };
    let check = |change: fn(&mut CellTable), expected: Option<&str>| {
        let mut cells = table.clone();
        change(&mut cells);
        let list = Timeline {
            version: VERSION,
            duration_nanoseconds: 30_000_000_000,
            step_nanoseconds: FIRST_STEP,
            requests: vec![TimelineRequest::default()],
            cells: Some(cells),
            ..Timeline::default()
        };
        let mut merger = TimelineMerger::new();
        assert_eq!(merger.add(list, "web"), expected);
        let merged = merger.finish();
        assert_eq!(merged.requests.len(), 1);
        assert_eq!(merged.cells.is_some(), expected.is_none());
    };
    check(|_| (), None);
    let slices = Some("its slices are longer than the run");
    check(|it| it.slice_nanoseconds = FIRST_SLICE << 20, slices);
    check(|it| it.cells[0].slice = 1_000, slices);
    check(
        |it| it.cells[0].group = WORKER_GROUPS,
        Some("it has more groups of workers than a run"),
    );
    check(
        |it| it.cells = vec![it.cells[0]; CellLimits::RUN.cells + 1],
        Some("it has more cells than a run"),
    );
}

#[test]
fn the_slowest_of_many_requests_are_kept() {
    let slow = |index: i64| TimelineRequest {
        end: index,
        pid: 1,
        moments: vec![Moment::default()],
        ..TimelineRequest::default()
    };
    let one = Timeline {
        version: VERSION,
        step_nanoseconds: FIRST_STEP,
        requests: (0..200).rev().map(slow).collect(),
        functions: vec![TreeFunction::default()],
        nodes: vec![TimelineNode::default()],
        ..Timeline::default()
    };
    let all = vec![one; 15];
    let merged = merged(all.iter().enumerate());
    assert_eq!(merged.requests.len(), MAX_REQUESTS);
    assert_eq!(merged.unlisted_requests, 1000);
    let recorded = merged.requests.iter().filter(|it| !it.moments.is_empty());
    assert_eq!(recorded.count(), MAX_RECORDED);
    assert!(!merged.requests[MAX_RECORDED - 1].moments.is_empty());
    assert_eq!((merged.nodes.len(), merged.functions.len()), (1, 1));
}
