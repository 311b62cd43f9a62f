//! Calls that their callers alone tell, so that one look is enough to take them.
//!
//! One look can show what an earlier call left above another caller. That matters only where the call depends on more than its caller.
//! Invariant: such a call is one that the program makes, from this caller and its callers, of whatever moment the callee's frame is.

use phpprof_zend::site::{Check, Evidence, Words};
use phpprof_zend::unwind::Frame;

use super::Sampler;
use crate::read::worker::Worker;
use crate::stack::edges::{Edge, Known, Told};
use crate::stack::trace::Trace;

/// How many calls above the last frame that stood their callers may tell.
const MOST_TOLD: usize = 8;

impl Sampler {
    /// Whether the caller alone tells this call: its code names the callee, or it stood, and calls a method of its own object. The code of each
    /// caller between it and the last frame that stood has to name the next one, too. Then the program makes this call, of whatever moment
    /// the callee's frame is. `None` if the caller tells nothing. Code of the JIT does not save each op, so there no caller tells.
    pub(super) fn told_by_caller(
        &mut self,
        worker: &Worker,
        trace: &Trace,
        index: usize,
        edge: Edge,
    ) -> Option<Known> {
        let is_interpreted = worker.reader.has_jit_code == Some(false);
        if !is_interpreted
            || !is_plain(worker, trace, index, &edge)
            || !self.are_told(worker, trace, index + 1)
        {
            return None;
        }
        let has_stood = trace.together + index + 1 >= trace.frames.len();
        match self.edges.told(&edge) {
            Told::Yes(check) if check != Check::SameThis || has_stood => {
                return Some(Known::Proven(check));
            }
            Told::Yes(_) | Told::No => return None,
            Told::Ask => {}
        }
        match self.ask(worker, trace, index, edge)? {
            (Evidence::Refuted, _) => Some(self.edges.refute(edge)),
            (Evidence::Proven(check, words), true) if tells(check, words, has_stood) => {
                Some(self.edges.prove_by_caller(edge, check))
            }
            _ => None,
        }
    }

    /// Whether all calls from the last frame that stood up to this one are known to be told by their callers.
    fn are_told(&mut self, worker: &Worker, trace: &Trace, index: usize) -> bool {
        let last = trace.frames.len() - trace.together;
        let has_stood = |frame: &Frame| worker.reader.copy.is_looked_at(frame.address);
        if !trace.frames.get(last).is_some_and(has_stood) || last > index + MOST_TOLD {
            return false;
        }
        (index..last).all(|at| {
            let edge = self.edge_of(worker, trace, at);
            edge.is_some_and(|edge| {
                is_plain(worker, trace, at, &edge) && self.edges.is_told_by_code(&edge)
            })
        })
    }

    /// The edge to frame `index` from user code right below it.
    fn edge_of(&mut self, worker: &Worker, trace: &Trace, index: usize) -> Option<Edge> {
        let id_at = |index: usize| trace.ids.get(index).copied().flatten();
        let (callee, caller) = (id_at(index)?, id_at(index + 1)?);
        let key = self.functions.get(caller)?.function.key;
        let frame = trace.frames.get(index + 1)?;
        let op = key.op_index(worker.process.engine.layout, frame.opline)?;
        let is_root = index + 2 == trace.frames.len();
        let site = Some((self.functions.name(caller, is_root), op));
        let callee = self.functions.name(callee, false);
        self.edge_at(trace, index, site, callee)
    }
}

/// Whether a caller alone tells its call: by its code, or by its own object if it stood. The check still has to hold: the callee's frame may be
/// left from another caller, with what that one called.
pub(super) fn tells(check: Check, words: Words, has_stood: bool) -> bool {
    words == Words::Code || (check == Check::SameThis && has_stood)
}

/// Whether user code makes the call of frame `index` itself, and not the engine for it.
pub(super) fn is_plain(worker: &Worker, trace: &Trace, index: usize, edge: &Edge) -> bool {
    let top = worker.process.engine.layout.call_info.top;
    edge.via.is_none() && trace.frames[index].call_info & top == 0
}
