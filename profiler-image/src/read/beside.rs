//! Which frames outside the newest page of the VM stack a worker's reads take with the looks: those
//! that its last stacks had.
//!
//! Invariant: they are at most [`MOST`] parts of memory with at most [`MOST_BYTES`] bytes, and none
//! that no stack has had for a while.

use phpprof_zend::unwind::Copy;
use smallvec::SmallVec;

/// Parts of memory. A recursion of generators has one for each of them.
const MOST: usize = 64;
/// The bytes of all parts together. They are read three times, so they cost as much as the looks.
const MOST_BYTES: u64 = 16 << 10;
/// The bytes of one part: a run of frames on another stack.
const LONGEST: u64 = 4 << 10;
/// Frames with so few bytes between them are one part. It is less than a memory page, so what is
/// between two frames can be read too.
const NEAR: u64 = 512;
/// A part is forgotten after this many reads of stacks that did not have it.
const UNUSED: u32 = 64;

/// The frames outside the page that are expected.
#[derive(Debug, Default)]
pub(super) struct Expected(SmallVec<[BesidePart; 4]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BesidePart {
    address: u64,
    length: u64,
    /// The reads since a stack had it.
    unused: u32,
}

impl BesidePart {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.length)
    }
}

impl Expected {
    /// Each as an address and a length.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u64, usize)> {
        let length = |part: &BesidePart| usize::try_from(part.length).unwrap_or(0);
        self.0.iter().map(move |part| (part.address, length(part)))
    }

    /// Notes what unwinding has used of these parts, and which frames of stacks it has read by
    /// calls of their own. Most words that lead out of the page are remainders, and lead nowhere. A
    /// fiber that was left meanwhile has no stack either, but the read has met its page.
    pub(super) fn note(&mut self, copy: &Copy, is_on_other_page: impl Fn(u64) -> bool) {
        for (part, is_used) in self.0.iter_mut().zip(copy.beside.used()) {
            part.unused = if is_used { 0 } else { part.unused + 1 };
        }
        self.0.retain(|part| part.unused < UNUSED);
        for late in copy.late() {
            if late.is_of_stack || is_on_other_page(late.address) {
                self.add(late.address, late.length as u64);
            }
        }
        while self.0.len() > MOST || self.0.iter().map(|part| part.length).sum::<u64>() > MOST_BYTES
        {
            let oldest = (0..self.0.len()).max_by_key(|&index| self.0[index].unused);
            self.0.remove(oldest.unwrap_or(0));
        }
    }

    /// Forgets all of them: one cannot be read. Returns whether there were any.
    pub(super) fn forget(&mut self) -> bool {
        let had = !self.0.is_empty();
        self.0.clear();
        had
    }

    /// Adds a frame to the part that it is near, or as a part of its own.
    pub(super) fn add(&mut self, address: u64, length: u64) {
        for part in &mut self.0 {
            let begin = part.address.min(address);
            let (old, new) = (part.end(), address.saturating_add(length));
            let end = old.max(new);
            let is_near =
                address <= old.saturating_add(NEAR) && part.address <= new.saturating_add(NEAR);
            if is_near && end - begin <= LONGEST {
                (part.address, part.length, part.unused) = (begin, end - begin, 0);
                return;
            }
        }
        self.0.push(BesidePart {
            address,
            length,
            unused: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use phpprof_zend::layouts::{Machine, layout_of};
    use phpprof_zend::testing::EngineImage;
    use phpprof_zend::unwind::unwind;

    use super::*;

    fn expected(frames: &[(u64, u64)]) -> Vec<(u64, usize)> {
        let mut expected = Expected::default();
        for &(address, length) in frames {
            expected.add(address, length);
        }
        expected.parts().collect()
    }

    #[test]
    fn frames_near_each_other_are_one_part() {
        let parts = expected(&[(0x1_00d0, 256), (0x1_0020, 256), (0x2_0000, 256)]);
        assert_eq!(parts, [(0x1_0020, 0xb0 + 256), (0x2_0000, 256)]);
        // So near that nothing between them can be unmapped, but too many bytes together.
        let run: Vec<_> = (0..20).map(|frame| (0x1_0000 + frame * 512, 256)).collect();
        let parts = expected(&run);
        assert!(
            parts
                .iter()
                .all(|&(_, length)| length <= usize::try_from(LONGEST).unwrap())
        );
        assert_eq!(parts.len(), 3);
    }

    #[test]
    fn memory_of_no_stack_is_not_expected() {
        let layout = layout_of(Machine::X86_64, 8, 2).unwrap();
        let mut image = EngineImage::new(layout);
        let mut copy = Copy::default();
        for address in [0x1_0000, 0x2_0000] {
            // A frame whose caller is none.
            image.room(address, 0x100);
            image.put_word(address, layout.execute_data.func, 0x1_0000_0000_0000);
            image.put_word(address, layout.execute_data.prev_execute_data, 4);
            unwind(&image, layout, &mut copy, address, &mut Vec::new());
        }
        let mut expected = Expected::default();
        expected.note(&copy, |address| address == 0x2_0000);
        let parts: Vec<_> = expected.parts().map(|(address, _)| address).collect();
        assert_eq!(parts, [0x2_0000]);
    }

    #[test]
    fn long_unused_part_is_forgotten() {
        let mut expected = Expected::default();
        expected.add(0x1_0000, 256);
        let mut copy = Copy::default();
        copy.beside.make_room(expected.parts());
        (1..UNUSED).for_each(|_| expected.note(&copy, |_| false));
        assert_eq!(expected.parts().count(), 1);
        expected.note(&copy, |_| false);
        assert_eq!(expected.parts().count(), 0);
    }

    #[test]
    fn longest_unused_parts_go_first() {
        let mut expected = Expected::default();
        for part in 0..5 {
            let mut copy = Copy::default();
            copy.beside.make_room(expected.parts());
            expected.note(&copy, |_| false);
            expected.add(0x10_0000 * (part + 1), LONGEST);
        }
        let mut copy = Copy::default();
        copy.beside.make_room(expected.parts());
        expected.note(&copy, |_| false);
        let parts: Vec<_> = expected.parts().map(|(address, _)| address).collect();
        assert_eq!(parts, [0x20_0000, 0x30_0000, 0x40_0000, 0x50_0000]);
    }

    #[test]
    fn unreadable_part_ends_all_expectations() {
        let mut expected = Expected::default();
        assert!(!expected.forget());
        expected.add(0x1_0000, 256);
        assert!(expected.forget() && expected.parts().count() == 0);
    }
}
