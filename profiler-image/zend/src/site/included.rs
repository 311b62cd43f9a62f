//! Included files and eval()'d code, which one op runs.
//!
//! The engine names eval()'d code after its call, `FILE(LINE) : eval()'d code`
//! (zend_include_or_eval, Zend/zend_execute.c): other code that has taken its addresses since the
//! read has another name, unless the same line made it.
//! Invariant: an op proves only code of its own kind, and of its own line.

use super::{Evidence, Relation, Site, Words};
use crate::memory::Memory;
use crate::op::Op;
use crate::string_hash::is_hash_of;
use crate::text::ZendString;

/// `extended_value` of INCLUDE_OR_EVAL for `eval`.
const ZEND_EVAL: u32 = 1;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Judges the edge from an INCLUDE_OR_EVAL.
    pub(super) fn judge_included(&self, op: &Op) -> Evidence {
        let callee = &self.callee.function.key;
        let is_eval = op.extended_value == ZEND_EVAL;
        let is_included = callee.is_top_level()
            && callee.is_eval() == is_eval
            && (!is_eval || self.is_evaluated_at(op.lineno));
        if is_included {
            Evidence::Proven(Relation::Nothing, Words::Script)
        } else {
            Evidence::Refuted
        }
    }

    /// Whether the callee is named as code that this line of the caller evaluates.
    fn is_evaluated_at(&self, line: u32) -> bool {
        let file = self.caller.function.key.filename;
        let Some(file) = ZendString::read(self.memory, self.layout, file) else {
            return false;
        };
        let place = format!("({line}) : eval()'d code");
        let expected = [&file.bytes[..], place.as_bytes()].concat();
        let callee = &self.callee.function;
        let [_, name] = callee.fingerprints;
        // A hash by another rule than ours says nothing, so the text itself is compared.
        let has_text = || {
            let name = ZendString::read(self.memory, self.layout, callee.key.filename);
            name.is_some_and(|name| name.bytes[..] == expected[..])
        };
        is_hash_of(name, &expected) || (!callee.is_checked && has_text())
    }
}
