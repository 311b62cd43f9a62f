//! `__toString`, which no site names: an op, or `implode`, converts the object on which it was
//! called.
//!
//! The object stays in the operand, or in the array that is joined, until the method has returned.
//! Invariant: an op proves only the `__toString` of an object that it converts.

use super::{Site, Words};
use crate::hash::holds;
use crate::memory::Memory;
use crate::op::{
    ASSIGN_DIM_OP, ASSIGN_OBJ_OP, ASSIGN_OP, ASSIGN_STATIC_PROP_OP, CAST, CONCAT, ECHO,
    FAST_CONCAT, Op, ROPE_ADD, ROPE_END, ROPE_INIT,
};
use crate::zval::{IS_ARRAY, IS_OBJECT, IS_STRING, Zval};

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The words that prove that this op converts the callee's object.
    pub(super) fn makes_string(&self, op: &Op) -> Option<Words> {
        if !self.is_to_string() {
            return None;
        }
        let first = || self.object_words(op.op1_type, op.op1);
        let second = || self.object_words(op.op2_type, op.op2);
        match op.opcode {
            CONCAT | FAST_CONCAT => first().or_else(second),
            ROPE_INIT | ROPE_ADD | ROPE_END => second(),
            _ if !self.layout.rules.has_assign_op => None,
            ECHO => first(),
            CAST if op.extended_value == u32::from(IS_STRING) => first(),
            ASSIGN_OP if op.extended_value == u32::from(CONCAT) => second(),
            ASSIGN_DIM_OP | ASSIGN_OBJ_OP | ASSIGN_STATIC_PROP_OP
                if op.extended_value == u32::from(CONCAT) =>
            {
                // The value is in the OP_DATA that follows.
                let size = self.layout.zend_op.sizeof as u64;
                let data = Op::read(self.memory, self.layout, op.address.checked_add(size)?)?;
                self.object_words(data.op1_type, data.op1)
            }
            _ => None,
        }
    }

    /// The words that prove that the internal caller is `implode` and joins an array with the
    /// callee's object.
    pub(super) fn joins(&self) -> Option<Words> {
        let name = self.caller.function.internal_name()?;
        if !self.is_to_string() || !matches!(name, "implode" | "join") {
            return None;
        }
        // The array is the second argument, or the only one; up to 7.4 it may also be the first of
        // two.
        [1, 0].into_iter().find_map(|index| {
            let argument = self.argument(index)?;
            let Zval(array, IS_ARRAY) = self.copy.zval(argument)? else {
                return None;
            };
            let object = Zval(self.callee.frame.this, IS_OBJECT);
            let is_joined = holds(self.memory, self.layout, array, object);
            is_joined.then_some(Words::Operand(argument))
        })
    }

    fn is_to_string(&self) -> bool {
        let name = &self.callee.function.function_name;
        self.is_object_call() && name.eq_ignore_ascii_case(b"__toString")
    }

    /// The words by which an operand is the callee's object.
    fn object_words(&self, kind: u8, operand: u32) -> Option<Words> {
        let types = &self.layout.op_types;
        if [types.is_const, types.is_unused].contains(&kind) {
            return None;
        }
        let address = self.caller.frame.address.checked_add(operand.into())?;
        let object = self.behind_reference(self.copy.zval(address)?)?;
        (object == Zval(self.callee.frame.this, IS_OBJECT)).then_some(Words::Operand(address))
    }
}
