//! How long a function, a code and a frame stay what they are.

use phpprof_zend::Layout;
use phpprof_zend::function::Key;
use phpprof_zend::memory::{Memory, Piece};
use phpprof_zend::walk::Frame;

use super::Place;

/// Whether a code outlives the request: it lies in shared memory, or is an internal function in the engine's tables.
/// Such codes are kept in the family's map and never freed, since every worker may hold them.
pub(super) fn outlives<M: Memory + ?Sized>(place: &Place<'_, M>, key: &Key) -> bool {
    if key.is_user() {
        is_shared(place, key.code)
    } else {
        is_named(key)
    }
}

/// Whether a leaf still is what it was: the function in it, its caller, and that nothing has returned from it.
pub fn stands<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    current_execute_data: u64,
    leaf: &Frame,
) -> bool {
    let (mut func, mut prev, mut top) = ([0; 8], [0; 8], [0; 8]);
    let row = &layout.execute_data;
    let read = memory.gather(&mut [
        Piece {
            address: current_execute_data,
            bytes: &mut top,
        },
        Piece {
            address: leaf.address + row.func as u64,
            bytes: &mut func,
        },
        Piece {
            address: leaf.address + row.prev_execute_data as u64,
            bytes: &mut prev,
        },
    ]);
    read.is_ok()
        && u64::from_le_bytes(func) == leaf.func
        && u64::from_le_bytes(prev) == leaf.prev
        && u64::from_le_bytes(top) == leaf.address
}

/// Whether a function is named and lives in a table of the engine, not in an object or for one call.
pub fn is_named(key: &Key) -> bool {
    !key.passing && key.name != 0
}

pub(super) fn is_shared<M: Memory + ?Sized>(place: &Place<'_, M>, address: u64) -> bool {
    place
        .shared_ranges
        .iter()
        .any(|range| range.contains(&address))
}
