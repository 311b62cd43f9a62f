//! Follows the frames that the first look shows, where the first word's own leads to no whole
//! stack.
//!
//! The calls of this look, up to the first word's depth, have the right shares; those of a later
//! one do not. A frame above the first word's can be of a call that has begun since, or of one that
//! ended long ago: its caller stays at the op of its last call while it runs code that stores no
//! op.
//! Invariant: a frame of this look counts only on the page, because other memory was read later.

use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{Copy, Frame, UnwindEnd};

use super::StackSampler;
use super::climb::Climb;
use super::moment::{Followed, KnownCallers, Start};
use crate::read::globals::Globals;
use crate::read::worker::Worker;
use crate::stack::trace::Trace;

/// How many frames above those that a word leads to are searched for in the first look.
const CALLEES: usize = 8;

impl StackSampler {
    /// Follows the first look up to the first word's depth; returns the known part if that is not
    /// whole.
    pub(super) fn follow_first_look(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> Result<Followed, KnownCallers> {
        let first = tops[0].current_execute_data;
        let mut kept = shown(&worker.reader.copy, trace, climb, first);
        if trace.end == UnwindEnd::Root && trace.stood == trace.frames.len() {
            // Nothing has moved: no call has ended or begun.
            return Err(kept);
        }
        // If the word's own frame leads nowhere, a later word leads to its callers.
        for (top, globals) in tops.iter().enumerate().skip(1) {
            let address = globals.current_execute_data;
            let is_known = tops[..top]
                .iter()
                .any(|known| known.current_execute_data == address);
            if is_known || !worker.reader.copy.inside(address) {
                continue;
            }
            self.follow_from(worker, tops, Start::at_first(address), trace, climb, now);
            if climb.is_full {
                return Ok(Followed::Part(climb.path()));
            }
            kept = kept.or(shown(&worker.reader.copy, trace, climb, first));
        }
        self.follow_callees(worker, tops, kept, trace, climb, now)
    }

    /// Follows the first look from the callers that have stood since, which a later moment shows,
    /// up to the first word's depth. Returns whether that is a whole stack.
    pub(super) fn follow_callers(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        look: usize,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> bool {
        let copy = &worker.reader.copy;
        let (layout, first) = (worker.process.engine.layout, tops[0].current_execute_data);
        let stood = copy.stood(layout, &trace.frames, 0..look + 1);
        let mut callers = trace.frames.iter().rev().take(stood).rev();
        let Some(caller) =
            callers.find(|frame| copy.inside(frame.address) && frame.address <= first)
        else {
            return false;
        };
        self.follow_from(
            worker,
            tops,
            Start::at_first(caller.address),
            trace,
            climb,
            now,
        );
        let kept = shown(&worker.reader.copy, trace, climb, first);
        matches!(
            self.follow_callees(worker, tops, kept, trace, climb, now),
            Ok(Followed::Whole)
        )
    }

    /// Follows the first look from the known part up to the first word's depth; returns the known
    /// part if that is not whole.
    fn follow_callees(
        &mut self,
        worker: &mut Worker,
        tops: &[Globals],
        mut kept: KnownCallers,
        trace: &mut Trace,
        climb: &mut Climb,
        now: u64,
    ) -> Result<Followed, KnownCallers> {
        if kept.address == 0 {
            return Err(kept);
        }
        let layout = worker.process.engine.layout;
        let first = tops[0].current_execute_data;
        let mut is_followed = false;
        for _ in 0..CALLEES {
            let copy = &worker.reader.copy;
            let Some(callee) = copy.callee_of(layout, kept.address, first) else {
                break;
            };
            is_followed = false;
            self.follow_from(worker, tops, Start::at_first(callee), trace, climb, now);
            if self.stays_unknown(climb) {
                return Ok(Followed::Part(climb.path()));
            }
            if climb.is_refuted {
                // A call that has ended, or that is not made yet.
                break;
            }
            if climb.is_full || !climb.is_whole {
                return Err(kept);
            }
            kept = shown(&worker.reader.copy, trace, climb, first);
            if kept.address == 0 {
                return Err(kept);
            }
            is_followed = true;
        }
        if !is_followed {
            let leaf = Start::at_first(kept.address);
            self.follow_from(worker, tops, leaf, trace, climb, now);
        }
        if climb.is_whole {
            Ok(Followed::Whole)
        } else {
            Err(kept)
        }
    }
}

/// The callers of a path up to a word's frame, all on the page: other memory was read later than
/// the look. A leaf without a frame is not among them; it is found again from its caller.
fn shown(copy: &Copy, trace: &Trace, climb: &Climb, word: u64) -> KnownCallers {
    let callers = trace.frames.iter().rev().take(climb.proven());
    let is_shown = |address: u64| copy.inside(address) && address <= word;
    let shown = callers.take_while(|frame| is_absent(frame) || is_shown(frame.address));
    let with_frames = shown.enumerate().filter(|(_, frame)| !is_absent(frame));
    let frames = with_frames.last().map_or(0, |(index, _)| index + 1);
    let leaf = trace.frames.len().checked_sub(frames);
    let is_on_page = |frame: &Frame| is_absent(frame) || copy.inside(frame.address);
    let is_all = trace.frames.iter().all(is_on_page);
    match leaf.and_then(|leaf| trace.frames.get(leaf)) {
        Some(leaf) if is_all && copy.inside(word) => KnownCallers {
            path: climb.path_of(frames),
            frames,
            address: leaf.address,
        },
        _ => KnownCallers::NOTHING,
    }
}
