//! What an aggregate keeps of the samples that it is given.

use super::*;
use crate::request::values::{RequestValues, Set};
use crate::stack::call_tree::CallPath;
use crate::stack::edges::{Edge, EdgeKnowledge};
use phpprof_zend::site::Relation;

/// The lines of all stacks with their sums, of a tree `[truncated] -> [idle]` whose second edge is
/// open.
fn settled(
    stack: impl Fn(PathId) -> SummedStack,
    is_proven: bool,
) -> (Vec<(Vec<FrameLine>, StackSum)>, i64) {
    let (mut edges, mut tree, mut aggregate) =
        (Edges::default(), CallTree::default(), Aggregate::default());
    let edge = Edge {
        site: (FunctionNames::TRUNCATED, 4),
        via: None,
        callee: FunctionNames::IDLE,
    };
    let EdgeKnowledge::Open(id) = edges.open(edge) else {
        panic!("not open")
    };
    let open = CallPath {
        edge: Some(id),
        ..CallPath::default()
    };
    let main = tree.add(
        PathId::NONE,
        FunctionNames::TRUNCATED,
        0,
        7,
        CallPath::default(),
    );
    let leaf = tree
        .add(main.unwrap(), FunctionNames::IDLE, 0, 8, open)
        .unwrap();
    aggregate.add(stack(leaf), 42, 10);
    aggregate.add(stack(leaf), 42, 10);
    let cpu = StackSum {
        cpu_nanoseconds: 5,
        ..StackSum::default()
    };
    aggregate.merge(stack(leaf).into(), 42, cpu);
    if is_proven {
        edges.prove(edge, Relation::Nothing);
    }
    let settled = aggregate.settle(&tree, &edges);
    let (stacks, unstable) = settled.sum();
    let lines = |stack: &Settlement| {
        let mut lines = Vec::new();
        settled.lines(stack, &mut lines);
        (lines, stack.sum)
    };
    (stacks.iter().map(lines).collect(), unstable)
}

const SUM: StackSum = StackSum {
    samples: 2,
    wall_nanoseconds: 20,
    cpu_nanoseconds: 5,
    heap_growth: 0,
    heap_change: 0,
    fibers: 0,
    suspended_nanoseconds: 0,
};

#[track_caller]
fn check(stack: SummedStack, is_proven: bool, leaves: &[FrameLine], unstable: i64) {
    let of = |path| SummedStack { path, ..stack };
    let (stacks, cut) = settled(of, is_proven);
    let lines = [&[(FunctionNames::TRUNCATED, 7)], leaves].concat();
    assert_eq!((stacks, cut), (vec![(lines, SUM)], unstable));
}

#[test]
fn suspended_fibers_are_of_no_sample() {
    let (edges, tree, mut aggregate) =
        (Edges::default(), CallTree::default(), Aggregate::default());
    let fibers = StackSum {
        fibers: 25,
        suspended_nanoseconds: 250,
        ..StackSum::default()
    };
    let stack = SummedStack::of_phase(FunctionNames::SUSPENDED);
    aggregate.add(SummedStack::of_phase(FunctionNames::IDLE), 42, 10);
    aggregate.merge(stack.into(), 42, fibers);
    let mut all = Aggregate::default();
    all.merge(stack.into(), 42, fibers);
    all.absorb(aggregate);
    let (stacks, _) = all.settle(&tree, &edges).sum();
    let sums: Vec<_> = stacks.iter().map(|stack| stack.sum).collect();
    let twice = StackSum {
        fibers: 50,
        suspended_nanoseconds: 500,
        ..StackSum::default()
    };
    assert_eq!(sums, [StackSum::of_one(10), twice]);
}

#[test]
fn proof_of_its_edge_makes_a_stack_whole() {
    let stack = SummedStack {
        path: PathId::NONE,
        ending: Ending::Whole,
        phase: None,
        candidate: PathId::NONE,
    };
    check(stack, false, &[(FunctionNames::UNSTABLE, 0)], 2);
    check(stack, true, &[(FunctionNames::IDLE, 8)], 0);
}

#[test]
fn proven_candidate_replaces_its_path() {
    let candidate_of = |path| SummedStack {
        path: PathId::NONE,
        ending: Ending::Cut,
        phase: None,
        candidate: path,
    };
    let (stacks, unstable) = settled(candidate_of, true);
    let lines = vec![(FunctionNames::TRUNCATED, 7), (FunctionNames::IDLE, 8)];
    assert_eq!((stacks, unstable), (vec![(lines, SUM)], 0));
    let (stacks, unstable) = settled(candidate_of, false);
    let lines = vec![(FunctionNames::UNSTABLE, 0)];
    assert_eq!((stacks, unstable), (vec![(lines, SUM)], 2));
}

/// What becomes known of a sample later has to find the key of its sample.
#[test]
fn candidates_that_find_no_room_are_left_out() {
    let (mut tree, mut aggregate) = (CallTree::default(), Aggregate::default());
    let stack = |candidate| SummedStack {
        candidate,
        ..SummedStack::of_phase(FunctionNames::IDLE)
    };
    for op in 0..30_000 {
        let added = tree.add(
            PathId::NONE,
            FunctionNames::IDLE,
            op,
            op,
            CallPath::default(),
        );
        let sample = stack(added.unwrap()).into();
        aggregate.add(sample, 42, 1);
        aggregate.merge(sample, 42, StackSum::default());
    }
    assert_eq!(aggregate.sums.len(), MAX_WITH_CANDIDATE + 1);
    let left = (stack(PathId::NONE).into(), 42);
    let samples = aggregate.sums.get(&left).map(|times| times[0]);
    assert_eq!(samples, Some(30_000 - MAX_WITH_CANDIDATE as i64));
}

#[test]
fn phase_is_leaf_of_a_whole_stack() {
    let stack = |ending| SummedStack {
        path: PathId::NONE,
        ending,
        phase: Some(FunctionNames::COMPILING),
        candidate: PathId::NONE,
    };
    let whole = (FunctionNames::IDLE, 8);
    check(
        stack(Ending::Whole),
        true,
        &[whole, (FunctionNames::COMPILING, 0)],
        0,
    );
    check(
        stack(Ending::Whole),
        false,
        &[(FunctionNames::UNSTABLE, 0)],
        2,
    );
    check(
        stack(Ending::Cut),
        true,
        &[whole, (FunctionNames::UNSTABLE, 0)],
        2,
    );
    check(
        stack(Ending::Full),
        true,
        &[whole, (FunctionNames::OVERFLOW, 0)],
        0,
    );
}

#[test]
fn heap_changes_stand_beside_the_samples() {
    let mut aggregate = Aggregate::default();
    let stack = SummedStack::of_phase(FunctionNames::IDLE);
    aggregate.add(stack, 7, 1);
    aggregate.add(stack, 8, 1);
    let heap = StackSum {
        heap_growth: 5,
        heap_change: -3,
        ..StackSum::default()
    };
    aggregate.merge(stack.into(), 7, heap);
    aggregate.merge(stack.into(), 7, heap);
    let settled = aggregate.settle(&CallTree::default(), &Edges::default());
    let (stacks, _) = settled.sum();
    let sums = stacks.iter().map(|stack| {
        let sum = stack.sum;
        (sum.samples, sum.heap_growth, sum.heap_change)
    });
    assert_eq!(sums.collect::<Vec<_>>(), [(1, 10, -6), (1, 0, 0)]);
}

#[test]
fn workers_that_find_no_room_are_summed_together() {
    let mut aggregate = Aggregate::default();
    let stack = SummedStack::of_phase(FunctionNames::IDLE);
    (1..100_000).for_each(|tid| aggregate.add(stack, tid, 1));
    assert_eq!(aggregate.sums.len(), MAX_BY_WORKER + 1);
    let settled = aggregate.settle(&CallTree::default(), &Edges::default());
    let (stacks, _) = settled.sum();
    let all: i64 = stacks.iter().map(|stack| stack.sum.samples).sum();
    assert_eq!(all, 99_999);
    assert!(stacks.iter().any(|stack| stack.tid == ANY_WORKER));
}

/// A thousand routes, with a hundred stacks each.
#[test]
fn labels_without_room_leave_their_stacks() {
    let (mut values, mut tree) = (RequestValues::default(), CallTree::default());
    let mut aggregate = Aggregate::default();
    let routes = (0..1000).map(|route| {
        let route: Set = std::array::from_fn(|label| if label == 0 { route + 1 } else { 0 });
        values.set(route)
    });
    let routes: Vec<SetId> = routes.collect();
    for op in 0..100 {
        let call = CallPath::default();
        let path = tree.add(PathId::NONE, FunctionNames::IDLE, op, op, call);
        for &labels in &routes {
            let stack = SummedStack {
                path: path.unwrap(),
                ending: Ending::Whole,
                phase: None,
                candidate: PathId::NONE,
            };
            let sample = Labelled {
                labels,
                ..stack.into()
            };
            aggregate.add(sample, 42, 1);
        }
    }
    let settled = aggregate.settle(&tree, &Edges::default());
    let (stacks, _) = settled.sum();
    assert!(stacks.iter().all(|stack| stack.leaf.is_none()));
    let is_bare = |stack: &&Settlement| stack.labels == SetId::default();
    let bare = stacks.iter().filter(is_bare).map(|stack| stack.sum.samples);
    let bare: i64 = bare.sum();
    assert_eq!(settled.without_labels, bare);
    assert_eq!(bare, 100_000 - MAX_BY_LABELS as i64);
    let all: i64 = stacks.iter().map(|stack| stack.sum.samples).sum();
    assert_eq!(all, 100_000);
}

#[test]
fn stacks_without_room_are_summed_as_overflow() {
    let (mut tree, mut aggregate) = (CallTree::default(), Aggregate::default());
    let edges = Edges::default();
    let mut path = PathId::NONE;
    for op in 0..57_000 {
        let added = tree.add(
            PathId::NONE,
            FunctionNames::IDLE,
            op,
            op,
            CallPath::default(),
        );
        path = added.unwrap_or(path);
        for ending in [Ending::Whole, Ending::Cut] {
            let stack = SummedStack {
                path,
                ending,
                phase: None,
                candidate: PathId::NONE,
            };
            aggregate.add(stack, 42, 1);
        }
    }
    assert_eq!(aggregate.sums.len(), MAX_SUMS);
    // What has no stack is not counted for its labels, too.
    let labels = RequestValues::default().set(Set::from([1; 5]));
    let unknown = SummedStack::of_phase(FunctionNames::COMPILING);
    let labelled = Labelled {
        labels,
        ..unknown.into()
    };
    aggregate.add(labelled, 42, 1);
    assert_eq!(aggregate.without_labels, 0);
    let settled = aggregate.settle(&tree, &edges);
    let (stacks, _) = settled.sum();
    let all: i64 = stacks.iter().map(|stack| stack.sum.samples).sum();
    assert_eq!(all, 114_001);
    let over = stacks
        .iter()
        .find(|stack| stack.leaf == Some(FunctionNames::OVERFLOW));
    assert!(over.is_some_and(|over| over.sum.samples > 50_000));
}
