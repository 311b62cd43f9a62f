//! The object on which a method runs: its class is the method's class, or descends from it.
//!
//! The engine writes a frame's `func` and `This` one after the other (`zend_vm_init_call_frame`,
//! Zend/zend_execute.h): a look can show the function of one call on the object of another. What
//! this module does not do: prove an edge.

use super::generator::OBJECT_CLASS;
use super::{EdgeSide, Relation, Site};
use crate::memory::Memory;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Whether the callee of a method's call runs on an object of its class, and so does a caller
    /// that calls it on its own object.
    pub(super) fn are_on_their_objects(&self, check: Relation) -> bool {
        let callee = || self.is_on_its_object(&self.callee);
        // A closure can be bound to an object of any class, and an included file runs on its
        // includer's object.
        let caller = || !self.caller.function.key.is_named() || self.is_on_its_object(&self.caller);
        match check {
            Relation::SameThis => callee() && caller(),
            Relation::ThisIn(_) => callee(),
            Relation::Nothing | Relation::Passed { .. } => true,
        }
    }

    /// An object that cannot be read refutes nothing.
    fn is_on_its_object(&self, side: &EdgeSide<'_>) -> bool {
        let class = side.frame.this.checked_add(OBJECT_CLASS);
        let class = class.and_then(|class| self.memory.word(class).ok());
        class.is_none_or(|class| self.descends(class, side.scope))
    }
}
