//! The moments of a read, and how far a stack was followed in one.
//!
//! Invariant: a moment's looks are those nearest to its word.

use std::ops::Range;

use phpprof_zend::unwind::Copy;

use crate::read::globals::Globals;
use crate::read::looks::looks_before_below;
use crate::stack::call_tree::PathId;

/// The looks around a word that have to show the frames if only words in memory tell the callee.
const AROUND: usize = 3;

/// How far a stack could be followed.
pub(super) enum Followed {
    Whole,
    /// The callers that stood, if any did.
    Part(PathId),
}

/// A moment of a read: the word with the top, and the look with the part around it, by their
/// indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MomentIndex {
    pub top: usize,
    pub look: usize,
}

impl MomentIndex {
    pub const FIRST: Self = Self { top: 0, look: 0 };
}

/// Where a stack is unwound from: an address at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    pub address: u64,
    pub moment: MomentIndex,
}

impl Start {
    /// An address at the first moment.
    pub fn at_first(address: u64) -> Self {
        let moment = MomentIndex::FIRST;
        Self { address, moment }
    }
}

/// The known part of a sample that is not whole yet: the callers of a path, from the root.
#[derive(Clone, Copy)]
pub(super) struct KnownCallers {
    pub path: PathId,
    pub frames: usize,
    /// The address of the path's last frame if that is on the page; else 0.
    pub address: u64,
}

impl KnownCallers {
    pub const NOTHING: Self = Self {
        path: PathId::NONE,
        frames: 0,
        address: 0,
    };

    /// The deeper of two.
    pub fn or(self, other: Self) -> Self {
        if other.frames > self.frames {
            other
        } else {
            self
        }
    }
}

/// Whether the sample's moment is of another page than the looks.
pub(super) fn is_elsewhere(tops: &[Globals], copy: &Copy) -> bool {
    tops.first().is_some_and(|first| first.page != copy.base)
}

/// Whether the program has moved between half of the looks of a read, or there are too few looks to
/// tell: then all can be in step with one of its loops.
pub(super) fn is_fast(tops: &[Globals]) -> bool {
    let moves = tops
        .windows(2)
        .filter(|pair| pair[0].current_execute_data != pair[1].current_execute_data);
    2 * moves.count() >= tops.len().saturating_sub(1)
}

/// The two looks next to a word, one on each side; the first word comes before all looks.
pub(super) fn next_to(top: usize) -> Range<usize> {
    top..top + 2
}

/// The looks from one of this number to the read of the part below, on both sides of both.
pub(super) fn around_below(look: usize, looks: usize) -> Range<usize> {
    let before = looks_before_below(looks);
    look.min(before.saturating_sub(1))..look.max(before) + 1
}

/// The looks around a word, of this many.
pub(super) fn around(top: usize, looks: usize) -> Range<usize> {
    let first = top.saturating_sub(1).min(looks.saturating_sub(AROUND));
    first..looks.min(first + AROUND)
}

/// The moments of a read. The first word comes first, because reading delays the program where it
/// writes; each word has the looks nearest to it.
pub(super) fn moments(tops: usize) -> impl Iterator<Item = MomentIndex> {
    (0..tops).flat_map(move |top| {
        [Some(top), Some(top + 1), top.checked_sub(1), Some(top + 2)]
            .into_iter()
            .flatten()
            .filter(move |&look| look <= tops)
            .map(move |look| MomentIndex { top, look })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_is_a_top_and_a_near_look() {
        let indices = moments(2).map(|moment| (moment.top, moment.look));
        let shown: Vec<(usize, usize)> = indices.collect();
        assert_eq!(shown, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
        assert!(moments(9).all(|MomentIndex { top, look }| look <= 9 && top.abs_diff(look) <= 2));
    }

    #[test]
    fn each_word_has_its_looks_around_it() {
        assert_eq!(
            (around(0, 5), around(2, 5), around(3, 5)),
            (0..3, 1..4, 2..5)
        );
        assert_eq!(around(0, 2), 0..2);
    }

    #[test]
    fn code_is_fast_if_half_the_looks_differ() {
        let fast = |tops: &[u64]| {
            let top = |&current_execute_data: &u64| Globals {
                current_execute_data,
                ..Globals::default()
            };
            is_fast(&tops.iter().map(top).collect::<Vec<_>>())
        };
        assert!(!fast(&[1, 1, 1]) && !fast(&[1, 2, 2, 2]));
        assert!(fast(&[1, 2, 2]) && fast(&[1, 2, 3]));
        // One word says nothing.
        assert!(fast(&[1]));
    }
}
