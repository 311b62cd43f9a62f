//! From one read to a stack: the read's moments are followed, the first one first, to one that shows a whole stack.
//!
//! Invariant: what comes after that moment is not looked at.

use std::ops::Range;
use std::sync::Arc;

use phpprof_zend::unwind::{End, unwind};

use super::Sampler;
use super::climb::Climb;
use crate::read::reader::Globals;
use crate::read::worker::Worker;
use crate::stack::call_tree::PathId;
use crate::stack::trace::Trace;

/// Looks around a word that must show the frames of which words in memory say who called whom.
const AROUND: usize = 3;

/// How far a stack could be followed.
pub(super) enum Followed {
    Whole,
    /// The callers that stood, if any did.
    Part(PathId),
}

impl Sampler {
    /// Follows the stack through the moments of the read at hand, the first one first, to one in which it is whole.
    pub(super) fn follow(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        last: &Globals,
        (trace, climb): (&mut Trace, &mut Climb),
        now: u64,
    ) -> Followed {
        let layout = worker.process.engine.layout;
        self.functions.begin();
        trace.is_fast = is_fast(tops);
        let (mut path, mut known) = (PathId::NONE, 0);
        for (top, look) in moments(tops.len()) {
            worker.reader.copy.take_look(look);
            let address = tops[top].current_execute_data;
            trace.around = around_if_below_stood(worker, top, tops, last);
            self.follow_one(worker, (address, top), (trace, climb), now);
            if climb.is_whole {
                return Followed::Whole;
            }
            if climb.is_full {
                return Followed::Part(climb.path());
            }
            let copy = &worker.reader.copy;
            let stood = copy.stood(layout, &trace.frames, next_to(0));
            let stood = stood.min(climb.proven());
            if top == 0 && stood > known {
                (path, known) = (climb.path_of(stood), stood);
            }
        }
        Followed::Part(path)
    }

    /// Unwinds from a top, which the read's word of that index gives, identifies the frames, and climbs.
    pub(super) fn follow_one(
        &mut self,
        worker: &mut Worker,
        (address, top): (u64, usize),
        (trace, climb): (&mut Trace, &mut Climb),
        now: u64,
    ) {
        let layout = worker.process.engine.layout;
        let memory = Arc::clone(&worker.reader.memory);
        let copy = &mut worker.reader.copy;
        trace.end = unwind(&*memory, layout, copy, address, &mut trace.frames);
        (trace.stood, trace.stands, trace.stands_since) = (0, None, None);
        climb.begin();
        if trace.end == End::Torn {
            // Without a root nothing tells which part of the chain is true.
            return;
        }
        self.identify(worker, trace, now);
        self.add_frameless(worker, trace, now);
        let around = trace.around.clone();
        let copy = &worker.reader.copy;
        trace.stood = copy.stood(layout, &trace.frames, around);
        trace.together = copy.not_denied(layout, &trace.frames, next_to(top));
        self.climb(worker, trace, climb, now);
    }
}

/// Whether the program has moved between half of the looks of a read, or too few say so: then all can be in step with one of its loops.
fn is_fast(tops: &[Globals]) -> bool {
    let moves = tops
        .windows(2)
        .filter(|pair| pair[0].current_execute_data != pair[1].current_execute_data);
    2 * moves.count() >= tops.len().saturating_sub(1)
}

/// The two looks next to a word: on both sides of it, but that the first word comes before all looks.
fn next_to(top: usize) -> Range<usize> {
    top..top + 2
}

/// The looks around a word; none where what lies below the part around the top, which was read last, is of later calls, since its own
/// had returned by then.
pub(super) fn around_if_below_stood(
    worker: &Worker,
    top: usize,
    tops: &[Globals],
    last: &Globals,
) -> Range<usize> {
    let (copy, last) = (&worker.reader.copy, last.current_execute_data);
    match last >= copy.hot || !copy.inside(last) {
        true => around(top, tops.len() + 1),
        false => 0..0,
    }
}

/// The looks around a word, of so many.
fn around(top: usize, looks: usize) -> Range<usize> {
    let first = top.saturating_sub(1).min(looks.saturating_sub(AROUND));
    first..looks.min(first + AROUND)
}

/// The moments of a read, by their indices: which word says what is the top, and which look shows the part around it. The first
/// word comes first, as reading slows the program down where it writes what was read; each with the looks that are nearest to it.
fn moments(tops: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..tops).flat_map(move |top| {
        [Some(top), Some(top + 1), top.checked_sub(1), Some(top + 2)]
            .into_iter()
            .flatten()
            .filter(move |&look| look <= tops)
            .map(move |look| (top, look))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_top_and_a_look_next_to_it() {
        let shown: Vec<(usize, usize)> = moments(2).collect();
        assert_eq!(shown, [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 0)]);
        assert!(moments(9).all(|(top, look)| look <= 9 && top.abs_diff(look) <= 2));
    }

    #[test]
    fn as_many_looks_as_there_are_lie_around_each_word() {
        assert_eq!(
            (around(0, 5), around(2, 5), around(3, 5)),
            (0..3, 1..4, 2..5)
        );
        assert_eq!(around(0, 2), 0..2);
    }

    #[test]
    fn code_is_fast_where_the_top_moves_between_half_of_the_looks() {
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
