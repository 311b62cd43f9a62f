//! The header of a `zend_object` (Zend/zend_types.h): references, type, place and class.
//!
//! Invariant: a header is an object's only if it has the place in the table that led to it.

use crate::layouts::ZendObject;
use crate::memory::{END_OF_USER_SPACE, half_at, word_at};
use crate::zval::IS_OBJECT;

/// The bytes of an object that are used.
pub const HEADER: usize = 24;
/// The bits of the type in an object's second half; flags follow.
const TYPE: u32 = 0x0f;

/// An object, and its place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenObject {
    pub address: u64,
    pub handle: u32,
}

/// The address of the class of the object that has this place; `None` if the header is not that of
/// a live object, or of one with another place.
pub fn class_of(row: &ZendObject, header: &[u8], handle: u32) -> Option<u64> {
    let (references, kind) = (half_at(header, 0), half_at(header, 4) & TYPE);
    let class = word_at(header, row.ce);
    let is_object = references > 0
        && kind == u32::from(IS_OBJECT)
        && half_at(header, row.handle) == handle
        && class != 0
        && class.is_multiple_of(8)
        && class < END_OF_USER_SPACE;
    is_object.then_some(class)
}
