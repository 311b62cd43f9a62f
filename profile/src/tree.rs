//! Stacks joined by their common beginnings, for flame graphs.
//!
//! It lays out nothing. It ignores lines, and drops values that are not positive.
//!
//! Invariant: node 0 is the root. A parent comes before its children, and its value is at least the sum of theirs.

use std::collections::HashMap;

use crate::stacks::{Function, Stacks};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node<'a> {
    /// `None` for the root, which contains everything.
    pub function: Option<Function<'a>>,
    pub depth: usize,
    pub children: Vec<usize>,
    pub value: i64,
    /// The value in the other profile of a comparison.
    pub before: i64,
}

#[derive(Debug)]
pub struct Tree<'a> {
    pub nodes: Vec<Node<'a>>,
    known: HashMap<(usize, Function<'a>), usize>,
}

/// The value of a node that a profile adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

impl<'a> Tree<'a> {
    pub fn of(stacks: &Stacks<'a>) -> Self {
        let mut tree = Tree {
            nodes: vec![Node::default()],
            known: HashMap::new(),
        };
        tree.add(stacks, Side::After);
        tree.sort();
        tree
    }

    /// The tree of `after`, each node with its value in `before`. A node that is only in `before` has the value 0. Functions are the same
    /// if name and file are equal, because a start line moves with every edit above it.
    pub fn compared(before: &Stacks<'a>, after: &Stacks<'a>) -> Self {
        let mut tree = Tree {
            nodes: vec![Node::default()],
            known: HashMap::new(),
        };
        tree.add(&without_lines(after), Side::After);
        tree.add(&without_lines(before), Side::Before);
        tree.sort();
        tree
    }

    fn add(&mut self, stacks: &Stacks<'a>, side: Side) {
        for (steps, value) in stacks.chosen().filter(|(_, value)| *value > 0) {
            let mut at = 0;
            self.count(at, value, side);
            for (function, _) in steps {
                let Some(function) = stacks.functions.get(*function) else {
                    continue;
                };
                at = self.child(at, *function);
                self.count(at, value, side);
            }
        }
    }

    fn count(&mut self, at: usize, value: i64, side: Side) {
        if let Some(node) = self.nodes.get_mut(at) {
            let sum = match side {
                Side::After => &mut node.value,
                Side::Before => &mut node.before,
            };
            *sum = sum.saturating_add(value);
        }
    }

    fn child(&mut self, parent: usize, function: Function<'a>) -> usize {
        let next = self.nodes.len();
        let child = *self.known.entry((parent, function)).or_insert(next);
        if child == next {
            let depth = self.nodes.get(parent).map_or(0, |node| node.depth) + 1;
            self.nodes.push(Node {
                function: Some(function),
                depth,
                ..Node::default()
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

fn without_lines<'a>(stacks: &Stacks<'a>) -> Stacks<'a> {
    let mut stacks = stacks.clone();
    for function in &mut stacks.functions {
        function.start_line = 0;
    }
    stacks
}
