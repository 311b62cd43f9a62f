//! Finds the stack of a read: the first whole moment that the read shows.
//!
//! The sample's moment is the first word (a read of the top's pointer) with the first look after
//! it. The program runs on between the two: if a call ends there, its frame is gone at the look, or
//! another call's is in its place. Then the look's own frames are followed ([`super::first_look`]),
//! up to the word's depth; later moments would favour calls that last longer. Only if these give no
//! stack, the later moments are followed.
//! Invariant: the sample is the first whole stack in this order; later moments are not read.

use phpprof_zend::unwind::{UnwindEnd, unwind};

use super::StackSampler;
use super::climb::Climb;
use super::moment::{
    Followed, KnownCallers, MomentIndex, Start, around, around_below, is_elsewhere, is_fast,
    moments, next_to,
};
use crate::read::globals::Globals;
use crate::read::worker::Worker;
use crate::stack::call_tree::PathId;
use crate::stack::trace::Trace;

/// How many frames one sample may unwind, in all moments of its reads: beyond that, it shows no
/// further moment. It is a stack of 300 frames in each moment of a read.
pub(super) const MOST_UNWOUND: usize = 16_384;
impl StackSampler {
    /// Follows the stack to the first moment of this read in which it is whole. Also returns the
    /// candidate for its call path, if there is one.
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
                // A bound, or what the callers have shown, may end it earlier now. A later moment
                // would be of another call.
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
