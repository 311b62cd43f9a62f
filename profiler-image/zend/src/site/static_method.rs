//! The method that a static call names: `A::m()`, `parent::__construct()`.
//!
//! What this module does not do: ask the inline cache for the method itself.

use super::{Evidence, Relation, Site, Words};
use crate::memory::Memory;
use crate::op::Op;

/// The class of an operand without a name (Zend/zend_compile.h).
const ZEND_FETCH_CLASS_MASK: u32 = 0x0f;
pub(super) const ZEND_FETCH_CLASS_PARENT: u32 = 2;
const MAX_PARENTS: usize = 64;

impl<M: Memory + ?Sized> Site<'_, M> {
    pub(super) fn judge_static_method(&self, init: &Op) -> Evidence {
        let op_types = &self.layout.op_types;
        let callee = self.callee.function;
        if init.op2_type == op_types.is_const {
            if !self.literal_is(init, init.op2, 0, &callee.function_name) {
                return self.judge_other_name(init, Relation::Nothing);
            }
        } else if init.op2_type != op_types.is_unused
            || !callee.function_name.eq_ignore_ascii_case(b"__construct")
        {
            // `parent::__construct()` has no name operand; any other site without a literal names
            // no callee.
            return Evidence::Open;
        } else if init.op1_type == op_types.is_unused && self.is_parents_constructor(init) {
            return Evidence::Proven(Relation::Nothing, Words::Code);
        }
        let is_const = init.op1_type == op_types.is_const;
        if is_const && self.literal_is(init, init.op1, 0, &callee.class) {
            return Evidence::Proven(Relation::Nothing, Words::Code);
        }
        let related = if is_const {
            self.called_class_is(init)
        } else if init.op1_type == op_types.is_unused {
            // self, parent and static: the callee's class is the caller's or one of its parents.
            self.descends(self.caller.scope, self.callee.scope)
        } else {
            false
        };
        if related {
            Evidence::Proven(Relation::Nothing, Words::Frames)
        } else {
            Evidence::Open
        }
    }

    /// Whether the callee is what `parent::__construct()` calls in the caller's class, whatever the
    /// object is.
    fn is_parents_constructor(&self, init: &Op) -> bool {
        let row = &self.layout.class_entry;
        let word = |address: u64, offset: usize| {
            let address = address.checked_add(offset as u64)?;
            self.memory.word(address).ok().filter(|&word| word != 0)
        };
        let constructor = || word(word(self.caller.scope, row.parent)?, row.constructor);
        init.op1 & ZEND_FETCH_CLASS_MASK == ZEND_FETCH_CLASS_PARENT
            && self.caller.scope != 0
            // In the next request, the address of a class that this one has linked may be another
            // class's.
            && !self.caller.function.is_relinked()
            && constructor() == Some(self.callee.frame.func)
    }

    /// Whether the slot has the class on which this call was made, and the callee's class is that
    /// or a parent.
    fn called_class_is(&self, init: &Op) -> bool {
        let class = self.cached(self.slot(init, init.result, init.op2));
        let class = class
            .filter(|_| !self.has_only_method_slot(init))
            .unwrap_or(0);
        class != 0 && self.descends(class, self.callee.scope)
    }

    pub(super) fn descends(&self, class: u64, ancestor: u64) -> bool {
        let mut class = class;
        for _ in 0..MAX_PARENTS {
            if class == 0 {
                return false;
            }
            if class == ancestor {
                return true;
            }
            let Some(parent) = class.checked_add(self.layout.class_entry.parent as u64) else {
                return false;
            };
            class = self.memory.word(parent).unwrap_or(0);
        }
        false
    }
}
