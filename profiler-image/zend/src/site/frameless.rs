//! Calls without a frame: from 8.4 on FRAMELESS_ICALL_* runs an internal function on behalf of its
//! caller's frame.
//!
//! PHP's own backtraces still show that function if it has called something
//! (`zend_fetch_debug_backtrace`, Zend/zend_builtin_functions.c). So unwinding inserts a frame
//! there that is not in memory.

use super::{Evidence, Relation, Site, Words};
use crate::memory::Memory;
use crate::op::{Op, is_frameless};
use crate::phase::function_looks_up_class;
use crate::unwind::{Copy, Frame};
use crate::zval::{IS_NULL, Zval};

/// More functions than any build can call in this way: 8.4 has some forty.
const MAX_FUNCTIONS: u32 = 4096;

/// The function that an op calls without a frame; `table` is the address of `zend_flf_functions`.
pub fn function_of<M: Memory + ?Sized>(memory: &M, table: u64, op: &Op) -> Option<u64> {
    if !is_frameless(op.opcode) || op.extended_value >= MAX_FUNCTIONS {
        return None;
    }
    let functions = memory.word(table).ok()?;
    let at = functions.checked_add(u64::from(op.extended_value) * 8)?;
    memory.word(at).ok().filter(|&function| function != 0)
}

/// Whether a frame at that op is inside the call: the result is NULL from its beginning to its end.
/// The few functions whose result is NULL then seem to last until it is overwritten.
#[must_use]
pub fn is_inside(copy: &Copy, frame: &Frame, op: &Op) -> bool {
    let result = frame.address.wrapping_add(u64::from(op.result));
    matches!(copy.zval(result), Some(Zval(_, IS_NULL)))
}

/// The frame that would have been pushed.
#[must_use]
pub fn frame(caller: &Frame, function: u64) -> Frame {
    Frame {
        func: function,
        prev: caller.address,
        ..Frame::default()
    }
}

/// Whether a frame is one of [`frame`]'s.
#[must_use]
pub fn is_absent(frame: &Frame) -> bool {
    frame.address == 0
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The op's answer for a function without a frame.
    pub(super) fn judge_frameless(&self, op: &Op) -> Evidence {
        let called = self
            .frameless_functions
            .and_then(|table| function_of(self.memory, table, op));
        if is_absent(self.callee.frame) && called == Some(self.callee.frame.func) {
            Evidence::Proven(Relation::Nothing, Words::Code)
        } else {
            Evidence::Refuted
        }
    }

    /// The answer for a call by the function `name`, which runs on behalf of the caller without a
    /// frame: its op's first operand may be the class that is being autoloaded.
    pub(super) fn judge_through(&self, op: &Op, name: &str) -> Evidence {
        if self.callee.frame.call_info & self.layout.call_info.top == 0 {
            return Evidence::Refuted;
        }
        let words = function_looks_up_class(name)
            .then(|| self.autoloads_operand(op, op.op1, op.op1_type))
            .flatten();
        match words {
            Some(words) => Evidence::Proven(Relation::Nothing, words),
            None => Evidence::Open,
        }
    }
}
