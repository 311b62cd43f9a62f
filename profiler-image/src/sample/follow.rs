//! Finds the stack of a read: the first whole moment that the read shows.
//!
//! The sample's moment is the first word (a read of the top's pointer) with the first look after
//! it. The program runs on between the two: if a call ends there, its frame is gone at the look, or
//! another call's is in its place. Then the look's own frames are followed ([`super::first_look`]),
//! up to the word's depth; later moments would favour calls that last longer. Only if these give no
//! stack, the later moments are followed.
//! Invariant: the sample is the first whole stack in this order; later moments are not read.

use std::ops::Range;

use phpprof_zend::unwind::{Copy, UnwindEnd, unwind};

use super::StackSampler;
use super::climb::Climb;
use super::first_look::KnownCallers;
use crate::read::globals::Globals;
use crate::read::reader::looks_before_below;
use crate::read::worker::Worker;
use crate::stack::call_tree::PathId;
use crate::stack::trace::Trace;

/// The looks around a word that have to show the frames if only words in memory tell the callee.
const AROUND: usize = 3;
/// How many frames one sample may unwind, in all moments of its reads: beyond that, it shows no
/// further moment. It is a stack of 300 frames in each moment of a read.
pub(super) const MOST_UNWOUND: usize = 16_384;
/// How far a stack could be followed.
pub(super) enum Followed {
    Whole,
    /// The callers that stood, if any did.
    Part(PathId),
}

/// A moment of a read: the word with the top, and the look with the part around it, by their indices.
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

impl StackSampler {
    /// Follows the stack to the first moment of this read in which it is whole. Also returns the candidate for its call path, if there is one.
    pub(super) fn follow(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> (Followed, PathId) {
        self.functions.begin();
        self.asked = 0;
        trace.is_fast = is_fast(tops);
        self.follow_one(worker, tops, MomentIndex::FIRST, trace, climb, now);
        let candidate = self.candidate(worker, trace, climb, now);
        let followed = self.follow_moments(worker, tops, trace, climb, now);
        (followed, candidate)
    }

    /// Goes on from the first moment, which has been followed, to the first one that is whole.
    fn follow_moments(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> Followed {
        let mut kept = KnownCallers::NOTHING;
        let mut has_callers = true;
        let is_elsewhere = is_elsewhere(tops, &worker.reader.copy);
        for (number, moment) in moments(tops.len()).enumerate() {
            let MomentIndex { top, look } = moment;
            if is_elsewhere && top > 0 {
                // No look shows the page of a later word when that was read.
                break;
            }
            if number > 0 {
                self.follow_one(worker, tops, moment, trace, climb, now);
            }
            if climb.is_whole {
                if !has_callers && !self.follow_callers(worker, tops, look, trace, climb, now) {
                    self.follow_one(worker, tops, moment, trace, climb, now);
                }
                // A bound, or what the callers have shown, may end it earlier now. A later moment would be of another call.
                return if climb.is_whole {
                    Followed::Whole
                } else {
                    Followed::Part(climb.path())
                };
            }
            if climb.is_full {
                return Followed::Part(climb.path());
            }
            if self.stays_unknown(climb) {
                return Followed::Part(climb.path());
            }
            if trace.is_late {
                // The next read takes these frames with its looks. A later moment of this one would
                // be without them.
                return Followed::Part(PathId::NONE);
            }
            if top == 0 {
                let stood = self.stood(worker, trace, climb);
                kept = kept.or(stood);
            }
            if number == 0 {
                match self.follow_first_look(worker, tops, trace, climb, now) {
                    Ok(followed) => return followed,
                    Err(shown) => {
                        has_callers = shown.address != 0;
                        kept = kept.or(shown);
                    }
                }
            }
        }
        Followed::Part(kept.path)
    }

    /// Whether a climb has ended at a call that no quiescent read will prove. A later moment would
    /// be of another call: what can be proven would take the time of what cannot.
    pub(super) fn stays_unknown(&self, climb: &Climb) -> bool {
        climb.is_unknown && self.is_without_quiescent_reads
    }

    /// The frames that stood in the looks next to the first word.
    fn stood(&self, worker: &Worker, trace: &Trace, climb: &Climb) -> KnownCallers {
        let layout = worker.process.engine.layout;
        let stood = worker
            .reader
            .copy
            .stood(layout, &trace.frames, next_to(0))
            .min(climb.proven());
        KnownCallers {
            path: climb.path_of(stood),
            frames: stood,
            address: 0,
        }
    }

    /// Follows one moment.
    pub(super) fn follow_one(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        moment: MomentIndex,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) {
        let address = tops[moment.top].current_execute_data;
        let start = Start { address, moment };
        self.follow_from(worker, tops, start, trace, climb, now);
    }

    /// Unwinds a look from an address, which is of about the moment of a word, identifies the
    /// frames, and climbs.
    pub(super) fn follow_from(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        start: Start,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) {
        let Start { address, moment } = start;
        let MomentIndex { top, look } = moment;
        let layout = worker.process.engine.layout;
        climb.begin();
        if self.unwound >= MOST_UNWOUND {
            (trace.end, trace.stood, trace.is_late) = (UnwindEnd::Torn, 0, false);
            trace.frames.clear();
            return;
        }
        worker.reader.copy.take_look(look);
        let looks = tops.len() + 1;
        trace.around = around(top, looks);
        let memory = worker.reader.memory.clone();
        let copy = &mut worker.reader.copy;
        trace.end = unwind(&memory, layout, copy, address, &mut trace.frames);
        self.unwound += trace.frames.len();
        trace.is_late = trace.end != UnwindEnd::Torn && copy.is_late(&trace.frames);
        let has_stood = copy.stood_below(layout, &trace.frames, around_below(look, looks))
            && copy.stood_beside(layout, &trace.frames, &(tops[top].page..tops[top].end));
        if trace.is_late || !has_stood {
            trace.end = UnwindEnd::Torn;
        }
        (trace.stood, trace.stands, trace.stands_since) = (0, None, None);
        trace.may_have_gone_on = moment == MomentIndex::FIRST;
        if trace.end == UnwindEnd::Torn {
            // Without a root it is unknown which part of the chain is true.
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
fn around_below(look: usize, looks: usize) -> Range<usize> {
    let before = looks_before_below(looks);
    look.min(before.saturating_sub(1))..look.max(before) + 1
}

/// The looks around a word, of this many.
pub(super) fn around(top: usize, looks: usize) -> Range<usize> {
    let first = top.saturating_sub(1).min(looks.saturating_sub(AROUND));
    first..looks.min(first + AROUND)
}

/// The moments of a read. The first word comes first, because reading delays the program where it writes; each word has the looks nearest to it.
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
