//! All that a walk has counted, by path and kind, with names.
//!
//! Invariant: a path's names are those of [`super::names`]; a class has a name only if one of its
//! objects was still there after the name was read.

use crate::memory::Memory;

use super::super::objects::ClassKey;
use super::super::seen::SeenBlocks;
use super::names::UNKNOWN;
use super::paths::PathTree;
use super::{HeldAmount, HeldCount, HeldKind, HeldMemory, HeldObjects};

/// How many classes have a name.
const MAX_NAMED: usize = 2048;

/// How much of one kind a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRow {
    /// The number of the path; 0 is that of the root.
    pub path: usize,
    /// What is held.
    pub kind: HeldKind,
    /// How much of it.
    pub amount: HeldAmount,
}

/// The last step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathStep {
    /// The number of the path before it, which is smaller.
    pub before: usize,
    /// In PHP's syntax.
    pub name: String,
}

impl HeldObjects {
    /// Reads the classes' names, and returns the last step of each path from number 1 on. Once the
    /// time is over, steps have no names, and the walk is not whole.
    pub fn named<M: Memory + ?Sized>(
        &mut self,
        place: &HeldMemory<'_, M>,
        is_over: &dyn Fn() -> bool,
    ) -> Vec<PathStep> {
        let (memory, layout) = (place.memory, place.layout);
        let totals = std::mem::take(&mut self.totals);
        self.classes = totals.named(memory, layout, MAX_NAMED).classes;
        let mut steps = Vec::new();
        for number in 1..=self.paths.count() {
            let mut name = String::new();
            let path = PathTree::path(number);
            let before = self.paths.before(path);
            if is_over() {
                name.push_str(UNKNOWN);
                self.is_whole = false;
            } else {
                self.paths.show_last(memory, layout, path, &mut name);
            }
            let before = PathTree::index(before);
            steps.push(PathStep { before, name });
        }
        steps
    }

    /// What each path leads to.
    pub fn rows(&self) -> impl Iterator<Item = HeldRow> {
        let paths = self.held.iter().enumerate();
        paths.flat_map(|(path, held)| {
            held.iter()
                .map(move |&HeldCount { kind, amount }| HeldRow { path, kind, amount })
        })
    }

    /// The name of a class, once it is read.
    pub fn class_name(&self, key: ClassKey) -> Option<&str> {
        let mut classes = self.classes.iter();
        let class = classes.find(|class| class.keys.contains(&key))?;
        Some(&class.name)
    }

    /// The blocks that the walk has seen, which are not kept.
    pub fn take_seen(&mut self) -> SeenBlocks {
        std::mem::take(&mut self.seen)
    }
}
