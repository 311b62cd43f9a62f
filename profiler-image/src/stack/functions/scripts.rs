//! Finds the script of a frame whose op_array was freed before it was read: by its opline, in
//! opcache's table.
//!
//! Invariant: a script is found only if its own op_array, read now, has the opline in its code.

use phpprof_zend::function::{FunctionKey, HEAD};
use phpprof_zend::memory::Memory;
use phpprof_zend::opcache::{Script, read_scripts};
use phpprof_zend::unwind::Frame;

use super::StackPlace;
use super::lifetime::is_shared;

/// The table is read at most this often.
pub(super) const READ_EVERY: u64 = 1_000_000_000;

/// The scripts in opcache's table.
#[derive(Debug, Default)]
pub(super) struct Scripts {
    list: Vec<Script>,
    /// When they were read.
    at: Option<u64>,
}

/// The key of a frame's script; `None` if opcache has none with this opline.
pub(super) fn key_of_cached<M: Memory + ?Sized>(
    place: &mut StackPlace<'_, M>,
    frame: &Frame,
) -> Option<FunctionKey> {
    if !frame.is_script(place.layout) || !is_shared(place, frame.opline) {
        return None;
    }
    let known = place.shared.scripts.key_at(place, frame.opline);
    if known.is_some() {
        return known;
    }
    let Scripts { at, .. } = place.shared.scripts;
    if at.is_some_and(|at| place.now.saturating_sub(at) < READ_EVERY) {
        return None;
    }
    let Scripts { list, at } = &mut place.shared.scripts;
    read_scripts(place.memory, place.layout, place.shared_ranges, list);
    *at = Some(place.now);
    place.shared.scripts.key_at(place, frame.opline)
}

impl Scripts {
    fn key_at<M: Memory + ?Sized>(
        &self,
        place: &StackPlace<'_, M>,
        opline: u64,
    ) -> Option<FunctionKey> {
        let after = self.list.partition_point(|script| script.opcodes <= opline);
        let script = self.list.get(after.checked_sub(1)?)?;
        let mut head = [0_u8; HEAD];
        place.memory.read(script.main_op_array, &mut head).ok()?;
        FunctionKey::of_script(place.layout, &head, opline)
    }
}
