//! Whether the calls that no site names stand: open edges are proven by further reads that show them again.
//!
//! A pair of frames from different moments exists in no memory, so reads can show it only by chance, each time anew. The looks of
//! one read can be in step with a loop of the program, and all show the same mix. What several reads in a row show, at uneven
//! intervals, is real; it needs neither a site that names the callee nor a CPU where the quiescent reader may run.
//! What this module does not do: prove calls that are shorter than that.

use std::hint::spin_loop;
use std::sync::Arc;

use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{End, Frame, unwind};

use super::Sampler;
use super::climb::Climb;
use crate::read::reader::Reading;
use crate::read::worker::Worker;
use crate::stack::trace::Trace;

/// Further reads in a row that must show an open edge. In call-heavy code one in thirty shows a mix: so many are less likely than
/// one in ten million.
const READS: usize = 5;
/// Longest pause between two reads, in turns of a loop (about two microseconds): reads in step with the program's own loop
/// would see the same mix each time.
const MAX_TURNS: u64 = 64;

impl Sampler {
    /// Proves those open edges of a stack that stand: at first each time that one is met, then seldom.
    pub(super) fn prove_standing(
        &mut self,
        worker: &mut Worker,
        trace: &Trace,
        climb: &Climb,
        now: u64,
    ) {
        let length = trace.frames.len();
        let edges = &mut self.edges;
        let lowest = climb
            .open
            .iter()
            .filter(|&&(_, edge)| edges.may_be_tried(edge))
            .map(|&(index, _)| length - index)
            .min();
        let Some(lowest) = lowest.filter(|_| self.has_room) else {
            return;
        };
        let layout = worker.process.engine.layout;
        let copy = &worker.reader.copy;
        let mut stood = copy.stood_or_elsewhere(layout, &trace.frames);
        for _ in 0..READS {
            if stood < lowest {
                return;
            }
            self.pause();
            stood = stood.min(self.standing(worker, &trace.frames));
        }
        if stood < lowest || !self.are_still_the_same(worker, trace, now) {
            return;
        }
        for &(index, edge) in &climb.open {
            if length - index <= stood {
                self.edges.prove_open(edge);
            }
        }
    }

    /// Whether the frames' functions are those that they were taken for: a closure's address may have come to hold another
    /// one before its code was looked at.
    fn are_still_the_same(&mut self, worker: &mut Worker, trace: &Trace, now: u64) -> bool {
        let mut ids = Vec::new();
        let mut place = super::place(worker, &mut self.families, now);
        self.functions.identify(&mut place, &trace.frames, &mut ids);
        ids == trace.ids
    }

    /// How many of the frames, from the root, another read has again, in all of its looks. 0 where the read is torn.
    fn standing(&mut self, worker: &mut Worker, frames: &[Frame]) -> usize {
        let Ok(Reading::Busy { tops, last }) = worker.reader.read() else {
            return 0;
        };
        let layout = worker.process.engine.layout;
        let memory = Arc::clone(&worker.reader.memory);
        let copy = &mut worker.reader.copy;
        let top = tops[0].current_execute_data;
        if unwind(&*memory, layout, copy, top, &mut self.again) == End::Torn {
            return 0;
        }
        let stood = copy.stood_or_elsewhere(layout, &self.again);
        let absent = frames.iter().filter(|frame| is_absent(frame)).count();
        let is_live = |frame: &Frame| copy.is_live(frame.address, last.current_execute_data);
        common(frames, &self.again, is_live).min(stood + absent)
    }

    /// Waits for an uneven while.
    fn pause(&mut self) {
        self.pauses = uneven(self.pauses);
        (0..self.pauses % MAX_TURNS).for_each(|_| spin_loop());
    }
}

/// How many of `frames`, from the root, a later read has again, both leaf first. A frame counts while those below it are
/// in the same call; one without memory of its own, which no read finds, stands with its caller.
fn common(frames: &[Frame], again: &[Frame], is_live: impl Fn(&Frame) -> bool) -> usize {
    let mut again = again.iter().rev();
    let mut same_call = true;
    let standing = frames.iter().rev().take_while(|frame| {
        if is_absent(frame) {
            return same_call;
        }
        let Some(again) = again.next() else {
            return false;
        };
        let stands = same_call
            && is_live(frame)
            && (frame.address, frame.func, frame.prev) == (again.address, again.func, again.prev);
        // What stands above it must be of the same call.
        same_call = frame.opline == again.opline;
        stands
    });
    standing.count()
}

/// The next state of the pauses (xorshift).
fn uneven(state: u64) -> u64 {
    let mut state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state ^= state << 13;
    state ^= state >> 7;
    state ^ (state << 17)
}

#[cfg(test)]
mod tests;
