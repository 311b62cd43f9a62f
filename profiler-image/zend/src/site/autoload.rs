//! Calls of autoloaders, which no site names. The class that the site looks up is the callee's
//! argument, or one that the engine is autoloading (`EG(in_autoload)`; `zend_lookup_class_ex`,
//! Zend/zend_execute_API.c; 8.6 has no such table).

use super::operand::TEXT;
use super::{Site, Words};
use crate::hash::find;
use crate::memory::Memory;
use crate::op::{INIT_STATIC_METHOD_CALL, NEW, Op};
use crate::phase::{FETCH_CLASS_CONSTANT, function_looks_up_class, looks_up_class};
use crate::short::ShortText;
use crate::text::ZendString;
use crate::zval::{IS_STRING, ZVAL, Zval};

impl<M: Memory + ?Sized> Site<'_, M> {
    /// The words that prove that the class which this op looks up is being autoloaded.
    pub(super) fn autoloads(&self, op: &Op) -> Option<Words> {
        if !looks_up_class(op.opcode) {
            return None;
        }
        let (operand, kind) = match op.opcode {
            NEW | INIT_STATIC_METHOD_CALL | FETCH_CLASS_CONSTANT => (op.op1, op.op1_type),
            _ => (op.op2, op.op2_type),
        };
        self.autoloads_operand(op, operand, kind)
    }

    /// The words that prove that the class in this operand is being autoloaded.
    pub(super) fn autoloads_operand(&self, op: &Op, operand: u32, kind: u8) -> Option<Words> {
        let class = if kind == self.layout.op_types.is_const {
            self.prepare_lookup(self.literal_address(op, operand, 0)?);
            self.literal(op, operand, 0)
        } else if kind == self.layout.op_types.is_unused {
            None
        } else {
            self.string_at(self.caller.frame.address.wrapping_add(u64::from(operand)))
        };
        self.words_of_loading(class)
    }

    /// Reads together what tells whether a literal's class is being loaded: first the places, then
    /// their content.
    fn prepare_lookup(&self, literal: u64) {
        let argument = self.first_argument_at(self.callee.frame.address);
        let in_autoload = self.in_autoload_at();
        let argument = self.copy.zval(argument);
        let argument = argument.filter(|&Zval(_, kind)| kind == IS_STRING);
        self.memory.prepare(&[
            (literal, ZVAL),
            (argument.map_or(0, |Zval(string, _)| string), TEXT),
            (in_autoload.unwrap_or(0), 8),
        ]);
        let table = in_autoload.and_then(|at| self.memory.word(at).ok());
        let header = (table.unwrap_or(0), self.layout.zend_array.sizeof);
        self.memory.prepare(&[self.text_of(literal), header]);
    }

    /// The same for an internal caller such as `class_exists`: the class is its first argument.
    pub(super) fn autoloads_for_internal(&self) -> Option<Words> {
        let name = self.caller.function.internal_name();
        name.filter(|name| function_looks_up_class(name))?;
        self.words_of_loading(self.first_argument(self.caller.frame.address))
    }

    fn words_of_loading(&self, class: Option<ZendString>) -> Option<Words> {
        let name = class_name(&class?);
        let argument = self.first_argument(self.callee.frame.address);
        if argument.is_some_and(|argument| is_path_of(&class_name(&argument), &name)) {
            // A call from here with exactly this class as its argument is not a coincidence.
            return Some(Words::Code);
        }
        self.is_in_autoload(&name).then_some(Words::Frames)
    }

    fn first_argument(&self, frame: u64) -> Option<ZendString> {
        self.string_at(self.first_argument_at(frame))
    }

    fn first_argument_at(&self, frame: u64) -> u64 {
        frame.wrapping_add(self.layout.execute_data.first_argument as u64)
    }

    fn string_at(&self, address: u64) -> Option<ZendString> {
        match self.copy.zval(address) {
            Some(Zval(string, IS_STRING)) => ZendString::read(self.memory, self.layout, string),
            _ => None,
        }
    }

    fn is_in_autoload(&self, name: &[u8]) -> bool {
        let table = self.in_autoload_at().map(|at| self.memory.word(at));
        match table {
            Some(Ok(table)) if table != 0 => find(self.memory, self.layout, table, name).is_some(),
            _ => false,
        }
    }

    /// The address of `EG(in_autoload)`.
    fn in_autoload_at(&self) -> Option<u64> {
        let offset = self.layout.executor_globals.in_autoload as u64;
        (offset != 0).then_some(self.executor_globals + offset)
    }
}

/// Whether an autoloader's argument names the class, or the rest of it after the autoloader has
/// removed its own prefix.
fn is_path_of(argument: &[u8], class: &[u8]) -> bool {
    !argument.is_empty()
        && class
            .strip_suffix(argument)
            .is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(b"\\"))
}

/// A class as the engine looks it up. Many autoloaders first make a path of their argument, so
/// slashes are ignored.
fn class_name(text: &ZendString) -> ShortText {
    let mut name = text.bytes.clone();
    name.make_ascii_lowercase();
    for byte in name.iter_mut() {
        if *byte == b'/' {
            *byte = b'\\';
        }
    }
    match name.strip_prefix(b"\\") {
        Some(rest) => rest.into(),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_names_the_class_below_a_prefix() {
        let check = |argument: &str, class: &str, expected: bool| {
            let name = |text: &str| class_name(&ZendString::of(text.as_bytes()));
            assert_eq!(is_path_of(&name(argument), &name(class)), expected);
        };
        check("App\\Cart", "app\\cart", true);
        check("\\App\\Cart", "App\\Cart", true);
        check("App/Cart", "App\\Cart", true);
        check("Cart", "App\\Cart", true);
        check("art", "App\\Cart", false);
        check("App\\Cart.php", "App\\Cart", false);
        check("", "App\\Cart", false);
    }
}
