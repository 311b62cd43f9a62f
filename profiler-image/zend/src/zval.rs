//! A zval, the engine's value: its form is the same in every version (Zend/zend_types.h).

use crate::memory::{byte_at, word_at};

/// Its size in bytes.
pub const ZVAL: usize = 16;
/// The offset of its type; the value comes first.
pub const TYPE: usize = 8;
/// The offset of its second word's other half (`u2`).
pub const U2: usize = 12;

/// Its value and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zval(pub u64, pub u8);

impl Zval {
    /// The one that these bytes begin with.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        Self(word_at(bytes, 0), byte_at(bytes, TYPE))
    }

    /// Whether it leads to other values.
    #[must_use]
    pub fn is_followed(self) -> bool {
        matches!(self.1, IS_ARRAY | IS_OBJECT | IS_REFERENCE)
    }
}

/// No value.
pub const IS_UNDEF: u8 = 0;
/// `null`.
pub const IS_NULL: u8 = 1;
/// A number.
pub const IS_LONG: u8 = 4;
/// A floating-point number.
pub const IS_DOUBLE: u8 = 5;
/// The address of a `zend_string`.
pub const IS_STRING: u8 = 6;
/// The address of a `zend_array`.
pub const IS_ARRAY: u8 = 7;
/// The address of a `zend_object`.
pub const IS_OBJECT: u8 = 8;
/// The address of a `zend_reference`.
pub const IS_REFERENCE: u8 = 10;
