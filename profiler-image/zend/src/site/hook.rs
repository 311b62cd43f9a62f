//! Property hooks (8.4 and later), which are called without a DO_* or by an INIT of their own.

use super::{Check, Evidence, IS_OBJECT, Site, Words};
use crate::memory::Memory;
use crate::op::Op;
use crate::text::ZendString;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// `$o->p` with a hook, from 8.4 on: once it has run, FETCH_OBJ_R pushes the frame of `$p::get` itself;
    /// so does FETCH_OBJ_FUNC_ARG, which stands for it where an argument goes by value.
    pub(super) fn judge_property_hook(&self, op: &Op) -> Evidence {
        let op_types = &self.layout.op_types;
        if op.op2_type != op_types.is_const || !self.hook_is(self.literal(op, op.op2, 0), b"get") {
            return Evidence::Refuted;
        }
        let operand = self.caller.frame.address.wrapping_add(u64::from(op.op1));
        if op.op1_type == op_types.is_unused && self.caller.frame.this == self.callee.frame.this {
            return Evidence::Proven(Check::SameThis, Words::Frames);
        }
        match self.copy.zval(operand) {
            Some((object, IS_OBJECT))
                if op.op1_type == op_types.is_cv && object == self.callee.frame.this =>
            {
                Evidence::Proven(Check::ThisIn(op.op1), Words::Operand(operand))
            }
            _ => Evidence::Open,
        }
    }

    /// `parent::$p::get()` and `parent::$p::set($value)`.
    pub(super) fn judge_parent_property_hook(&self, init: &Op) -> Evidence {
        let kind: &[u8] = if init.op2 == 0 { b"get" } else { b"set" };
        let caller = self.caller.scope;
        let same = self.hook_is(self.literal(init, init.op1, 0), kind)
            && self.callee.scope != caller
            && self.descends(caller, self.callee.scope);
        if same {
            Evidence::Proven(Check::SameThis, Words::Frames)
        } else {
            Evidence::Refuted
        }
    }

    /// Whether the callee is `$property::kind`.
    pub(super) fn hook_is(&self, property: Option<ZendString>, kind: &[u8]) -> bool {
        property.is_some_and(|property| {
            let name = &self.callee.function.function_name;
            let rest = name
                .strip_prefix(b"$")
                .and_then(|name| name.strip_suffix(kind));
            rest.and_then(|name| name.strip_suffix(b"::")) == Some(&*property.bytes)
        })
    }
}
