//! Property hooks (8.4 and later), which are called without a DO_* or by an INIT_* of their own.

use super::{Evidence, Relation, Site, Words};
use crate::memory::Memory;
use crate::op::{ASSIGN_OBJ, FETCH_OBJ_FUNC_ARG, FETCH_OBJ_R, Op, RETURN};
use crate::text::ZendString;
use crate::zval::{IS_OBJECT, Zval};

impl<M: Memory + ?Sized> Site<'_, M> {
    /// `$o->p` with a hook, from 8.4 on: after its first call, FETCH_OBJ_R pushes the frame of
    /// `$p::get` itself; so does FETCH_OBJ_FUNC_ARG, which replaces it if an argument is passed by
    /// value.
    pub(super) fn judge_property_hook(&self, op: &Op) -> Evidence {
        let op_types = &self.layout.op_types;
        let is_named =
            op.op2_type == op_types.is_const && self.hook_is(self.literal(op, op.op2, 0), b"get");
        if !is_named || self.denies_hook(op) {
            return Evidence::Refuted;
        }
        let operand = self.caller.frame.address.wrapping_add(u64::from(op.op1));
        if op.op1_type == op_types.is_unused && self.caller.frame.this == self.callee.frame.this {
            return Evidence::Proven(Relation::SameThis, Words::Frames);
        }
        match self.copy.zval(operand) {
            Some(Zval(object, IS_OBJECT))
                if op.op1_type == op_types.is_cv && object == self.callee.frame.this =>
            {
                Evidence::Proven(Relation::ThisIn(op.op1), Words::Operand(operand))
            }
            _ => Evidence::Open,
        }
    }

    /// Whether the callee is a hook that this op does not call, not even through the engine: it
    /// accesses another property, or none, or is in a hook of this property of the same object,
    /// which accesses the value itself (`zend_should_call_hook`, Zend/zend_object_handlers.c).
    pub(super) fn denies_hook(&self, op: &Op) -> bool {
        let Some((property, _)) = hook(&self.callee.function.function_name) else {
            return false;
        };
        let kind: &[u8] = match op.opcode {
            RETURN => return true,
            FETCH_OBJ_R | FETCH_OBJ_FUNC_ARG => b"get",
            ASSIGN_OBJ => b"set",
            _ => return false,
        };
        if op.op2_type != self.layout.op_types.is_const {
            return false;
        }
        let caller = hook(&self.caller.function.function_name);
        let is_within = caller.is_some_and(|(within, _)| within == property)
            && self.caller.frame.this == self.callee.frame.this;
        is_within || !self.hook_is(self.literal(op, op.op2, 0), kind)
    }

    /// `parent::$p::get()` and `parent::$p::set($value)`.
    pub(super) fn judge_parent_property_hook(&self, init: &Op) -> Evidence {
        let kind: &[u8] = if init.op2 == 0 { b"get" } else { b"set" };
        let caller = self.caller.scope;
        let same = self.hook_is(self.literal(init, init.op1, 0), kind)
            && self.callee.scope != caller
            && self.descends(caller, self.callee.scope);
        if same {
            Evidence::Proven(Relation::SameThis, Words::Frames)
        } else {
            Evidence::Refuted
        }
    }

    /// Whether the callee is `$property::kind`.
    pub(super) fn hook_is(&self, property: Option<ZendString>, kind: &[u8]) -> bool {
        property.is_some_and(|property| {
            hook(&self.callee.function.function_name) == Some((&*property.bytes, kind))
        })
    }
}

/// The property and the kind of a hook, whose name is `$property::kind`; no other function's name
/// begins with `$`.
fn hook(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = name.strip_prefix(b"$")?;
    let (property, kind) = rest.split_at_checked(rest.len().checked_sub(3)?)?;
    Some((property.strip_suffix(b"::")?, kind))
}
