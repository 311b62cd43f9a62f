//! Fills all tables of a run to their limits: their sum is what the sampler promises
//! ([performance](../../docs/performance.md)).
//!
//! It is one test in a process of its own, because its allocator counts.

use std::alloc::System;
use std::sync::Arc;

use phpprof::read::clocks::SchedStat;
use phpprof::read::cpu_shares::{ClockedSample, CpuShares};
use phpprof::read::on_cpu::Activity;
use phpprof::request::asked::SampleLabel;
use phpprof::request::values::{MAX_VALUES, RequestValues, Set};
use phpprof::run::WorkerLabels;
use phpprof::run::aggregate::Aggregate;
use phpprof::run::recorder::{Of, Recorder, TakenSample};
use phpprof::run::seen::{MAX_SEEN, Workers};
use phpprof::stack::call_tree::{CallPath, CallTree, MAX_PATHS, PathId};
use phpprof::stack::edges::{Edge, Edges, MAX_EDGES};
use phpprof::stack::functions::MAX_BYTES;
use phpprof::stack::names::{
    FunctionName, FunctionNames, MAX_CHANGED, MAX_NAMES, MAX_TEXT, NameId,
};
use phpprof::stack::trace::{Ending, SummedStack};
use phpprof_zend::engine::{Engine, Module};
use phpprof_zend::layouts::{Layout, Machine, layout_of};
use phpprof_zend::phase::PhaseGlobals;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The memory of all tables of a run, in addition to the program, and to one read of a stack.
const TABLES: usize = 14 << 20;
/// The memory of the values of labels.
const VALUES: usize = 2 << 20;
/// The memory of the recorder, if routes are labels.
const RECORDER: usize = 15_000_000;
/// The memory of what is remembered of workers that have ended.
const SEEN: usize = 256 << 10;
const WORKERS: i32 = 64;
/// A clock keeps 256.
const SAMPLES_OF_A_CLOCK: u64 = 1024;
/// The time between samples, in nanoseconds.
const PERIOD: u64 = 10_000_000;

/// The heap memory of a new value, in bytes.
fn taken<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let change = region.change();
    (made, change.bytes_allocated - change.bytes_deallocated)
}

fn names() -> (FunctionNames, Vec<NameId>) {
    let mut names = FunctionNames::default();
    // Two pieces each, all of which differ.
    let text = "x".repeat(MAX_TEXT / MAX_NAMES / 2 - 8);
    let mut ids = Vec::with_capacity(2 * MAX_NAMES);
    ids.extend((0..2 * MAX_NAMES).map(|index| {
        names.intern(FunctionName {
            name: &format!("{text}{index}"),
            file: &format!("{index}{text}"),
            start_line: 1,
        })
    }));
    for (&name, body) in ids.iter().zip(0..).take(4 * MAX_CHANGED) {
        names.of_body(name, body);
        names.of_body(name, body + 1);
    }
    (names, ids)
}

fn tree(ids: &[NameId]) -> CallTree {
    let mut tree = CallTree::default();
    let mut path = PathId::NONE;
    for (index, op) in (0..2 * MAX_PATHS).zip(0..) {
        let parent = if index % 40 == 0 { PathId::NONE } else { path };
        let added = tree.add(parent, ids[index % ids.len()], op, 1, CallPath::default());
        path = added.unwrap_or(path);
    }
    tree
}

fn edges(ids: &[NameId]) -> Edges {
    let mut edges = Edges::default();
    for (index, op) in (0..MAX_EDGES).zip(0..) {
        edges.open(Edge {
            site: (ids[index % ids.len()], op),
            via: None,
            callee: FunctionNames::IDLE,
        });
    }
    edges
}

fn sums() -> Aggregate {
    let mut aggregate = Aggregate::default();
    let mut tree = CallTree::default();
    for (_, op) in (0..MAX_PATHS).zip(0..) {
        let added = tree.add(
            PathId::NONE,
            FunctionNames::IDLE,
            op,
            1,
            CallPath::default(),
        );
        let stack = |ending| SummedStack {
            path: added.unwrap_or(PathId::NONE),
            ending,
            phase: None,
            candidate: PathId::NONE,
        };
        // As many stacks by worker as there is room for, and more without one.
        for tid in 1..if op < 600 { WORKERS } else { 2 } {
            aggregate.add(stack(Ending::Whole), tid, 1);
            aggregate.add(stack(Ending::Cut), tid, 1);
        }
    }
    drop(tree);
    aggregate
}

/// As many workers as are remembered, and more, each with an engine of its own until it ended.
fn seen(layout: &'static Layout) -> Workers {
    let mut workers = Workers::default();
    for pid in 1..3 * MAX_SEEN as i32 {
        let engine = Engine {
            layout,
            version: format!("8.2.{}", pid % 4),
            sapi: "fpm-fcgi".to_owned(),
            executor_globals: 0,
            fingerprint_at: 0,
            request_time: None,
            phase_globals: PhaseGlobals::default(),
            frameless_functions: None,
            module_registry: 0,
            execute_hook: None,
            threads: None,
            module: Module {
                base: 0,
                path: "/usr/lib/php/libphp.so".repeat(10),
            },
            build_id: "0123456789abcdef".repeat(4),
        };
        let engine = Arc::new(engine);
        workers.tell_apart(pid, WorkerLabels { pid, engine });
        workers.end(pid);
    }
    workers
}

/// Clocks that never move.
fn waiting() -> Vec<CpuShares<SummedStack>> {
    let look = SchedStat {
        run_nanoseconds: 0,
        delay_nanoseconds: 0,
        slices: 1,
    };
    let clock = || {
        let mut clock = CpuShares::default();
        let stack = SummedStack::of_phase(FunctionNames::IDLE);
        let newest = |at| ClockedSample {
            at,
            look,
            activity: Activity::Runnable,
            sample: stack,
        };
        (0..SAMPLES_OF_A_CLOCK).for_each(|now| clock.add(newest(now), |_, _| ()));
        clock
    };
    (0..WORKERS).map(|_| clock()).collect()
}

/// As many values of labels as are kept, each as long as possible, and as many sets of them.
fn values() -> RequestValues {
    let mut values = RequestValues::default();
    for number in 0..2 * MAX_VALUES {
        for label in SampleLabel::ALL {
            values.number(label, &format!("{number:0>120}"));
        }
    }
    for route in 0..200 {
        for trace in 0..200 {
            values.set([1, route, 1, 1, trace]);
        }
    }
    values
}

/// A recorder for a run with more workers, routes, steps, requests and moments than are kept.
fn recorded() -> Recorder {
    let mut recorder = Recorder::new(0);
    let mut add = |tid: i32, number: u32, at: u64| {
        let mut values = Set::default();
        values[SampleLabel::Route as usize] = u16::try_from(tid).unwrap_or(1);
        let of = Of {
            number,
            began: Some(0),
            values,
            is_young: false,
        };
        let phase = if at.is_multiple_of(2) {
            FunctionNames::IDLE
        } else {
            FunctionNames::LOADING
        };
        let taken = TakenSample {
            tid,
            summed_as: tid,
            at: at * PERIOD,
            from: at * PERIOD,
            to: (at + 1) * PERIOD,
            ran: true,
            stack: SummedStack::of_phase(phase),
            leaf: phase,
            heap: None,
        };
        recorder.add(&taken, Some(of));
    };
    // The slowest ones with all of their moments, one after the other,
    for number in 1..=250 {
        (0..1200).for_each(|at| add(1, number, at));
    }
    // many short ones,
    (251..3000).for_each(|number| add(1, number, 1));
    // and many at once.
    for tid in 2..300 {
        (0..1200).for_each(|at| add(tid, 5000 + tid.unsigned_abs(), at));
    }
    recorder
}

#[test]
fn tables_take_no_more_than_promised() {
    let ((names, ids), of_names) = taken(names);
    let of_names = of_names - ids.capacity() * size_of::<NameId>();
    let (tree, of_tree) = taken(|| tree(&ids));
    let (edges, of_edges) = taken(|| edges(&ids));
    let (sums, of_sums) = taken(sums);
    let (waiting, of_waiting) = taken(waiting);
    let all = [of_names, of_tree, of_edges, of_sums, of_waiting, MAX_BYTES];
    let sum: usize = all.iter().sum();
    let (values, of_values) = taken(values);
    assert!(of_values <= VALUES, "{of_values} bytes of labels' values");
    let (recorded, of_recorder) = taken(recorded);
    println!("the recorder: {of_recorder}");
    assert!(
        of_recorder <= RECORDER,
        "{of_recorder} bytes of what ran when"
    );
    let layout = layout_of(Machine::X86_64, 8, 2).expect("there is a row for it");
    let (seen, of_seen) = taken(|| seen(layout));
    println!("workers that have ended: {of_seen}");
    assert!(of_seen <= SEEN, "{of_seen} bytes of workers");
    println!("names, call tree, edges, sums, clocks, functions: {all:?}");
    assert!(sum <= TABLES, "{sum} bytes: {all:?}");
    drop((names, tree, edges, sums, waiting, values, recorded, seen));
}
