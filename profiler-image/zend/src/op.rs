//! One `zend_op`, and the opcodes of calls.
//!
//! What this module does not do: find the callee; that is [`crate::site`].

use crate::layouts::Layout;
use crate::memory::{Memory, byte_at, half_at};

// Opcodes of calls have not changed since 7.0 (Zend/zend_vm_opcodes.h); later ones have numbers
// that no earlier version uses. A test compares them with each version's table.
pub(crate) const CONCAT: u8 = 8;
/// From 7.4 on, as the next four, CAST and ECHO ([`crate::layouts::VersionRules::has_assign_op`]).
pub(crate) const ASSIGN_OBJ: u8 = 24;
pub(crate) const ASSIGN_OP: u8 = 26;
pub(crate) const ASSIGN_DIM_OP: u8 = 27;
pub(crate) const ASSIGN_OBJ_OP: u8 = 28;
pub(crate) const ASSIGN_STATIC_PROP_OP: u8 = 29;
pub(crate) const CAST: u8 = 51;
pub(crate) const FAST_CONCAT: u8 = 53;
pub(crate) const ROPE_INIT: u8 = 54;
pub(crate) const ROPE_ADD: u8 = 55;
pub(crate) const ROPE_END: u8 = 56;
pub(crate) const INIT_FCALL_BY_NAME: u8 = 59;
pub(crate) const DO_FCALL: u8 = 60;
/// ZEND_INIT_FCALL: prepares the call of a function that was known when the script was compiled.
pub const INIT_FCALL: u8 = 61;
pub(crate) const RETURN: u8 = 62;
pub(crate) const SEND_VAL: u8 = 65;
pub(crate) const SEND_VAR_EX: u8 = 66;
pub(crate) const SEND_REF: u8 = 67;
pub(crate) const NEW: u8 = 68;
pub(crate) const INIT_NS_FCALL_BY_NAME: u8 = 69;
pub(crate) const INIT_ARRAY: u8 = 71;
pub(crate) const ADD_ARRAY_ELEMENT: u8 = 72;
/// ZEND_INCLUDE_OR_EVAL: runs a file or a text.
pub const INCLUDE_OR_EVAL: u8 = 73;
pub(crate) const FE_RESET_R: u8 = 77;
pub(crate) const FE_FETCH_R: u8 = 78;
pub(crate) const FETCH_DIM_R: u8 = 81;
pub(crate) const FETCH_OBJ_R: u8 = 82;
pub(crate) const FETCH_OBJ_FUNC_ARG: u8 = 94;
pub(crate) const INIT_METHOD_CALL: u8 = 112;
/// ZEND_INIT_STATIC_METHOD_CALL: prepares `A::b()`.
pub const INIT_STATIC_METHOD_CALL: u8 = 113;
pub(crate) const SEND_VAL_EX: u8 = 116;
pub(crate) const SEND_VAR: u8 = 117;
pub(crate) const INIT_USER_CALL: u8 = 118;
pub(crate) const FE_RESET_RW: u8 = 125;
pub(crate) const FE_FETCH_RW: u8 = 126;
/// ZEND_INIT_DYNAMIC_CALL: prepares `$f()`.
pub const INIT_DYNAMIC_CALL: u8 = 128;
/// ZEND_DO_ICALL: calls an internal function.
pub const DO_ICALL: u8 = 129;
/// ZEND_DO_UCALL: calls user code.
pub const DO_UCALL: u8 = 130;
pub(crate) const DO_FCALL_BY_NAME: u8 = 131;
pub(crate) const ECHO: u8 = 136;
/// Up to 7.3 this was the number of ASSIGN_DIM, which resumes no generator.
pub(crate) const ADD_ARRAY_UNPACK: u8 = 147;
pub(crate) const SEND_UNPACK: u8 = 165;
pub(crate) const CALLABLE_CONVERT: u8 = 202;
pub(crate) const FRAMELESS_ICALL_0: u8 = 204;
pub(crate) const FRAMELESS_ICALL_3: u8 = 207;
pub(crate) const INIT_PARENT_PROPERTY_HOOK_CALL: u8 = 209;
pub(crate) const CALLABLE_CONVERT_PARTIAL: u8 = 212;

/// The opcodes above by name, for the test.
pub const CALL_OPCODES: &[(&str, u8)] = &[
    ("CONCAT", CONCAT),
    ("ASSIGN_OP", ASSIGN_OP),
    ("ASSIGN_DIM_OP", ASSIGN_DIM_OP),
    ("ASSIGN_OBJ_OP", ASSIGN_OBJ_OP),
    ("ASSIGN_STATIC_PROP_OP", ASSIGN_STATIC_PROP_OP),
    ("CAST", CAST),
    ("FAST_CONCAT", FAST_CONCAT),
    ("ROPE_INIT", ROPE_INIT),
    ("ROPE_ADD", ROPE_ADD),
    ("ROPE_END", ROPE_END),
    ("INIT_FCALL_BY_NAME", INIT_FCALL_BY_NAME),
    ("DO_FCALL", DO_FCALL),
    ("INIT_FCALL", INIT_FCALL),
    ("RETURN", RETURN),
    ("SEND_VAL", SEND_VAL),
    ("SEND_VAR_EX", SEND_VAR_EX),
    ("SEND_REF", SEND_REF),
    ("NEW", NEW),
    ("INIT_NS_FCALL_BY_NAME", INIT_NS_FCALL_BY_NAME),
    ("INIT_ARRAY", INIT_ARRAY),
    ("ADD_ARRAY_ELEMENT", ADD_ARRAY_ELEMENT),
    ("INCLUDE_OR_EVAL", INCLUDE_OR_EVAL),
    ("FE_RESET_R", FE_RESET_R),
    ("FE_FETCH_R", FE_FETCH_R),
    ("FETCH_DIM_R", FETCH_DIM_R),
    ("FETCH_OBJ_R", FETCH_OBJ_R),
    ("FETCH_OBJ_FUNC_ARG", FETCH_OBJ_FUNC_ARG),
    ("INIT_METHOD_CALL", INIT_METHOD_CALL),
    ("INIT_STATIC_METHOD_CALL", INIT_STATIC_METHOD_CALL),
    ("SEND_VAL_EX", SEND_VAL_EX),
    ("SEND_VAR", SEND_VAR),
    ("INIT_USER_CALL", INIT_USER_CALL),
    ("FE_RESET_RW", FE_RESET_RW),
    ("FE_FETCH_RW", FE_FETCH_RW),
    ("INIT_DYNAMIC_CALL", INIT_DYNAMIC_CALL),
    ("DO_ICALL", DO_ICALL),
    ("DO_UCALL", DO_UCALL),
    ("DO_FCALL_BY_NAME", DO_FCALL_BY_NAME),
    ("ECHO", ECHO),
    ("ADD_ARRAY_UNPACK", ADD_ARRAY_UNPACK),
    ("SEND_UNPACK", SEND_UNPACK),
    ("CALLABLE_CONVERT", CALLABLE_CONVERT),
    ("FRAMELESS_ICALL_0", FRAMELESS_ICALL_0),
    ("FRAMELESS_ICALL_3", FRAMELESS_ICALL_3),
    (
        "INIT_PARENT_PROPERTY_HOOK_CALL",
        INIT_PARENT_PROPERTY_HOOK_CALL,
    ),
    ("CALLABLE_CONVERT_PARTIAL", CALLABLE_CONVERT_PARTIAL),
];

/// Whether this may be YIELD_FROM, whose number changed with 7.4: the first one is now
/// DECLARE_LAMBDA_FUNCTION.
#[must_use]
pub fn is_yield_from(opcode: u8) -> bool {
    matches!(opcode, 142 | 166)
}

/// Whether this passes an argument, in one of the commonest ways.
pub(crate) fn is_send(opcode: u8) -> bool {
    matches!(
        opcode,
        SEND_VAL | SEND_VAR_EX | SEND_REF | SEND_VAL_EX | SEND_VAR
    )
}

/// Whether an op with this opcode can have pushed the callee's frame, other than by
/// `zend_call_function`, which marks its callee (`ZEND_CALL_TOP`), or by resuming a generator.
#[must_use]
pub fn may_push_frame(opcode: u8) -> bool {
    is_do(opcode)
        || is_frameless(opcode)
        || matches!(opcode, INCLUDE_OR_EVAL | FETCH_OBJ_R | FETCH_OBJ_FUNC_ARG)
}

/// Whether this makes a call that an earlier op has prepared.
fn is_do(opcode: u8) -> bool {
    matches!(opcode, DO_FCALL | DO_ICALL | DO_UCALL | DO_FCALL_BY_NAME)
}

/// Whether this calls an internal function without a frame, from 8.4 on.
#[must_use]
pub fn is_frameless(opcode: u8) -> bool {
    (FRAMELESS_ICALL_0..=FRAMELESS_ICALL_3).contains(&opcode)
}

/// A `zend_op` as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// Its address.
    pub address: u64,
    /// `op1.var` or `op1.constant`, depending on its type, like the next two.
    pub op1: u32,
    /// `op2.var` or `op2.constant`.
    pub op2: u32,
    /// `result.var`, or what the opcode stores there.
    pub result: u32,
    /// Its meaning depends on the opcode.
    pub extended_value: u32,
    /// The line of the statement or expression.
    pub lineno: u32,
    /// The number from Zend/zend_vm_opcodes.h.
    pub opcode: u8,
    /// IS_CONST, IS_CV, … (Zend/zend_compile.h).
    pub op1_type: u8,
    /// The same of `op2`.
    pub op2_type: u8,
}

impl Op {
    /// Reads one op.
    pub fn read<M: Memory + ?Sized>(memory: &M, layout: &Layout, address: u64) -> Option<Self> {
        let mut bytes = [0_u8; 32];
        memory
            .read(address, bytes.get_mut(..layout.zend_op.sizeof)?)
            .ok()?;
        Some(Self::parse(layout, address, &bytes))
    }

    pub(crate) fn parse(layout: &Layout, address: u64, bytes: &[u8]) -> Self {
        let row = &layout.zend_op;
        Self {
            address,
            op1: half_at(bytes, row.op1),
            op2: half_at(bytes, row.op2),
            result: half_at(bytes, row.result),
            extended_value: half_at(bytes, row.extended_value),
            lineno: half_at(bytes, row.lineno),
            opcode: byte_at(bytes, row.opcode),
            op1_type: byte_at(bytes, row.op1_type),
            op2_type: byte_at(bytes, row.op2_type),
        }
    }

    pub(crate) fn is_do(&self) -> bool {
        is_do(self.opcode)
    }

    /// Whether this makes a callable from a pending call, which then has no DO_*.
    pub(crate) fn is_conversion(&self) -> bool {
        matches!(self.opcode, CALLABLE_CONVERT | CALLABLE_CONVERT_PARTIAL)
    }

    pub(crate) fn is_init(&self) -> bool {
        matches!(
            self.opcode,
            INIT_FCALL_BY_NAME
                | INIT_FCALL
                | NEW
                | INIT_NS_FCALL_BY_NAME
                | INIT_METHOD_CALL
                | INIT_STATIC_METHOD_CALL
                | INIT_USER_CALL
                | INIT_DYNAMIC_CALL
                | INIT_PARENT_PROPERTY_HOOK_CALL
        )
    }
}
