//! The paths to what a heap has, as a tree: paths with the same beginning share it.
//!
//! Invariant: a step that repeats, as along a list, does not make a path longer; there are at most
//! [`MAX_PATHS`] paths of at most [`MAX_DEPTH`] steps.

use crate::layouts::Layout;
use crate::memory::Memory;

use super::names::{separator, show_step};
use super::steps::HoldingStep;

/// How many paths are told apart; what further ones lead to has the path before them.
pub const MAX_PATHS: usize = 1 << 14;
/// How many steps a path has; what is further has the path up to there.
const MAX_DEPTH: u8 = 24;
/// The longest text of a path, in bytes; of a longer one, its end is shown.
const MAX_TEXT: usize = 480;

/// The number of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HeldPath(u32);

#[derive(Debug, Clone, Copy)]
struct PathRow {
    parent: HeldPath,
    step: HoldingStep,
    depth: u8,
    /// The newest path that has one more step, and the one of the same parent before this one; the
    /// root for none.
    child: HeldPath,
    sibling: HeldPath,
}

/// All paths.
#[derive(Debug, Default)]
pub struct PathTree {
    /// Those after the root, which has the number 0.
    rows: Vec<PathRow>,
    /// The root's newest child.
    first: HeldPath,
}

impl PathTree {
    /// The path that has one more step.
    pub fn child(&mut self, parent: HeldPath, step: HoldingStep) -> HeldPath {
        let before = self.row(parent);
        if before.is_some_and(|row| row.step == step) {
            return parent;
        }
        // Of children in arrays, two steps repeat. An element of a list in an element of a list is
        // not a repetition.
        let two_before = before.filter(|_| !step.is_key()).map(|row| row.parent);
        let repeats = two_before.filter(|&it| self.row(it).is_some_and(|row| row.step == step));
        if let Some(same) = repeats {
            return same;
        }
        let depth = before.map_or(0, |row| row.depth);
        let newest = before.map_or(self.first, |row| row.child);
        let mut known = newest;
        while let Some(row) = self.row(known) {
            if row.step == step {
                return known;
            }
            known = row.sibling;
        }
        if self.rows.len() >= MAX_PATHS || depth >= MAX_DEPTH {
            return parent;
        }
        self.rows.push(PathRow {
            parent,
            step,
            depth: depth + 1,
            child: HeldPath::default(),
            sibling: newest,
        });
        let id = HeldPath(self.rows.len() as u32);
        match self.rows.get_mut((parent.0 as usize).wrapping_sub(1)) {
            Some(row) => row.child = id,
            None => self.first = id,
        }
        id
    }

    /// The index of a path in a list of all, whose first place is the root's.
    pub fn index(path: HeldPath) -> usize {
        path.0 as usize
    }

    /// The path with this index.
    pub fn path(index: usize) -> HeldPath {
        HeldPath(index as u32)
    }

    /// How many there are, without the root.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The path before a path's last step.
    pub fn before(&self, path: HeldPath) -> HeldPath {
        self.row(path).map_or(path, |row| row.parent)
    }

    /// Appends the name of a path's last step.
    pub fn show_last<M: Memory + ?Sized>(
        &self,
        memory: &M,
        layout: &Layout,
        path: HeldPath,
        text: &mut String,
    ) {
        if let Some(row) = self.row(path) {
            show_step(memory, layout, row.step, text);
        }
    }

    fn row(&self, id: HeldPath) -> Option<PathRow> {
        let index = id.0.checked_sub(1)?;
        self.rows.get(index as usize).copied()
    }

    /// In PHP's syntax. What is not a name of a class, a function or a declared property is in
    /// brackets.
    pub fn text<M: Memory + ?Sized>(&self, memory: &M, layout: &Layout, path: HeldPath) -> String {
        let mut steps = Vec::new();
        let mut at = path;
        while let Some(row) = self.row(at) {
            steps.push(row.step);
            at = row.parent;
        }
        let mut text = String::new();
        for step in steps.into_iter().rev() {
            text += separator(step, text.is_empty());
            show_step(memory, layout, step, &mut text);
        }
        within(text)
    }
}

fn within(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let mut begin = text.len() - MAX_TEXT + '…'.len_utf8();
        while !text.is_char_boundary(begin) {
            begin += 1;
        }
        text.replace_range(..begin, "…");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: HoldingStep = HoldingStep::Property {
        class: 8,
        offset: 40,
    };

    #[test]
    fn path_has_one_number() {
        let mut tree = PathTree::default();
        let root = tree.child(HeldPath::default(), HoldingStep::Global);
        let next = tree.child(root, NEXT);
        assert!(root != next);
        assert_eq!(tree.child(root, NEXT), next);
        assert_eq!(tree.child(HeldPath::default(), HoldingStep::Global), root);
    }

    #[test]
    fn repeated_steps_make_no_longer_path() {
        let mut tree = PathTree::default();
        let root = tree.child(HeldPath::default(), HoldingStep::Global);
        let next = tree.child(root, NEXT);
        assert_eq!(tree.child(next, NEXT), next);
        let element = tree.child(next, HoldingStep::Position);
        assert_eq!(tree.child(element, NEXT), next);
        assert_eq!(tree.rows.len(), 3);
        // A list of objects that have lists.
        let lines = HoldingStep::StaticVariable { function: 8 };
        let lines = tree.child(element, lines);
        let line = tree.child(lines, HoldingStep::Position);
        assert!(line != element && line != lines);
    }

    #[test]
    fn long_text_keeps_its_end() {
        let long = "ä".repeat(MAX_TEXT) + "::$end";
        let text = within(long);
        assert!(text.len() <= MAX_TEXT && text.starts_with("…ä") && text.ends_with("::$end"));
        assert_eq!(within("Shop".to_owned()), "Shop");
    }

    #[test]
    fn paths_are_bounded_in_length_and_number() {
        let mut tree = PathTree::default();
        let mut at = HeldPath::default();
        let step = |number: u32| HoldingStep::StaticProperty { class: 8, number };
        for number in 0..100 {
            at = tree.child(at, step(number));
        }
        assert_eq!(tree.rows.len(), usize::from(MAX_DEPTH));
        for number in 0..2 * MAX_PATHS as u32 {
            tree.child(HeldPath::default(), step(1000 + number));
        }
        assert_eq!(tree.rows.len(), MAX_PATHS);
    }
}
