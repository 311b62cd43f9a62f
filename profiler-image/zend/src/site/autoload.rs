//! Calls of autoloaders, which no site names: the class that the site looks up is one that the engine says is being
//! autoloaded (`EG(in_autoload)`; `zend_lookup_class_ex`, Zend/zend_execute_API.c). 8.6 has no such table.

use super::{IS_STRING, Site};
use crate::hash::find;
use crate::memory::Memory;
use crate::op::{INIT_STATIC_METHOD_CALL, NEW, Op};
use crate::phase::{FETCH_CLASS_CONSTANT, function_looks_up_class, looks_up_class};
use crate::text::ZendString;

impl<M: Memory + ?Sized> Site<'_, M> {
    /// Whether the class that this op looks up is being autoloaded.
    pub(super) fn autoloads(&self, op: &Op) -> bool {
        if !looks_up_class(op.opcode) {
            return false;
        }
        let (operand, kind) = match op.opcode {
            NEW | INIT_STATIC_METHOD_CALL | FETCH_CLASS_CONSTANT => (op.op1, op.op1_type),
            _ => (op.op2, op.op2_type),
        };
        self.autoloads_operand(op, operand, kind)
    }

    /// Whether the class that this operand names is being autoloaded.
    pub(super) fn autoloads_operand(&self, op: &Op, operand: u32, kind: u8) -> bool {
        let class = if kind == self.layout.op_types.is_const {
            self.literal(op, operand, 0)
        } else if kind == self.layout.op_types.is_unused {
            None
        } else {
            self.string_at(self.caller.frame.address.wrapping_add(u64::from(operand)))
        };
        self.is_in_autoload(class)
    }

    /// The same for an internal caller, as `class_exists`: the class is its first argument.
    pub(super) fn autoloads_for_internal(&self) -> bool {
        if !function_looks_up_class(&self.caller.function.name) {
            return false;
        }
        let argument = self.layout.execute_data.first_argument as u64;
        self.is_in_autoload(self.string_at(self.caller.frame.address.wrapping_add(argument)))
    }

    fn string_at(&self, address: u64) -> Option<ZendString> {
        match self.copy.zval(address) {
            Some((string, IS_STRING)) => ZendString::read(self.memory, self.layout, string),
            _ => None,
        }
    }

    fn is_in_autoload(&self, class: Option<ZendString>) -> bool {
        let offset = self.layout.executor_globals.in_autoload as u64;
        let table = match self.memory.word(self.executor_globals + offset) {
            Ok(table) if offset != 0 && table != 0 => table,
            _ => return false,
        };
        class.is_some_and(|class| {
            let name = class.bytes.to_ascii_lowercase();
            let name = name.strip_prefix(b"\\").unwrap_or(&name);
            find(self.memory, self.layout, table, name).is_some()
        })
    }
}
