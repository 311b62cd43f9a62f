//! The paths of a profile of what is in heaps, as a tree from what PHP keeps itself, with the sums
//! of one or of two profiles; and which of its paths are worth a line.
//!
//! It knows no units and makes no text.
//!
//! Invariant: a node's parent has a smaller number, and its sums contain those of its children.

use std::collections::{BinaryHeap, HashMap};

use super::amount::InUseAmount;
use crate::builder::IN_USE;
use crate::lookup::Lookup;
use crate::proto::Profile;

/// A step of a path.
#[derive(Debug, Default)]
struct PathNodeInUse<'a> {
    parent: usize,
    name: &'a str,
    /// All that is reached through here, before and after.
    sums: [InUseAmount; 2],
    children: Vec<usize>,
}

/// The tree. Node 0 is the parent of all roots.
#[derive(Debug)]
pub(super) struct InUseTree<'a> {
    nodes: Vec<PathNodeInUse<'a>>,
    numbers: HashMap<(usize, &'a str), usize>,
    /// What is held, by its name: the sums of the leaves.
    pub(super) leaves: HashMap<&'a str, [InUseAmount; 2]>,
    /// Whether growth counts, and not what is there.
    is_of_two: bool,
}

impl<'a> InUseTree<'a> {
    /// The tree of a profile, or of how it grew from an earlier one.
    pub(super) fn of(before: Option<&'a Profile>, after: &'a Profile) -> Self {
        let mut tree = InUseTree {
            nodes: vec![PathNodeInUse::default()],
            numbers: HashMap::new(),
            leaves: HashMap::new(),
            is_of_two: before.is_some(),
        };
        for (side, profile) in [before, Some(after)].into_iter().enumerate() {
            if let Some(profile) = profile {
                tree.add(side, profile);
            }
        }
        tree
    }

    fn add(&mut self, side: usize, profile: &'a Profile) {
        let lookup = Lookup::new(profile);
        let index = IN_USE.map(|(name, _)| profile.value_index(name));
        let mut names: Vec<&'a str> = Vec::new();
        for sample in &profile.sample {
            let value = |index: Option<usize>| index.and_then(|it| sample.value.get(it).copied());
            let [count, bytes] = index.map(|index| value(index).unwrap_or(0));
            let amount = InUseAmount { count, bytes };
            names.clear();
            names.extend(lookup.frames(sample).map(|frame| frame.name));
            if let Some(leaf) = names.first() {
                let sums = self.leaves.entry(leaf).or_default();
                add(sums, side, amount);
            }
            let mut at = 0;
            self.count(at, side, amount);
            for name in names.iter().rev() {
                at = self.child(at, name);
                self.count(at, side, amount);
            }
        }
    }

    fn child(&mut self, parent: usize, name: &'a str) -> usize {
        let next = self.nodes.len();
        let number = *self.numbers.entry((parent, name)).or_insert(next);
        if number == next {
            self.nodes.push(PathNodeInUse {
                parent,
                name,
                ..PathNodeInUse::default()
            });
            if let Some(node) = self.nodes.get_mut(parent) {
                node.children.push(number);
            }
        }
        number
    }

    fn count(&mut self, node: usize, side: usize, amount: InUseAmount) {
        if let Some(node) = self.nodes.get_mut(node) {
            add(&mut node.sums, side, amount);
        }
    }

    /// Everything, before and after.
    pub(super) fn total(&self) -> [InUseAmount; 2] {
        self.sums(0)
    }

    /// All below the root of this name.
    pub(super) fn root(&self, name: &str) -> [InUseAmount; 2] {
        let roots = self.children(0).iter();
        let is_it = |node: &&usize| self.nodes.get(**node).is_some_and(|it| it.name == name);
        roots
            .copied()
            .find(|node| is_it(&node))
            .map_or_else(Default::default, |node| self.sums(node))
    }

    pub(super) fn sums(&self, node: usize) -> [InUseAmount; 2] {
        self.nodes.get(node).map(|it| it.sums).unwrap_or_default()
    }

    /// The names from the root to a node.
    pub(super) fn path(&self, node: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = node;
        while let Some(step) = self.nodes.get(at).filter(|_| at != 0) {
            names.push(step.name.to_owned());
            at = step.parent;
        }
        names.reverse();
        names
    }

    /// What a node counts for: its bytes, or by how much they grew.
    fn weight(&self, node: usize) -> i64 {
        weight(self.sums(node), self.is_of_two)
    }

    fn children(&self, node: usize) -> &[usize] {
        self.nodes.get(node).map_or(&[], |it| &it.children)
    }

    /// At most this many nodes whose paths say most, those with the largest weight first, none
    /// below this weight. A path goes on as long as nearly all of it does, so that it names what
    /// is held; where it divides, its parts have lines of their own.
    pub(super) fn lines(&self, most: usize, least: i64) -> Vec<usize> {
        let is_enough = |weight: i64| weight > 0 && weight >= least;
        let mut open: BinaryHeap<(i64, std::cmp::Reverse<usize>)> = BinaryHeap::new();
        let push = |open: &mut BinaryHeap<_>, nodes: &[usize], without: Option<usize>| {
            let others = nodes.iter().filter(|node| Some(**node) != without);
            let weighed = others.map(|node| (self.weight(*node), std::cmp::Reverse(*node)));
            open.extend(weighed.filter(|(weight, _)| is_enough(*weight)));
        };
        push(&mut open, self.children(0), None);
        let mut lines = Vec::new();
        while let Some((_, std::cmp::Reverse(begin))) = open.pop().filter(|_| lines.len() < most) {
            let mut at = begin;
            while let Some(next) = self.main_child(at) {
                push(&mut open, self.children(at), Some(next));
                at = next;
            }
            push(&mut open, self.children(at), None);
            lines.push(at);
        }
        lines.sort_by_key(|node| (std::cmp::Reverse(self.weight(*node)), *node));
        lines
    }

    /// The child that has nearly all of a node's weight, if one has.
    fn main_child(&self, node: usize) -> Option<usize> {
        let children = self.children(node).iter().copied();
        let largest = children.max_by_key(|child| (self.weight(*child), std::cmp::Reverse(*child)));
        let all = self.weight(node);
        largest.filter(|child| self.weight(*child) >= all - all / 5)
    }
}

/// What counts of two sums: the growth, or the later one alone.
pub(super) fn weight([before, after]: [InUseAmount; 2], is_of_two: bool) -> i64 {
    if is_of_two {
        after.bytes.saturating_sub(before.bytes)
    } else {
        after.bytes
    }
}

fn add(sums: &mut [InUseAmount; 2], side: usize, amount: InUseAmount) {
    if let Some(sum) = sums.get_mut(side) {
        *sum = sum.and(amount);
    }
}
