//! Stacks joined by their common beginnings, for flame graphs.
//!
//! It lays out nothing. It ignores lines, and drops values that are not positive.
//!
//! Invariant: node 0 is the root. A parent comes before its children, and its value is at least the
//! sum of theirs.

use std::collections::HashMap;

use crate::lookup::Lookup;
use crate::noise::squared_error;
use crate::proto::Profile;
use crate::stacks::{FunctionRef, Numbers, Stacks, View, ViewError};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeNode<'a> {
    /// `None` for the root, which contains everything.
    pub function: Option<FunctionRef<'a>>,
    pub depth: usize,
    pub children: Vec<usize>,
    pub value: i64,
    /// The value in the other profile of a comparison.
    pub before: i64,
    /// Squared errors of the two values, before and after, in a tree that compares.
    pub errors: [f64; 2],
}

#[derive(Debug)]
pub struct FrameTree<'a> {
    pub nodes: Vec<TreeNode<'a>>,
    known: HashMap<(usize, FunctionRef<'a>), usize>,
}

/// The value of a node that a profile adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl<'a> FrameTree<'a> {
    pub fn of(stacks: &Stacks<'a>) -> Self {
        let mut tree = FrameTree {
            nodes: vec![TreeNode::default()],
            known: HashMap::new(),
        };
        tree.add(stacks);
        tree.sort();
        tree
    }

    /// The tree of `after`, each node with its value in `before`. A node that is only in `before`
    /// has the value 0. Functions are the same if name and file are equal, because a start line
    /// moves with every edit above it. The view names its sample type.
    pub fn compared(
        before: &'a Profile,
        after: &'a Profile,
        view: &View,
    ) -> Result<Self, ViewError> {
        let mut tree = FrameTree {
            nodes: vec![TreeNode::default()],
            known: HashMap::new(),
        };
        tree.add_samples(after, view, Side::After)?;
        tree.add_samples(before, view, Side::Before)?;
        tree.sort();
        Ok(tree)
    }

    fn add(&mut self, stacks: &Stacks<'a>) {
        for (steps, value) in stacks.chosen().filter(|(_, value)| *value > 0) {
            let functions = steps
                .iter()
                .filter_map(|(function, _)| stacks.functions.get(*function));
            self.add_stack(functions, value, 0.0, Side::After);
        }
    }

    fn add_samples(
        &mut self,
        profile: &'a Profile,
        view: &View,
        side: Side,
    ) -> Result<(), ViewError> {
        let chosen = view.index(profile)?;
        let count = profile.value_index("samples");
        let lookup = Lookup::new(profile);
        let mut numbers = Numbers::default();
        for sample in &profile.sample {
            let value = sample.value.get(chosen).copied().unwrap_or(0);
            if value <= 0 || !view.has_labels(profile, sample) {
                continue;
            }
            let steps = numbers.steps(&lookup, sample, true);
            let functions = steps
                .iter()
                .filter_map(|(function, _)| numbers.functions.get(*function));
            let error = squared_error(sample, value, count);
            self.add_stack(functions, value, error, side);
        }
        Ok(())
    }

    fn add_stack<'s>(
        &mut self,
        functions: impl Iterator<Item = &'s FunctionRef<'a>>,
        value: i64,
        error: f64,
        side: Side,
    ) where
        'a: 's,
    {
        let mut at = 0;
        self.count(at, value, error, side);
        for function in functions {
            at = self.child(at, *function);
            self.count(at, value, error, side);
        }
    }

    fn count(&mut self, at: usize, value: i64, error: f64, side: Side) {
        if let Some(node) = self.nodes.get_mut(at) {
            let [error_before, error_after] = &mut node.errors;
            let (sum, errors) = match side {
                Side::After => (&mut node.value, error_after),
                Side::Before => (&mut node.before, error_before),
            };
            *sum = sum.saturating_add(value);
            *errors += error;
        }
    }

    fn child(&mut self, parent: usize, function: FunctionRef<'a>) -> usize {
        let next = self.nodes.len();
        let child = *self.known.entry((parent, function)).or_insert(next);
        if child == next {
            let depth = self.nodes.get(parent).map_or(0, |node| node.depth) + 1;
            self.nodes.push(TreeNode {
                function: Some(function),
                depth,
                ..TreeNode::default()
            });
            if let Some(node) = self.nodes.get_mut(parent) {
                node.children.push(child);
            }
        }
        child
    }

    /// Sorts by name, so that equal profiles give equal pictures and two pictures can be compared.
    fn sort(&mut self) {
        for index in 0..self.nodes.len() {
            let Some(node) = self.nodes.get_mut(index) else {
                continue;
            };
            let mut children = std::mem::take(&mut node.children);
            children.sort_by_key(|child| self.nodes.get(*child).and_then(|node| node.function));
            if let Some(node) = self.nodes.get_mut(index) {
                node.children = children;
            }
        }
    }
}
