//! A memory in front of which is the result of a gather.
//!
//! Reading a name takes a dozen short reads, each a call of the kernel. Most of their addresses are
//! known beforehand: these are fetched together, and the same code then reads them from here.
//! Invariant: anything not fetched is read from the memory itself, so a fetch changes the cost and
//! the moment of a read, never its meaning.

use std::cell::{Cell, RefCell};

use crate::memory::{Memory, MemoryFault, Piece};
use crate::short::Short;

/// A memory, and a few ranges that were fetched from it.
pub struct ReadSet<'a, M: Memory + ?Sized> {
    memory: &'a M,
    fetched: RefCell<FetchedRange>,
    direct_reads: Cell<usize>,
}

#[derive(Default)]
struct FetchedRange {
    /// Address and length of each range, in the order of their bytes.
    ranges: Short<(u64, usize), IN_PLACE>,
    bytes: Short<u8, BYTES_IN_PLACE>,
}

/// Ranges and pieces of a gather that need no allocation, and bytes.
const IN_PLACE: usize = 24;
const BYTES_IN_PLACE: usize = 4096;

impl<'a, M: Memory + ?Sized> ReadSet<'a, M> {
    /// A set without fetched ranges.
    pub fn new(memory: &'a M) -> Self {
        Self {
            memory,
            fetched: RefCell::default(),
            direct_reads: Cell::new(0),
        }
    }

    /// Fetches ranges, each an address and a length, in one gather; keeps none if one of them is
    /// not mapped.
    pub fn fetch(&self, wanted: impl IntoIterator<Item = (u64, usize)>) {
        // Without the ranges, each read goes to the memory itself.
        let _ = self.fetch_around(wanted, &mut [], []);
    }

    /// The same for the ranges `before` and `after` pieces, which it fills in between, all in one
    /// gather.
    ///
    /// # Errors
    /// A [`MemoryFault`] if a range or a piece is not mapped; then the pieces are unspecified.
    pub fn fetch_around(
        &self,
        before: impl IntoIterator<Item = (u64, usize)>,
        pieces: &mut [Piece<'_>],
        after: impl IntoIterator<Item = (u64, usize)>,
    ) -> Result<(), MemoryFault> {
        // The iterator may read from this set, so it runs before the set changes.
        let is_range = |&(address, length): &(u64, usize)| address != 0 && length != 0;
        let mut ranges = Short::<(u64, usize), IN_PLACE>::default();
        ranges.extend(before.into_iter().filter(is_range));
        let is_before = ranges.len();
        ranges.extend(after.into_iter().filter(is_range));
        let wanted = ranges.as_slice();
        let count = wanted.len() + pieces.len();
        if count == 0 {
            return Ok(());
        }
        let FetchedRange { ranges, bytes } = &mut *self.fetched.borrow_mut();
        let known = bytes.len();
        bytes.resize(known + wanted.iter().map(|&(_, length)| length).sum::<usize>());
        let mut rest = bytes.get_mut(known..).unwrap_or_default();
        let nothing = || Piece {
            address: 0,
            bytes: &mut [],
        };
        let mut in_place: [Piece<'_>; IN_PLACE] = std::array::from_fn(|_| nothing());
        let mut on_heap = Vec::new();
        let all = match in_place.get_mut(..count) {
            Some(all) => all,
            None => {
                on_heap.resize_with(count, nothing);
                on_heap.as_mut_slice()
            }
        };
        let (first, others) = all.split_at_mut(is_before);
        let (between, last) = others.split_at_mut(pieces.len());
        for (place, &(address, length)) in first.iter_mut().chain(last).zip(wanted) {
            let (bytes, after) = std::mem::take(&mut rest).split_at_mut(length);
            (*place, rest) = (Piece { address, bytes }, after);
        }
        for (place, piece) in between.iter_mut().zip(pieces) {
            (place.address, place.bytes) = (piece.address, &mut *piece.bytes);
        }
        let read = self.memory.gather(all);
        match read {
            Ok(()) => ranges.extend(wanted.iter().copied()),
            Err(_) => bytes.resize(known),
        }
        read
    }

    /// How many reads went to the memory itself.
    pub fn direct_reads(&self) -> usize {
        self.direct_reads.get()
    }

    /// Fills the bytes if they were fetched.
    fn have(&self, address: u64, bytes: &mut [u8]) -> bool {
        let fetched = self.fetched.borrow();
        let mut begin = 0;
        for &(start, length) in fetched.ranges.iter() {
            let part = address
                .checked_sub(start)
                .and_then(|offset| usize::try_from(offset).ok())
                .filter(|offset| offset.saturating_add(bytes.len()) <= length)
                .and_then(|offset| fetched.bytes.get(begin + offset..)?.get(..bytes.len()));
            if let Some(part) = part {
                bytes.copy_from_slice(part);
                return true;
            }
            begin += length;
        }
        false
    }
}

impl<M: Memory + ?Sized> Memory for ReadSet<'_, M> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        if self.have(address, bytes) {
            return Ok(());
        }
        self.direct_reads.set(self.direct_reads.get() + 1);
        self.memory.read(address, bytes)
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        let fetched = pieces
            .iter_mut()
            .all(|piece| self.have(piece.address, piece.bytes));
        if fetched {
            return Ok(());
        }
        self.direct_reads.set(self.direct_reads.get() + 1);
        self.memory.gather(pieces)
    }

    fn prepare(&self, wanted: &[(u64, usize)]) {
        self.fetch(wanted.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Recorded;
    use crate::testing::Counted;

    fn memory() -> Recorded {
        let mut memory = Recorded::default();
        memory.put_word(0x1000, 7);
        memory.put_word(0x2000, 9);
        memory
    }

    #[test]
    fn what_was_fetched_costs_no_further_read() {
        let memory = memory();
        let memory = Counted::new(&memory);
        let set = ReadSet::new(&memory);
        set.fetch([(0x1000, 8), (0x2000, 8), (0, 8)]);
        assert_eq!((set.word(0x1000), set.word(0x2000)), (Ok(7), Ok(9)));
        assert_eq!(memory.calls(), 1);
        assert_eq!(set.half(0x1004), Ok(0));
        assert_eq!(memory.calls(), 1);
        assert_eq!(set.word(0x1004), Err(MemoryFault::Unmapped));
        assert_eq!(memory.calls(), 2);
    }

    #[test]
    fn pieces_are_filled_in_the_gather_that_fetches() {
        let memory = memory();
        let memory = Counted::new(&memory);
        let set = ReadSet::new(&memory);
        let mut bytes = [0; 8];
        let mut between = [Piece {
            address: 0x2000,
            bytes: &mut bytes,
        }];
        let read = set.fetch_around([(0x1000, 8)], &mut between, [(0x1000, 4), (0x2004, 4)]);
        assert_eq!((read, u64::from_le_bytes(bytes)), (Ok(()), 9));
        assert_eq!((set.word(0x1000), set.half(0x2004)), (Ok(7), Ok(0)));
        assert_eq!((memory.calls(), set.direct_reads()), (1, 0));
        assert_eq!((set.word(0x2000), set.direct_reads()), (Ok(9), 1));
    }

    #[test]
    fn a_fetch_that_fails_leaves_the_memory_itself() {
        let memory = memory();
        let memory = Counted::new(&memory);
        let set = ReadSet::new(&memory);
        set.fetch([(0x1000, 8), (0x9000, 8)]);
        assert_eq!(set.word(0x1000), Ok(7));
        assert_eq!(memory.calls(), 2);
    }
}
