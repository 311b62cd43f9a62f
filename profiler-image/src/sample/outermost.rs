//! The outermost frames of a stack that is deeper than a sample shows: they say what a deep
//! recursion runs for.
//!
//! Between them and the innermost ones is `[truncated]`, whose line says how many frames are left
//! out at least: a power of two, so that stacks of about the same depth are one.
//! Invariant: they are of the stack that was unwound, or there are none.

use phpprof_zend::unwind::Frame;

use super::climb::{Climb, is_of_engine};
use super::op::{AtOp, NO_OP, op_index};
use super::{StackSampler, place};
use crate::read::quiescent::{Heads, read_keys};
use crate::read::worker::Worker;
use crate::stack::call_tree::{CallPath, PathId};
use crate::stack::names::FunctionNames;
use crate::stack::trace::Trace;

impl StackSampler {
    /// The path below which the frames of a stack are that was cut at its root; `None` without
    /// room.
    pub(super) fn root_of_cut(
        &mut self,
        worker: &mut Worker,
        trace: &Trace,
        climb: &mut Climb,
        now: u64,
    ) -> Option<PathId> {
        let from = trace.frames.last()?;
        let layout = worker.process.engine.layout;
        // The newest page may be gone: it was read with the stack, these are read later.
        let page = worker.reader.copy.page_of(from.address);
        let memory = &worker.reader.memory;
        let outermost = page.and_then(|page| worker.deep.outermost(memory, layout, page, from));
        let path = outermost.as_ref().and_then(|outermost| {
            let path = self.climb_outermost(worker, outermost.frames(), climb, now)?;
            Some((path, outermost.left_out()))
        });
        let (path, op, line) = match path {
            Some((path, 0)) => return Some(path),
            Some((path, left_out)) => (path, left_out.ilog2(), 1 << left_out.ilog2().min(31)),
            None => (PathId::NONE, NO_OP, 0),
        };
        let mark = FunctionNames::TRUNCATED;
        let known = self.tree.child(path, mark, op);
        known.or_else(|| self.tree.add(path, mark, op, line, CallPath::default()))
    }

    /// The path of frames that stand, the innermost first.
    fn climb_outermost(
        &mut self,
        worker: &mut Worker,
        frames: &[Frame],
        climb: &mut Climb,
        now: u64,
    ) -> Option<PathId> {
        let process = worker.process.clone();
        let (engine, layout) = (&process.engine, process.engine.layout);
        let (mut heads, mut keys) = (Heads::default(), Vec::new());
        let memory = &worker.reader.memory;
        read_keys(memory, layout, frames, &mut heads, &mut keys)?;
        let mut ids = std::mem::take(&mut self.ids);
        let mut place = place(worker, &mut self.families, now);
        self.functions
            .identify_keys(&mut place, frames, &keys, &mut ids);
        let mut path = Some(PathId::NONE);
        for (index, (frame, id)) in frames.iter().zip(&ids).enumerate().rev() {
            let node = |parent: PathId| {
                let id = (*id)?;
                let code = self.functions.get(id)?;
                let (key, is_hidden) = (code.function.key, is_of_engine(&code.function));
                let found = AtOp {
                    id,
                    name: self.functions.name(id, index + 1 == frames.len()),
                    key,
                    op: op_index(layout, engine.executor_globals, &key, frame.opline),
                };
                let call = CallPath {
                    is_hidden,
                    ..CallPath::default()
                };
                self.node(worker, parent, &found, call, climb)
            };
            path = path.and_then(node);
        }
        self.ids = ids;
        path
    }
}
