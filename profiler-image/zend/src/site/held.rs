//! Magic methods that the engine calls on an object without a call site, such as destructors.
//!
//! The caller holds the object: in a variable, in a temporary of its op, or in a variable of the function that returns to it. A function
//! that returns is no longer on the stack while the engine destroys its variables, but its frame is still there, between the two
//! (`zend_leave_helper`, Zend/zend_vm_def.h). Invariant: the words that hold the object are in the copy of the stack.

use super::{IS_OBJECT, Words};
use crate::function::Function;
use crate::layouts::Layout;
use crate::unwind::{Copy, Frame};

/// Bytes of a zval.
const ZVAL: usize = 16;
/// The largest distance between the two frames, in zvals.
const MAX_ZVALS: usize = 1024;
/// Methods of an object that no call site names (`zend_add_magic_method`, Zend/zend_API.c).
const MAGIC: [&str; 6] = [
    "__destruct",
    "__toString",
    "__get",
    "__set",
    "__isset",
    "__unset",
];

/// Whether a function is a method that the engine calls by itself.
#[must_use]
pub fn is_magic(function: &Function) -> bool {
    let name = function.function_name.as_slice();
    let mut magic = MAGIC.iter();
    !function.class.is_empty() && magic.any(|magic| name.eq_ignore_ascii_case(magic.as_bytes()))
}

/// The words between a caller and its callee that hold the object on which the callee was called.
#[must_use]
pub fn held(layout: &Layout, copy: &Copy, caller: &Frame, callee: &Frame) -> Option<Words> {
    if !callee.has_this() || !copy.inside(callee.address) {
        return None;
    }
    let first = caller
        .address
        .checked_add(layout.execute_data.sizeof as u64)?;
    let mut zvals = (first..callee.address).step_by(ZVAL).take(MAX_ZVALS);
    zvals
        .find(|&address| copy.zval(address) == Some((callee.this, IS_OBJECT)))
        .map(Words::Operand)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::{Machine, layout_of};

    const STACK: u64 = 0x20_0000;
    const OBJECT: u64 = 0x30_0000;
    const CALLEE: u64 = STACK + 0x100;

    fn check(zval: u64, value: u64, kind: u8, expected: Option<u64>) {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let mut bytes = vec![0; 0x180];
        let at = usize::try_from(zval - STACK).unwrap();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        bytes[at + 8] = kind;
        let mut copy = Copy::default();
        (copy.base, copy.bytes) = (STACK, bytes);
        let caller = Frame {
            address: STACK,
            ..Frame::default()
        };
        let callee = Frame {
            address: CALLEE,
            this: OBJECT,
            this_type: IS_OBJECT,
            ..Frame::default()
        };
        let found = held(layout, &copy, &caller, &callee);
        assert_eq!(found, expected.map(Words::Operand), "{zval:#x}");
        let without = Frame {
            this_type: 0,
            ..callee
        };
        assert_eq!(held(layout, &copy, &caller, &without), None);
    }

    #[test]
    fn an_object_is_held_by_a_zval_between_caller_and_callee() {
        let header = layout_of(Machine::X86_64, 8, 2)
            .unwrap()
            .execute_data
            .sizeof as u64;
        let first = STACK + header;
        check(first, OBJECT, IS_OBJECT, Some(first));
        check(CALLEE - 16, OBJECT, IS_OBJECT, Some(CALLEE - 16));
        check(CALLEE, OBJECT, IS_OBJECT, None);
        check(first, OBJECT + 8, IS_OBJECT, None);
        check(first, OBJECT, super::super::IS_STRING, None);
    }

    #[test]
    fn only_methods_with_a_magic_name_are_called_by_the_engine_itself() {
        let check = |class: &str, name: &str, expected: bool| {
            let function = Function {
                key: Default::default(),
                function_name: name.as_bytes().into(),
                class: class.as_bytes().into(),
                fingerprints: [0, 0],
            };
            assert_eq!(is_magic(&function), expected, "{class}::{name}");
        };
        check("A", "__destruct", true);
        check("A", "__TOSTRING", true);
        check("", "__get", false);
        check("A", "__call", false);
        check("A", "get", false);
    }
}
