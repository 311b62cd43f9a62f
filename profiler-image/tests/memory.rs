//! What a run keeps, filled up to its caps: the sum is what the sampler promises ([performance](../../docs/performance.md)).
//!
//! One test in a process of its own: its allocator counts.

use std::alloc::System;

use phpprof::read::clocks::Look;
use phpprof::read::cpu_shares::CpuShares;
use phpprof::run::aggregate::Aggregate;
use phpprof::stack::call_tree::{Call, CallTree, MAX_PATHS, PathId};
use phpprof::stack::edges::{Edge, Edges, MAX_EDGES};
use phpprof::stack::functions::MAX_BYTES;
use phpprof::stack::names::{MAX_NAMES, MAX_TEXT, Name, NameId, Names};
use phpprof::stack::trace::{Ending, Stack};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// All tables of a run. Beside them there are the program, and what one read of a stack takes.
const TABLES: usize = 14 << 20;
const WORKERS: i32 = 64;

/// What making something leaves on the heap, in bytes.
fn taken<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let change = region.change();
    (made, change.bytes_allocated - change.bytes_deallocated)
}

fn names() -> (Names, Vec<NameId>) {
    let mut names = Names::default();
    let text = "x".repeat(MAX_TEXT / MAX_NAMES / 2 - 8);
    let mut ids = Vec::with_capacity(2 * MAX_NAMES);
    ids.extend((0..2 * MAX_NAMES).map(|index| {
        names.intern(Name {
            name: &format!("{text}{index}"),
            file: &format!("{text}/{index}"),
            start_line: 1,
        })
    }));
    (names, ids)
}

fn tree(ids: &[NameId]) -> CallTree {
    let mut tree = CallTree::default();
    let mut path = PathId::NONE;
    for (index, op) in (0..2 * MAX_PATHS).zip(0..) {
        let parent = if index % 40 == 0 { PathId::NONE } else { path };
        let added = tree.add(parent, ids[index % ids.len()], op, 1, Call::default());
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
            callee: Names::IDLE,
        });
    }
    edges
}

fn sums() -> Aggregate {
    let mut aggregate = Aggregate::default();
    let mut tree = CallTree::default();
    for (_, op) in (0..MAX_PATHS).zip(0..) {
        let added = tree.add(PathId::NONE, Names::IDLE, op, 1, Call::default());
        let stack = |ending| Stack {
            path: added.unwrap_or(PathId::NONE),
            ending,
            phase: None,
        };
        // As many stacks by worker as find room, and more without one.
        for tid in 1..if op < 600 { WORKERS } else { 2 } {
            aggregate.add(stack(Ending::Whole), tid, 1);
            aggregate.add(stack(Ending::Cut), tid, 1);
        }
    }
    drop(tree);
    aggregate
}

/// Clocks that never move.
fn waiting() -> Vec<CpuShares<Stack>> {
    let look = Look {
        run_nanoseconds: 0,
        delay_nanoseconds: 0,
        slices: 1,
    };
    let clock = || {
        let mut clock = CpuShares::default();
        let stack = Stack::of_phase(Names::IDLE);
        (0..100_000).for_each(|now| clock.add(now, look, Some(stack), |_, _| ()));
        clock
    };
    (0..WORKERS).map(|_| clock()).collect()
}

#[test]
fn the_tables_of_a_run_take_no_more_than_is_promised() {
    let ((names, ids), of_names) = taken(names);
    let of_names = of_names - ids.capacity() * size_of::<NameId>();
    let (tree, of_tree) = taken(|| tree(&ids));
    let (edges, of_edges) = taken(|| edges(&ids));
    let (sums, of_sums) = taken(sums);
    let (waiting, of_waiting) = taken(waiting);
    let all = [of_names, of_tree, of_edges, of_sums, of_waiting, MAX_BYTES];
    let sum: usize = all.iter().sum();
    println!("names, call tree, edges, sums, clocks, functions: {all:?}");
    assert!(sum <= TABLES, "{sum} bytes: {all:?}");
    drop((names, tree, edges, sums, waiting));
}
