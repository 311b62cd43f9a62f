//! Functions: the engine's data about them, and their ops.

use super::{BLOCK, EngineImage, IS_STRING};
use crate::function::{FunctionKey, HEAD, NamedFunction, ZendFunction};
use crate::memory::Memory;
use crate::op::{NEW, Op};

/// The file of [`EngineImage::user`]'s functions.
pub const FILE: &str = "/srv/a.php";

/// An op to be written.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewOp<'a> {
    /// The number from Zend/zend_vm_opcodes.h.
    pub opcode: u8,
    /// The texts of its literals.
    pub op1: Option<&'a str>,
    /// The text of its literal.
    pub op2: Option<&'a str>,
    /// See [`Op::result`].
    pub result: u32,
    /// See [`Op::extended_value`].
    pub extended_value: u32,
    /// The number of its slot in the run-time cache.
    pub cache_slot: Option<u32>,
}

impl From<u8> for NewOp<'_> {
    fn from(opcode: u8) -> Self {
        Self {
            opcode,
            ..Self::default()
        }
    }
}

/// A function of user code.
#[derive(Debug, Clone, Copy)]
pub struct UserFunction {
    /// The address of the `zend_op_array`.
    pub func: u64,
    /// The address of the first op.
    pub code: u64,
    op_size: u64,
}

impl UserFunction {
    /// The address of an op.
    #[must_use]
    pub fn op(&self, index: u64) -> u64 {
        self.code + index * self.op_size
    }
}

impl EngineImage {
    /// An internal function: of the engine, or of an extension with the address of its
    /// `zend_module_entry`.
    pub fn internal(&mut self, name: &str, module: u64) -> u64 {
        let (at, name, code) = (self.block(), self.string(name), self.block());
        let key = FunctionKey {
            code,
            kind: 1,
            name,
            module,
            ..FunctionKey::default()
        };
        self.put_function(at, &key);
        at
    }

    /// A function of [`FILE`], or its top level if it has no name, and its code: the first op is in
    /// line 2.
    pub fn user(&mut self, name: Option<&str>, ops: &[NewOp<'_>]) -> UserFunction {
        assert!(ops.len() <= 16, "the code does not fit into its block");
        let function = UserFunction {
            func: self.block(),
            code: self.block(),
            op_size: self.layout.zend_op.sizeof as u64,
        };
        let key = FunctionKey {
            code: function.code,
            last: ops.len() as u32,
            kind: 2,
            name: name.map_or(0, |name| self.string(name)),
            filename: self.string(FILE),
            line_start: 1,
            ..FunctionKey::default()
        };
        self.put_function(function.func, &key);
        let literals = self.block();
        self.put_word(function.func, self.layout.function.literals, literals);
        for (index, op) in (0..).zip(ops) {
            let address = function.op(index);
            self.put_new_op(address, literals, 2 + index as u32, op);
        }
        function
    }

    fn put_new_op(&mut self, address: u64, literals: u64, lineno: u32, op: &NewOp<'_>) {
        let rules = &self.layout.rules;
        let base = if rules.literals_in_op_array {
            literals
        } else {
            address
        };
        let slot = op.cache_slot.filter(|_| !rules.cache_slots_in_literals);
        let (op1, op1_type) = self.operand(op.op1, base, op.cache_slot);
        let (op2, op2_type) = self.operand(op.op2, base, op.cache_slot);
        let is_new = op.opcode == NEW;
        self.put_op(&Op {
            address,
            op1,
            op2: slot.filter(|_| is_new).unwrap_or(op2),
            result: slot.filter(|_| !is_new).unwrap_or(op.result),
            extended_value: op.extended_value,
            lineno,
            opcode: op.opcode,
            op1_type,
            op2_type,
        });
    }

    /// The value and the type of an operand; a literal counts from `base`.
    fn operand(&mut self, text: Option<&str>, base: u64, slot: Option<u32>) -> (u32, u8) {
        let types = &self.layout.op_types;
        let Some(text) = text else {
            return (0, types.is_unused);
        };
        let (literal, string) = (self.block(), self.string(text));
        self.put_zval(literal, string, IS_STRING);
        self.put_half(literal, 12, slot.unwrap_or(u32::MAX));
        ((literal - base) as u32, types.is_const)
    }

    /// Writes the fields that [`Op::read`] reads.
    pub fn put_op(&mut self, op: &Op) {
        let (at, row) = (op.address, &self.layout.zend_op);
        self.room(at, row.sizeof as u64);
        for (offset, value) in [
            (row.op1, op.op1),
            (row.op2, op.op2),
            (row.result, op.result),
            (row.extended_value, op.extended_value),
            (row.lineno, op.lineno),
        ] {
            self.put_half(at, offset, value);
        }
        self.put_byte(at, row.opcode, op.opcode);
        self.put_byte(at, row.op1_type, op.op1_type);
        self.put_byte(at, row.op2_type, op.op2_type);
    }

    /// The list of the functions that a function declares, by the addresses of their op_arrays.
    pub fn put_declared(&mut self, func: u64, declared: &[u64]) {
        let row = &self.layout.function;
        let list = self.block();
        for (index, &op_array) in declared.iter().enumerate() {
            self.put_word(list, index * 8, op_array);
        }
        self.put_half(func, row.num_dynamic_func_defs, declared.len() as u32);
        self.put_word(func, row.dynamic_func_defs, list);
    }

    /// Writes the fields that [`FunctionKey::parse`] reads.
    pub fn put_function(&mut self, at: u64, key: &FunctionKey) {
        let row = &self.layout.function;
        self.room(at, BLOCK);
        self.put(at, &[0; HEAD]);
        self.put_half(at, row.fn_flags, u32::from(key.passing) * row.passing_flags);
        self.put_byte(at, row.type_, key.kind);
        self.put_word(at, row.function_name, key.name);
        self.put_word(at, row.scope, key.scope);
        if key.is_user() {
            self.put_word(at, row.opcodes, key.code);
            self.put_half(at, row.last, key.last);
            self.put_word(at, row.filename, key.filename);
            self.put_half(at, row.line_start, key.line_start);
        } else {
            self.put_word(at, row.handler, key.code);
            self.put_word(at, row.module, key.module);
        }
    }

    /// The function at an address, as readers find it.
    #[must_use]
    pub fn function_at(&self, func: u64) -> Option<ZendFunction> {
        let mut head = [0; HEAD];
        self.read(func, &mut head).ok()?;
        let key = FunctionKey::parse(self.layout, &head)?;
        NamedFunction::resolve(self, self.layout, key).map(|named| named.function)
    }
}
