//! Which paths of a call tree are found, and which count.

mod recorded;

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::stack::edges::{Edge, EdgeKnowledge};

#[test]
fn path_is_proven_to_its_first_open_edge() {
    let (mut edges, mut tree) = (Edges::default(), CallTree::default());
    let edge = Edge::of_root(FunctionNames::IDLE);
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
        1,
        CallPath::default(),
    );
    let middle = tree.add(main.unwrap(), FunctionNames::IDLE, 0, 2, open);
    let leaf = tree.add(
        middle.unwrap(),
        FunctionNames::COLLECTING,
        0,
        3,
        CallPath::default(),
    );
    let proven = |edges: &Edges| Some(tree.settle(edges).proven(leaf.unwrap()));
    assert_eq!(proven(&edges), main);
    edges.prove(edge, Relation::Nothing);
    assert_eq!(proven(&edges), leaf);
}

#[test]
fn nearest_calling_op_is_found() {
    let mut tree = CallTree::default();
    let mut add = |parent, name, op| tree.add(parent, name, op, op, CallPath::default()).unwrap();
    let main = [0, 4, 5].map(|op| add(PathId::NONE, FunctionNames::TRUNCATED, op));
    let idle = add(main[0], FunctionNames::IDLE, 0);
    add(main[0], FunctionNames::COLLECTING, 0);
    add(main[1], FunctionNames::COLLECTING, 0);
    let nearest = |tree: &CallTree, of, name| tree.nearest_op_that_calls(of, name);
    assert_eq!(nearest(&tree, main[2], FunctionNames::IDLE), Some(main[0]));
    assert_eq!(
        nearest(&tree, main[2], FunctionNames::COLLECTING),
        Some(main[1])
    );
    // Not the node itself, nor one at a later op, nor the parent of all roots.
    assert_eq!(nearest(&tree, main[0], FunctionNames::COLLECTING), None);
    assert_eq!(nearest(&tree, main[0], FunctionNames::IDLE), None);
    assert_eq!(nearest(&tree, PathId::NONE, FunctionNames::IDLE), None);
    // What single looks show again and again, but no two in a row, can be of two moments.
    (0..DOUBTFUL).for_each(|_| tree.count(idle, false));
    assert_eq!(nearest(&tree, main[2], FunctionNames::IDLE), None);
    tree.trust(idle);
    assert_eq!(nearest(&tree, main[2], FunctionNames::IDLE), Some(main[0]));
}

#[test]
fn candidate_is_known_after_a_certain_sample() {
    let edges = Edges::default();
    let candidate = CallPath {
        is_candidate: true,
        ..CallPath::default()
    };
    let shows = [
        (Some(candidate), false),
        (Some(CallPath::default()), true),
        // A quiescent read.
        (None, true),
    ];
    for (show, is_known) in shows {
        let mut tree = CallTree::default();
        let mut add = |parent, name, op, call| tree.add(parent, name, op, op, call).unwrap();
        let [main, later] = [0, 4].map(|op| {
            add(
                PathId::NONE,
                FunctionNames::TRUNCATED,
                op,
                CallPath::default(),
            )
        });
        let leaf = add(main, FunctionNames::IDLE, 0, candidate);
        match show {
            Some(call) => tree.note(leaf, call),
            None => tree.trust(leaf),
        }
        // Another candidate of a known call changes nothing.
        tree.note(leaf, candidate);
        assert_eq!(tree.call_of(main, FunctionNames::IDLE).is_some(), is_known);
        assert_eq!(tree.settle(&edges).is_proven(leaf), is_known);
        let calls = tree.nearest_op_that_calls(later, FunctionNames::IDLE);
        assert_eq!(calls, is_known.then_some(main));
    }
}

/// A tree in which the same op makes the same call by two paths: the callers, and their calls.
struct Scene {
    tree: CallTree,
    callers: [PathId; 2],
    calls: [PathId; 2],
}

impl Scene {
    fn new() -> Self {
        let mut tree = CallTree::default();
        let mut add =
            |parent, name, op| tree.add(parent, name, op, op, CallPath::default()).unwrap();
        let mains = [1, 2].map(|op| add(PathId::NONE, FunctionNames::TRUNCATED, op));
        let callers = mains.map(|main| add(main, FunctionNames::IDLE, 3));
        let calls = callers.map(|caller| add(caller, FunctionNames::COLLECTING, 4));
        Self {
            tree,
            callers,
            calls,
        }
    }

    /// Takes samples that show the first call standing or not.
    fn sample(&mut self, shown: impl IntoIterator<Item = bool>) {
        for stands in shown {
            self.tree.count(self.calls[0], stands);
        }
    }

    fn is_proven(&self) -> bool {
        self.tree.settle(&Edges::default()).is_proven(self.calls[0])
    }
}

#[test]
fn path_counts_to_the_first_doubtful_call() {
    let mut scene = Scene::new();
    scene.sample([false; 1000]);
    assert!(scene.is_proven(), "it stands nowhere");
    scene.tree.trust(scene.calls[1]);
    assert!(!scene.is_proven());
    let paths = scene.tree.settle(&Edges::default());
    let [caller, _] = scene.callers;
    assert_eq!(paths.proven(scene.calls[0]), caller);
    assert!(paths.is_proven(caller));
    scene.tree.trust(scene.calls[0]);
    assert!(scene.is_proven());
}

/// Calls at the greatest depth of a recursion are the shortest, so they stand the least.
#[test]
fn recursive_call_is_made_at_any_depth() {
    // Direct, and by way of another function; the callers of the call that stands, and of the one
    // that never does.
    let [main, f, g, h] = [
        FunctionNames::TRUNCATED,
        FunctionNames::IDLE,
        FunctionNames::COLLECTING,
        FunctionNames::COMPILING,
    ];
    let rows: [(&[NameId], &[NameId], bool); 7] = [
        (&[main, f], &[main, f, f, f], true),
        (&[main, f, f, f], &[main, f], true),
        (&[main, f, f], &[main, f, f, f], true),
        (&[main, f, g, f], &[main, f, g, f, g, f], true),
        (&[main, f], &[main, f, g, f], true),
        // Below another function: a mixture of two call paths would look like that.
        (&[main, h, f], &[main, f, f, f], false),
        (&[main, f, f, h], &[main, f, f, f, g, h], false),
    ];
    for (stands, never, is_proven) in rows {
        let mut tree = CallTree::default();
        let mut path = |functions: &[NameId]| {
            let functions = functions.iter().chain([&FunctionNames::UNSTABLE]);
            functions.fold(PathId::NONE, |above, &name| {
                let op = 3;
                tree.child(above, name, op)
                    .unwrap_or_else(|| tree.add(above, name, op, op, CallPath::default()).unwrap())
            })
        };
        let (stands_at, never_at) = (path(stands), path(never));
        tree.trust(stands_at);
        (0..1000).for_each(|_| tree.count(never_at, false));
        let paths = tree.settle(&Edges::default());
        assert_eq!(paths.is_proven(never_at), is_proven, "{stands:?} {never:?}");
    }
}

/// The same function at another op, or another function at the same op, says nothing of a call.
#[test]
fn only_the_same_call_raises_doubt() {
    for (name, op) in [
        (FunctionNames::COLLECTING, 2),
        (FunctionNames::TRUNCATED, 3),
    ] {
        let mut scene = Scene::new();
        scene.sample([false; 1000]);
        let mut add = |parent, name, op| scene.tree.add(parent, name, op, op, CallPath::default());
        let caller = add(PathId::NONE, FunctionNames::IDLE, op).unwrap();
        let other = add(caller, name, 4).unwrap();
        scene.tree.trust(other);
        assert!(scene.is_proven());
    }
}

#[test]
fn call_stands_after_two_samples() {
    let is_proven = |before: &[bool], after: usize| {
        let mut scene = Scene::new();
        scene.tree.trust(scene.calls[1]);
        scene.sample(before.iter().copied());
        scene.sample(std::iter::repeat_n(false, after));
        scene.is_proven()
    };
    assert!(is_proven(&[], 15));
    assert!(!is_proven(&[], 16));
    assert!(is_proven(&[true, true], 1000));
    // One of twelve, after a thousand that do not show it.
    let one_of_twelve: Vec<bool> = (0..1240).map(|n| n > 1000 && n % 12 == 0).collect();
    assert!(is_proven(&one_of_twelve, 1000));
    let one_of_a_thousand: Vec<bool> = (1..100_000).map(|n| n % 1000 == 0).collect();
    assert!(!is_proven(&one_of_a_thousand, 100));
}

#[test]
fn paths_that_are_shown_alike_are_one() {
    let mut tree = CallTree::default();
    let mut add = |parent, op, line, is_hidden| {
        let call = CallPath {
            is_hidden,
            ..CallPath::default()
        };
        tree.add(parent, FunctionNames::IDLE, op, line, call)
            .unwrap()
    };
    let one = add(PathId::NONE, 1, 7, false);
    let same_line = add(PathId::NONE, 2, 7, false);
    let below = [add(one, 3, 8, false), add(same_line, 3, 8, false)];
    let other_line = add(PathId::NONE, 4, 9, false);
    let paths = tree.settle(&Edges::default());
    assert_eq!(paths.proven(same_line), one);
    assert_eq!(paths.proven(below[0]), paths.proven(below[1]));
    assert!(paths.proven(other_line) != one);
    assert!(paths.is_proven(same_line) && paths.is_proven(below[1]));
}

proptest! {
    #[test]
    fn added_paths_are_always_found(
        asked in proptest::collection::vec((0..6_usize, 0..3_usize, 0..3_u32), 1..60)
    ) {
        let names = [FunctionNames::IDLE, FunctionNames::TRUNCATED, FunctionNames::COLLECTING];
        let (mut tree, mut model) = (CallTree::default(), HashMap::new());
        let mut paths = vec![PathId::NONE];
        for (parent, name, op) in asked {
            let (parent, name) = (paths[parent % paths.len()], names[name]);
            let known = model.get(&(parent, name, op)).copied();
            prop_assert_eq!(tree.child(parent, name, op), known);
            let has_call = model.keys().any(|&(of, known, _)| (of, known) == (parent, name));
            prop_assert_eq!(tree.call_of(parent, name).is_some(), has_call);
            if known.is_none() {
                let added = tree.add(parent, name, op, 0, CallPath::default()).unwrap();
                model.insert((parent, name, op), added);
                paths.push(added);
            }
        }
    }
}

#[test]
fn paths_have_a_bound() {
    let mut tree = CallTree::default();
    let added = (0..70_000).filter_map(|op| {
        tree.add(
            PathId::NONE,
            FunctionNames::IDLE,
            op,
            0,
            CallPath::default(),
        )
    });
    assert_eq!(added.count(), MAX_PATHS - 1);
}

const NAMES: [NameId; 2] = [FunctionNames::IDLE, FunctionNames::COLLECTING];

/// Fills the tree up to so many nodes with roots.
fn fill(tree: &mut CallTree, until: usize) {
    for op in 0..(until - tree.nodes.len()) {
        let op = u32::try_from(op).unwrap() + 1000;
        let call = CallPath::default();
        tree.add(PathId::NONE, FunctionNames::STARTUP, op, 0, call);
    }
}

#[test]
fn recursion_is_folded_once_the_tree_fills() {
    let (mut tree, names) = (CallTree::default(), [NAMES[0], NAMES[1]]);
    let [expression, term] = names;
    let add = |tree: &mut CallTree, parent, name, op| {
        tree.add(parent, name, op, 0, CallPath::default()).unwrap()
    };
    let outer = add(&mut tree, PathId::NONE, expression, 1);
    let inner = add(&mut tree, outer, term, 2);
    assert!(tree.folded(inner, expression).is_none());
    fill(&mut tree, FOLDED_FROM);
    // The recursion's next call is where its last one is.
    let (below, _) = tree.folded(inner, expression).unwrap();
    assert_eq!(below, PathId::NONE);
    assert_eq!(tree.child(below, expression, 1), Some(outer));
    let (below, _) = tree.folded(inner, term).unwrap();
    assert_eq!(below, outer);
    // What has not called itself has a node of its own.
    assert!(tree.folded(outer, term).is_none());
    // The first of several calls counts.
    let deep = add(&mut tree, inner, expression, 1);
    let (below, _) = tree.folded(deep, expression).unwrap();
    assert_eq!(below, PathId::NONE);
}

#[test]
fn last_room_is_for_the_first_callers() {
    let mut tree = CallTree::default();
    let mut path = PathId::NONE;
    let call = CallPath::default;
    let mut chain = Vec::new();
    for op in 0..30 {
        path = tree.add(path, NAMES[0], op, 0, call()).unwrap();
        chain.push(path);
    }
    fill(&mut tree, SHALLOW_FROM);
    assert_eq!(tree.add(chain[SHALLOW], NAMES[1], 1, 0, call()), None);
    assert!(
        tree.add(chain[SHALLOW - 1], NAMES[1], 1, 0, call())
            .is_some()
    );
    assert!(tree.add(PathId::NONE, NAMES[1], 1, 0, call()).is_some());
}
