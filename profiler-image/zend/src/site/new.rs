//! The constructor that NEW calls.

use super::{Evidence, Relation, Site, Words};
use crate::memory::Memory;
use crate::op::Op;
use crate::zval::{IS_OBJECT, Zval};

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The answer of the class that the site has made last, if it has a literal class and has made
    /// one.
    pub(super) fn judge_cached_class(&self, init: &Op) -> Option<Evidence> {
        if init.op1_type != self.layout.op_types.is_const {
            return None;
        }
        let class = self.cached(self.slot(init, init.op2, init.op1));
        let class = class.filter(|&class| class != 0)?;
        let constructor = class.wrapping_add(self.layout.class_entry.constructor as u64);
        // If a class has no constructor, its `new` with arguments calls the nameless
        // `zend_pass_function`.
        let expected = if self.callee.function.key.is_nameless() {
            0
        } else {
            self.callee.frame.func
        };
        Some(if self.memory.word(constructor) == Ok(expected) {
            Evidence::Proven(Relation::Nothing, self.cache_words())
        } else {
            Evidence::Refuted
        })
    }

    pub(super) fn judge_new(&self, init: &Op) -> Evidence {
        let callee = self.callee.function;
        let is_const = init.op1_type == self.layout.op_types.is_const;
        if callee.key.is_nameless() {
            return Evidence::Open;
        }
        // Up to 7.4 a method with the class's name is a constructor too.
        let name = callee.function_name.as_slice();
        let is_constructor = name.eq_ignore_ascii_case(b"__construct")
            || (!callee.class.is_empty() && callee.class.eq_ignore_ascii_case(name));
        if !is_constructor {
            return Evidence::Refuted;
        }
        if is_const && self.literal_is(init, init.op1, 0, &callee.class) {
            return Evidence::Proven(Relation::Nothing, Words::Code);
        }
        // NEW puts the object into its result before it calls the constructor.
        let result = self
            .caller
            .frame
            .address
            .wrapping_add(u64::from(init.result));
        match self.copy.zval(result) {
            Some(Zval(object, IS_OBJECT))
                if self.is_object_call() && object == self.callee.frame.this =>
            {
                Evidence::Proven(Relation::Nothing, Words::Operand(result))
            }
            _ => Evidence::Open,
        }
    }
}
