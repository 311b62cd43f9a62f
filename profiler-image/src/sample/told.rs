//! Calls that their callers alone tell, so that one look is enough to take them.
//!
//! One look can show what an earlier call left above another caller. That matters only where the
//! call depends on more than its caller. So the caller has to be of the moment: between a call's
//! last two writes, its frame still has the op of the call that was there before, and above it what
//! that one called.
//! Invariant: such a call is one that the program makes, from this caller and its callers, of
//! whatever moment the callee's frame is.

use phpprof_zend::site::{Evidence, Relation, Words};

use super::StackSampler;
use crate::read::worker::Worker;
use crate::stack::edges::{Edge, EdgeKnowledge, FrameTells};
use crate::stack::trace::Trace;

impl StackSampler {
    /// Whether the caller alone tells this call: it stood, and its code names the callee, or a
    /// method of its own object. Then the program makes this call, of whatever moment the callee's
    /// frame is. `None` if the caller tells nothing. Code of the JIT does not save each op, so
    /// there no caller tells.
    pub(super) fn told_by_caller(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        edge: Edge,
    ) -> Option<EdgeKnowledge> {
        if !caller_stood(worker, trace, index)
            || !worker.reader.is_interpreted()
            || !is_plain(worker, trace, index, &edge)
        {
            return None;
        }
        match self.edges.told(&edge) {
            FrameTells::Yes(check) => return Some(EdgeKnowledge::Proven(check)),
            FrameTells::No => return None,
            FrameTells::Ask => {}
        }
        let answer = self.ask(worker, trace, index, edge)?;
        match answer.evidence {
            Evidence::Refuted => Some(self.edges.refute(edge)),
            Evidence::Proven(check, words) if answer.is_steady && tells(check, words) => {
                Some(self.edges.prove_by_caller(edge, check))
            }
            _ => None,
        }
    }
}

/// Whether both looks next to the word show the caller of frame `index` at its op.
pub(super) fn caller_stood(worker: &Worker, trace: &Trace, index: usize) -> bool {
    let caller = trace.frames.get(index + 1);
    trace.together + index + 1 >= trace.frames.len()
        && caller.is_some_and(|caller| worker.reader.copy.is_looked_at(caller.address))
}

/// Whether a caller that stood alone tells its call: by its code, or by its own object. The check
/// still has to hold: the callee's frame may be left from another caller, with what that one
/// called.
pub(super) fn tells(check: Relation, words: Words) -> bool {
    words == Words::Code || check == Relation::SameThis
}

/// Whether user code makes the call of frame `index` itself, and not the engine for it.
pub(super) fn is_plain(worker: &Worker, trace: &Trace, index: usize, edge: &Edge) -> bool {
    let top = worker.process.engine.layout.call_info.top;
    edge.via.is_none() && trace.frames[index].call_info & top == 0
}
