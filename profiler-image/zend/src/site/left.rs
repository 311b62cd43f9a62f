//! The callee's name in a temporary string of the site.
//!
//! `('do' . $action)()` frees its name when the call is prepared. The heap puts a pointer over the string's first word, and from 8.4 on another
//! one over the end of its block, where a short text is. The hash, the length and, up to 8.3, the text are left until the memory is used
//! again. That is soon, so a read of the frames has to have read them too.
//! Invariant: the hash of a freed string, which the engine computes when it searches for the function, is that of the text.

use super::Site;
use crate::memory::{Memory, word_at};
use crate::op::{INIT_DYNAMIC_CALL, INIT_USER_CALL, Op};
use crate::text::{ZendString, hash_of};
use crate::zval::IS_STRING;

/// The bytes of a string that have a name of up to 40 bytes.
const LENGTH: usize = 64;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// What has to be read together with the frames of such a call, as an address and a length. `op` is that at the caller's opline.
    #[must_use]
    pub fn left_by(&self, op: &Op) -> Option<(u64, usize)> {
        let init = op.is_do().then(|| self.init_of(op)).flatten()?;
        let is_dynamic = matches!(init.opcode, INIT_DYNAMIC_CALL | INIT_USER_CALL);
        is_dynamic.then(|| Some((self.left_string(&init)?, LENGTH)))?
    }

    /// Whether the string in a temporary operand named the callee. The engine does not call by an op: what it left above the caller may have been named by an argument of
    /// an internal function, which was where the temporary is.
    pub(super) fn left_name(&self, init: &Op) -> bool {
        let is_by_engine = self.callee.frame.call_info & self.layout.call_info.top != 0;
        let Some(string) = self.left_string(init).filter(|_| !is_by_engine) else {
            return false;
        };
        let live = ZendString::read(self.memory, self.layout, string);
        let is_callee = |text: &[u8]| self.is_callee(text);
        live.is_some_and(|text| is_callee(&text.bytes)) || self.freed(string).is_some_and(is_callee)
    }

    /// The text of a freed string that was read with the frames.
    fn freed(&self, string: u64) -> Option<&[u8]> {
        let bytes = self.copy.beside.at(string)?;
        let row = &self.layout.zend_string;
        let length = usize::try_from(word_at(bytes, row.len)).ok()?;
        let text = bytes.get(row.val..)?.get(..length)?;
        (word_at(bytes, row.h) == hash_of(text)).then_some(text)
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
            (string, IS_STRING) => Some(string),
            _ => None,
        }
    }
}
