//! The callee that a PHP callable names: a function's name, or a pair of an object or a class and a
//! method's name (`zend_is_callable_ex`, Zend/zend_API.c).
//!
//! A function such as `call_user_func` has it as an argument, and a site such as `$f()` or
//! `$object->$name()` in an operand. A closure is the object that contains the callee's function.
//! Another closure may have taken its address before its code was read, so the callee's opline must
//! prove the code, too.
//! Invariant: the words that name the callee are in the copy of the stack; only the texts and the
//! pair to which they point are read later.

use super::{Evidence, Relation, Site, Words};
use crate::closure::{FUNCTION, is_closure};
use crate::hash::pair;
use crate::memory::{Memory, word_at};
use crate::op::Op;
use crate::text::ZendString;
use crate::zval::{IS_ARRAY, IS_OBJECT, IS_REFERENCE, IS_STRING, ZVAL, Zval};

/// `zend_reference.val` (Zend/zend_types.h), in all versions.
const REFERENCE_VALUE: u64 = 8;

/// The index of the argument that an internal function calls, if it is always the same.
#[must_use]
pub fn callable_argument(function: &str) -> Option<u64> {
    match function {
        "call_user_func"
        | "call_user_func_array"
        | "forward_static_call"
        | "forward_static_call_array"
        | "array_map" => Some(0),
        "array_filter"
        | "array_reduce"
        | "array_walk"
        | "array_walk_recursive"
        | "array_find"
        | "array_find_key"
        | "array_any"
        | "array_all"
        | "usort"
        | "uasort"
        | "uksort"
        | "iterator_apply"
        | "preg_replace_callback" => Some(1),
        _ => None,
    }
}

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The words that prove that an internal caller calls the callee, which its argument names.
    pub(super) fn calls_argument(&self) -> Option<Words> {
        let index = callable_argument(self.caller.function.internal_name()?)?;
        self.names_callee(self.argument(index)?)
    }

    /// The address of an argument of the caller.
    pub(super) fn argument(&self, index: u64) -> Option<u64> {
        let arguments = self.layout.execute_data.first_argument as u64;
        let offset = arguments + index * ZVAL as u64;
        self.caller.frame.address.checked_add(offset)
    }

    /// The words that prove that the zval at this address names the callee.
    pub(super) fn names_callee(&self, address: u64) -> Option<Words> {
        let is_named = self.is_callable_of_callee(self.copy.zval(address)?);
        is_named.then_some(Words::Operand(address))
    }

    /// Whether a zval is a callable of the callee.
    pub(super) fn is_callable_of_callee(&self, zval: Zval) -> bool {
        match zval {
            Zval(string, IS_STRING) => ZendString::read(self.memory, self.layout, string)
                .is_some_and(|text| self.is_callee(&text.bytes)),
            Zval(array, IS_ARRAY) => pair(self.memory, self.layout, array)
                .is_some_and(|zvals| self.is_pair_of_callee(zvals)),
            Zval(object, IS_OBJECT) => self.is_closure_of_callee(object),
            _ => false,
        }
    }

    /// `$object->$name()`: the method's name and the object are in operands.
    pub(super) fn judge_named_method(&self, init: &Op, check: Relation) -> Evidence {
        let at = |operand: u32| self.caller.frame.address.wrapping_add(u64::from(operand));
        let name = at(init.op2);
        let is_named = || match self.copy.zval(name) {
            Some(Zval(string, IS_STRING)) => ZendString::read(self.memory, self.layout, string)
                .is_some_and(|text| self.is_function_name(&text.bytes)),
            _ => false,
        };
        let is_on_object = || match check {
            Relation::SameThis => self.caller.frame.this == self.callee.frame.this,
            _ => self.copy.zval(at(init.op1)) == Some(Zval(self.callee.frame.this, IS_OBJECT)),
        };
        let is_object_call = self.is_object_call() && !self.callee.function.class.is_empty();
        if is_object_call && is_on_object() && is_named() {
            Evidence::Proven(check, Words::Operand(name))
        } else {
            Evidence::Open
        }
    }

    /// Whether a text is the callee's name: `f`, or `A::m`.
    fn is_callee(&self, text: &[u8]) -> bool {
        let text = without_root(text);
        match text.windows(2).position(|two| two == b"::") {
            Some(at) => self.is_class(&text[..at]) && self.is_function_name(&text[at + 2..]),
            None => self.callee.function.class.is_empty() && self.is_function_name(text),
        }
    }

    /// Whether two zvals are a callable of the callee: `[$object, 'm']` or `['A', 'm']`.
    pub(super) fn is_pair_of_callee(&self, zvals: [Zval; 2]) -> bool {
        let [target, Zval(name, IS_STRING)] = zvals else {
            return false;
        };
        let text = |string| ZendString::read(self.memory, self.layout, string);
        let is_target = match self.behind_reference(target) {
            Some(Zval(object, IS_OBJECT)) => {
                self.is_object_call() && object == self.callee.frame.this
            }
            Some(Zval(class, IS_STRING)) => {
                text(class).is_some_and(|class| self.is_class(without_root(&class.bytes)))
            }
            _ => false,
        };
        is_target && text(name).is_some_and(|name| self.is_function_name(&name.bytes))
    }

    /// Whether an object is the closure that the callee runs, and the callee's opline is in the
    /// code that the function was identified by, which no other code can have replaced.
    fn is_closure_of_callee(&self, object: u64) -> bool {
        let frame = self.callee.frame;
        let key = &self.callee.function.key;
        is_closure(self.layout, frame)
            && object.checked_add(FUNCTION) == Some(frame.func)
            && self.callee.has_own_opline
            && !self.callee.is_passing
            && key.op_index(self.layout, frame.opline).is_some()
    }

    pub(super) fn behind_reference(&self, zval: Zval) -> Option<Zval> {
        let Zval(value, IS_REFERENCE) = zval else {
            return Some(zval);
        };
        let mut zval = [0_u8; ZVAL];
        self.memory
            .read(value.checked_add(REFERENCE_VALUE)?, &mut zval)
            .ok()?;
        Some(Zval(word_at(&zval, 0), zval[8]))
    }

    fn is_class(&self, name: &[u8]) -> bool {
        let class = &self.callee.function.class;
        !class.is_empty() && class.eq_ignore_ascii_case(name)
    }

    fn is_function_name(&self, name: &[u8]) -> bool {
        let callee = &self.callee.function.function_name;
        !callee.is_empty() && callee.eq_ignore_ascii_case(name)
    }
}

/// A name as the engine looks it up, without the leading backslash of a full one.
fn without_root(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"\\").unwrap_or(name)
}
