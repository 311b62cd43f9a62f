//! The callee's name in a temporary string of the site, also after that was freed.
//!
//! `('do' . $action)()` frees its name when the call is prepared. The heap puts a pointer over the
//! string's first word, and from 8.4 on another one over the end of its block
//! (`zend_mm_set_next_free_slot`, Zend/zend_alloc.c). The hash and the length are left until the
//! memory is used again. That is soon, so a read of the frames has to have read them too. A name
//! that something else holds is not freed, and is read later.
//! Invariant: the engine computed the hash when it searched for the function. It searches for a
//! copy of a name with capital letters or a leading backslash, so such a name tells nothing.

use super::{Site, Words};
use crate::memory::{END_OF_USER_SPACE, Memory, word_at};
use crate::op::{INIT_DYNAMIC_CALL, INIT_USER_CALL, Op};
use crate::string_hash::is_hash_of;
use crate::zval::{IS_STRING, Zval};

/// How many ops from a call's preparation to the call are searched for one that writes to a
/// temporary: they are read with the site.
const MAX_ARGUMENT_OPS: u64 = 32;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// What has to be read together with the frames of such a call, as an address and a length.
    /// `op` is that at the caller's opline.
    #[must_use]
    pub fn left_by(&self, op: &Op) -> Option<(u64, usize)> {
        let init = op.is_do().then(|| self.init_of(op)).flatten()?;
        if !matches!(init.opcode, INIT_DYNAMIC_CALL | INIT_USER_CALL) {
            return None;
        }
        // The header alone: no block is as short as that, so nothing after it has to be mapped.
        Some((self.left_string(&init)?, self.layout.zend_string.val))
    }

    /// The words that prove that the string of a temporary operand named the callee. The engine
    /// does not call by an op: what it left above the caller may have been named by an argument of
    /// an internal function, which was where the temporary is.
    pub(super) fn temporary_names_callee(&self, init: &Op, call: &Op) -> Option<Words> {
        let operand = self.caller.frame.address.wrapping_add(u64::from(init.op2));
        let is_by_engine = self.callee.frame.call_info & self.layout.call_info.top != 0;
        let string = self.left_string(init).filter(|_| !is_by_engine)?;
        let is_named = self.left_name(string) || self.names_callee(operand).is_some();
        is_named.then(|| {
            if self.keeps_operand(init, call) {
                Words::Temporary(operand)
            } else {
                Words::Operand(operand)
            }
        })
    }

    /// Whether no op from the preparation of a call to the call itself writes to its temporary
    /// operand: in code that opcache has optimized, several ops share one.
    fn keeps_operand(&self, init: &Op, call: &Op) -> bool {
        let size = self.layout.zend_op.sizeof as u64;
        let ops = call.address.saturating_sub(init.address) / size;
        ops <= MAX_ARGUMENT_OPS
            && (1..=ops).all(|index| {
                let op = Op::read(self.memory, self.layout, init.address + index * size);
                op.is_some_and(|op| op.result != init.op2)
            })
    }

    /// Whether a string was the callee's name when it was read with the frames: freed memory keeps
    /// the name's length and hash.
    fn left_name(&self, string: u64) -> bool {
        let (row, function) = (&self.layout.zend_string, &self.callee.function);
        let name = &function.function_name;
        let (length, name) = (name.len() as u64, name.to_ascii_lowercase());
        let mut reads = self.copy.beside.reads(string);
        function.class.is_empty()
            && reads.any(|bytes| {
                word_at(bytes, row.len) == length && is_hash_of(word_at(bytes, row.h), &name)
            })
    }

    /// The address of the string in a temporary operand.
    fn left_string(&self, init: &Op) -> Option<u64> {
        let operand = self
            .caller
            .frame
            .address
            .checked_add(u64::from(init.op2))
            .filter(|_| self.is_temporary(init.op2_type))?;
        match self.copy.zval(operand)? {
            Zval(string, IS_STRING) if string.is_multiple_of(8) && string < END_OF_USER_SPACE => {
                Some(string)
            }
            _ => None,
        }
    }
}
