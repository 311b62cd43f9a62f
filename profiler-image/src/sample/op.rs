//! The op of a function's code that a frame is at.
//!
//! Invariant: an op that is not in the function's code has no index, but [`UNWINDING`].

use phpprof_zend::function::FunctionKey;
use phpprof_zend::layouts::Layout;

use super::StackSampler;
use crate::read::worker::Worker;
use crate::stack::functions::FunctionId;
use crate::stack::names::NameId;

/// The op index for `EG(exception_op)`, where a caller's opline points while an exception unwinds.
pub(super) const UNWINDING: u32 = u32::MAX;

/// The op index of a frame without an op.
pub(super) const NO_OP: u32 = u32::MAX - 1;

/// The index of an opline in a function's code. While an exception unwinds, it is the engine's own
/// op in `EG(exception_op)`.
pub(super) fn op_index(
    layout: &Layout,
    executor_globals: u64,
    key: &FunctionKey,
    opline: u64,
) -> Option<u32> {
    let row = &layout.executor_globals;
    let offset = opline.wrapping_sub(executor_globals + row.exception_op as u64);
    if offset < row.exception_op_size as u64 {
        return Some(UNWINDING);
    }
    key.op_index(layout, opline)
}

/// A frame's function, and the index of its op if it is at one.
pub(super) struct AtOp {
    pub id: FunctionId,
    pub name: NameId,
    pub key: FunctionKey,
    pub op: Option<u32>,
}

impl StackSampler {
    /// The line of a function at its op; without an op, the one on which it begins.
    pub(super) fn line(&mut self, worker: &Worker, found: &AtOp) -> u32 {
        let AtOp { id, key, op, .. } = *found;
        if !key.is_user() {
            return 0;
        }
        let layout = worker.process.engine.layout;
        op.filter(|&op| op != UNWINDING)
            .and_then(|op| self.functions.op(&worker.reader.memory, layout, id, op))
            .map_or(key.line_start, |(_, line)| line)
    }
}
