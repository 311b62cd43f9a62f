//! Whether the call path of a sample has been seen to stand, and the open edges in it: by further reads that agree.
//!
//! The first read has looked at its frames twice. A pair of frames from different moments exists in no memory, so looks can
//! agree on it only by chance, each time anew. What reads at uneven intervals agree on is real; it needs neither a site that
//! names the callee nor a CPU where the quiescent reader may run. What this module does not do: prove calls that are shorter
//! than that.

use std::hint::spin_loop;
use std::sync::Arc;

use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{End, Frame, unwind};

use super::Sampler;
use super::climb::Climb;
use crate::read::reader::Reading;
use crate::read::worker::Worker;
use crate::stack::trace::{Ending, Trace};

/// Further reads that prove an open edge, which no call site vouches for; a call path takes one.
const READS_OF_AN_EDGE: usize = 4;
/// Longest pause between two reads, in turns of a loop (about two microseconds): reads in step with the program's own loop
/// would see the same mix each time.
const MAX_TURNS: u64 = 64;
/// A read that took longer, in nanoseconds, was interrupted, and its two looks say little.
const QUICK: u64 = 20_000;

impl Sampler {
    /// How sure the stack at hand is: its path is confirmed, or its caller is too slow for a mix, or one more read has all of it
    /// again. Where only the leaf has changed while its callers stayed, this sample counts, but the path is not taken for
    /// confirmed.
    pub(super) fn agreement(
        &mut self,
        worker: &mut Worker,
        trace: &Trace,
        climb: &Climb,
        now: u64,
    ) -> Ending {
        let path = climb.path();
        let length = trace.frames.len();
        let (callers_agreed, caller) = (trace.agreed + 1 >= length, self.tree.parent(path));
        self.tree.note(caller, callers_agreed);
        let edges = &mut self.edges;
        let lowest_open = climb
            .open
            .iter()
            .filter(|&&(_, edge)| edges.may_be_tried(edge))
            .map(|&(index, _)| length - index)
            .min();
        let is_sure = self.tree.is_confirmed(path)
            || (callers_agreed && worker.reader.took < QUICK && self.tree.is_slow(caller));
        if (is_sure && lowest_open.is_none()) || !self.may_read_on {
            return if is_sure { Ending::Sure } else { Ending::Open };
        }
        let stood = self.standing_after_pause(worker, &trace.frames);
        if let Some(lowest) = lowest_open {
            let mut always = stood;
            for _ in 1..READS_OF_AN_EDGE {
                if always >= lowest {
                    always = always.min(self.standing_after_pause(worker, &trace.frames));
                }
            }
            if always >= lowest && self.are_still_the_same(worker, trace, now) {
                self.prove_standing(climb, length, always);
            }
        }
        if callers_agreed && stood == length {
            self.tree.confirm(path);
        }
        match is_sure || (callers_agreed && stood + 1 >= length) {
            true => Ending::Sure,
            false => Ending::Open,
        }
    }

    /// Proves the open edges of a stack that lie in its first `always` frames.
    fn prove_standing(&mut self, climb: &Climb, length: usize, always: usize) {
        for &(index, edge) in &climb.open {
            if length - index <= always {
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

    fn standing_after_pause(&mut self, worker: &mut Worker, frames: &[Frame]) -> usize {
        self.pause();
        self.standing(worker, frames)
    }

    /// How many of the frames, from the root, another read has again, in both of its looks. 0 where the read is torn.
    fn standing(&mut self, worker: &mut Worker, frames: &[Frame]) -> usize {
        let Ok(Reading::Busy { leading, trailing }) = worker.reader.read() else {
            return 0;
        };
        let layout = worker.process.engine.layout;
        let memory = Arc::clone(&worker.reader.memory);
        let top = trailing.current_execute_data;
        let copy = &mut worker.reader.copy;
        let end = unwind(
            &*memory,
            layout,
            copy,
            leading.current_execute_data,
            &mut self.again,
        );
        if end == End::Torn {
            return 0;
        }
        let agreed = copy.agreed(layout, &self.again, top);
        let absent = frames.iter().filter(|frame| is_absent(frame)).count();
        let is_live = |frame: &Frame| copy.is_live(frame.address, top);
        common(frames, &self.again, is_live).min(agreed + absent)
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
