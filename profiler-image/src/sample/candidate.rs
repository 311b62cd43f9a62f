//! Call paths of known calls that only one look has shown.
//!
//! One look can mix two call paths: each call is one that the program makes, but the callers are of
//! another moment. So such a stack does not count until another sample proves its call path. Until
//! then, and for good if none does, the sample counts for what the read has proven.
//! Invariant: a candidate changes nothing that is known. It is only shown if the same call path has
//! been proven without it.

use super::StackSampler;
use super::climb::Climb;
use crate::read::worker::Worker;
use crate::stack::call_tree::PathId;
use crate::stack::trace::Trace;

impl StackSampler {
    /// The call path of this trace, whose climb has ended at a call that only one look shows;
    /// [`PathId::NONE`] if it is not whole either with such calls.
    pub(super) fn candidate(
        &mut self,
        worker: &mut Worker,
        trace: &mut Trace,
        climb: &Climb,
        now: u64,
    ) -> PathId {
        if !climb.is_seen_once || !self.tree.has_room_for_candidates() {
            return PathId::NONE;
        }
        let mut aside = std::mem::take(&mut self.aside);
        aside.begin();
        aside.takes_candidates = true;
        self.climb(worker, trace, &mut aside, now);
        let is_whole = aside.is_whole && aside.open.is_empty();
        let path = if is_whole { aside.path() } else { PathId::NONE };
        self.aside = aside;
        path
    }
}
