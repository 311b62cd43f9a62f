//! What stands: calls that one read after the other shows again, all the way down from the worker's top.
//!
//! A pair of frames from different moments exists in no memory, so reads can agree on it only by chance, each time anew. A
//! call that many reads in a row agree on, at uneven intervals, is real; it needs neither a site that names the callee
//! nor a CPU where the quiescent reader may run. What two reads agree on ([`common`]) and what a row of them proves ([`Row`]) is
//! pure. What this module does not do: prove calls that are shorter than that.

use std::hint::spin_loop;
use std::sync::Arc;

use phpprof_zend::site::frameless::is_absent;
use phpprof_zend::unwind::{End, Frame, unwind};

use super::Sampler;
use crate::read::reader::Reading;
use crate::read::worker::Worker;
use crate::stack::edges::EdgeId;

/// Reads in a row that must agree. In call-heavy code one read in four mixes moments, and not all of these agree with the
/// one before: this many are less likely than one in a million.
const AGREEING: usize = 12;
/// Reads that may be torn in between, and say nothing.
const TORN: usize = 12;
/// Longest pause between two reads, in turns of a loop (about two microseconds): reads in step with the program's own loop
/// would see the same mix each time.
const MAX_TURNS: u64 = 64;

/// Reads in a row, and what all of them have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    /// Frames, from the root, that stood in each read so far.
    stood: usize,
    /// Fewer than this hold no open edge.
    needed: usize,
    agreeing: usize,
    torn: usize,
}

/// What a row of reads asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Read,
    /// First a look at whether the frames still have their functions.
    Identify,
    /// What stood is real.
    Believe,
    GiveUp,
}

impl Row {
    fn new(frames: usize, needed: usize) -> Self {
        Self {
            stood: frames,
            needed,
            agreeing: 0,
            torn: 0,
        }
    }

    /// Adds a read, by how many frames from the root stood in it; `None` where it was torn.
    fn add(&mut self, stood: Option<usize>) -> Next {
        let Some(stood) = stood else {
            self.torn += 1;
            return if self.torn > TORN {
                Next::GiveUp
            } else {
                Next::Read
            };
        };
        self.stood = self.stood.min(stood);
        if self.stood < self.needed {
            return Next::GiveUp;
        }
        self.agreeing += 1;
        match self.agreeing {
            AGREEING => Next::Believe,
            agreeing if agreeing == AGREEING / 2 => Next::Identify,
            _ => Next::Read,
        }
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

impl Sampler {
    /// Proves those of the open edges that stand; `open` has the index of each callee in the frames at hand.
    pub(super) fn prove_standing(
        &mut self,
        worker: &mut Worker,
        open: &[(usize, EdgeId)],
        now: u64,
    ) {
        let length = self.frames.len();
        let Some(needed) = open.iter().map(|&(index, _)| length - index).min() else {
            return;
        };
        let mut row = Row::new(length, needed);
        loop {
            self.pause();
            match row.add(self.standing_calls(worker)) {
                Next::Read => {}
                Next::Identify if self.are_still_the_same(worker, now) => {}
                Next::Identify | Next::GiveUp => return,
                Next::Believe => break,
            }
        }
        for &(index, edge) in open {
            if length - index <= row.stood {
                self.edges.prove_open(edge);
            }
        }
    }

    /// Whether the frames' functions are those that they were taken for: a closure's address may have come to hold another
    /// one before its code was looked at.
    fn are_still_the_same(&mut self, worker: &mut Worker, now: u64) -> bool {
        let ids = std::mem::take(&mut self.ids);
        self.identify(worker, now);
        std::mem::replace(&mut self.ids, ids) == self.ids
    }

    /// How many of the frames at hand, from the root, another read finds below the top that it began with and also the one
    /// that it ended with: what a call left in memory looks like a frame to a read that began before. `None` where the
    /// read is torn.
    fn standing_calls(&mut self, worker: &mut Worker) -> Option<usize> {
        let Ok(Reading::Busy { leading, trailing }) = worker.reader.read() else {
            return Some(0);
        };
        let memory = Arc::clone(&worker.reader.memory);
        let end = unwind(
            &*memory,
            worker.process.engine.layout,
            &mut worker.reader.copy,
            leading.current_execute_data,
            &mut self.again,
        );
        if end == End::Torn {
            return None;
        }
        let copy = &worker.reader.copy;
        let top = trailing.current_execute_data;
        let is_live = |frame: &Frame| copy.is_live(frame.address, top);
        Some(common(&self.frames, &self.again, is_live))
    }

    /// Waits for an uneven while.
    fn pause(&mut self) {
        self.pauses = uneven(self.pauses);
        (0..self.pauses % MAX_TURNS).for_each(|_| spin_loop());
    }
}

#[cfg(test)]
mod tests;
