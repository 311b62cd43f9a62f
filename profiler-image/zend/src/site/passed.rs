//! The argument that connects a callee with its caller: a variable of the caller that was passed to
//! the callee.
//!
//! What this module does not do: prove an edge by it. The variable may have been assigned since, in
//! either function.

use super::{Relation, Site};
use crate::memory::Memory;
use crate::op::{Op, SEND_VAR, SEND_VAR_EX, is_send};

/// How many arguments are read, from the last one backwards.
const MAX_ARGUMENTS: u64 = 8;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The check by the variable that was last passed to a user function, at its DO_*.
    pub(super) fn passed_variable(&self, op: &Op) -> Relation {
        if !self.callee.function.key.is_user() {
            return Relation::Nothing;
        }
        let types = &self.layout.op_types;
        for back in 1..=MAX_ARGUMENTS {
            let address = op
                .address
                .wrapping_sub(back * self.layout.zend_op.sizeof as u64);
            if address < self.caller.function.key.code {
                break;
            }
            match Op::read(self.memory, self.layout, address) {
                // A named argument gets its place when it is passed.
                Some(send)
                    if matches!(send.opcode, SEND_VAR | SEND_VAR_EX)
                        && send.op1_type == types.is_cv
                        && send.op2_type != types.is_const =>
                {
                    return Relation::Passed {
                        from: send.op1,
                        to: send.result,
                    };
                }
                Some(send) if is_send(send.opcode) => {}
                _ => break,
            }
        }
        Relation::Nothing
    }
}
