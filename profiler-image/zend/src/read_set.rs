//! A memory in front of which is the result of a gather.
//!
//! Reading a name takes a dozen short reads, each a call of the kernel. Most of their addresses are known beforehand: these are
//! fetched together, and the same code then reads them from here. Invariant: anything not fetched is read from the memory
//! itself, so a fetch changes the cost and the moment of a read, never its meaning.

use std::cell::RefCell;

use crate::memory::{Fault, Memory, Piece};
use crate::short::Short;

/// A memory, and a few ranges that were fetched from it.
pub struct ReadSet<'a, M: Memory + ?Sized> {
    memory: &'a M,
    fetched: RefCell<Fetched>,
}

#[derive(Default)]
struct Fetched {
    /// Address and length of each range, in the order of their bytes.
    ranges: Short<(u64, usize), 16>,
    bytes: Short<u8, 2048>,
}

/// Pieces of a gather that need no allocation.
const IN_PLACE: usize = 16;

impl<'a, M: Memory + ?Sized> ReadSet<'a, M> {
    /// A set without fetched ranges.
    pub fn new(memory: &'a M) -> Self {
        Self {
            memory,
            fetched: RefCell::default(),
        }
    }

    /// Fetches ranges, each an address and a length, in one gather; keeps none if one of them is not mapped.
    pub fn fetch(&self, wanted: impl IntoIterator<Item = (u64, usize)>) {
        // The iterator may read from this set, so it runs before the set changes.
        let mut ranges = Short::<(u64, usize), 16>::default();
        ranges.extend(
            wanted
                .into_iter()
                .filter(|&(address, length)| address != 0 && length != 0),
        );
        let wanted = ranges.as_slice();
        if wanted.is_empty() {
            return;
        }
        let Fetched { ranges, bytes } = &mut *self.fetched.borrow_mut();
        let known = bytes.len();
        bytes.resize(known + wanted.iter().map(|&(_, length)| length).sum::<usize>());
        let mut rest = bytes.get_mut(known..).unwrap_or_default();
        let mut in_place: [Piece<'_>; IN_PLACE] = std::array::from_fn(|_| Piece {
            address: 0,
            bytes: &mut [],
        });
        let mut on_heap = Vec::new();
        for (index, &(address, length)) in wanted.iter().enumerate() {
            let (bytes, after) = rest.split_at_mut(length);
            rest = after;
            match in_place.get_mut(index).filter(|_| wanted.len() <= IN_PLACE) {
                Some(piece) => *piece = Piece { address, bytes },
                None => on_heap.push(Piece { address, bytes }),
            }
        }
        let pieces = in_place.get_mut(..wanted.len());
        let pieces = pieces.unwrap_or(on_heap.as_mut_slice());
        match self.memory.gather(pieces) {
            Ok(()) => ranges.extend(wanted.iter().copied()),
            Err(_) => bytes.resize(known),
        }
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
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        if self.have(address, bytes) {
            return Ok(());
        }
        self.memory.read(address, bytes)
    }

    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
        let fetched = pieces
            .iter_mut()
            .all(|piece| self.have(piece.address, piece.bytes));
        if fetched {
            return Ok(());
        }
        self.memory.gather(pieces)
    }

    fn prepare(&self, wanted: &[(u64, usize)]) {
        self.fetch(wanted.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::memory::Recorded;

    /// Counts the calls that reach the memory.
    struct Counted(Recorded, Cell<usize>);

    impl Memory for Counted {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            self.1.set(self.1.get() + 1);
            self.0.read(address, bytes)
        }

        fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), Fault> {
            self.1.set(self.1.get() + 1);
            self.0.gather(pieces)
        }
    }

    fn memory() -> Counted {
        let mut memory = Recorded::default();
        memory.put_word(0x1000, 7);
        memory.put_word(0x2000, 9);
        Counted(memory, Cell::new(0))
    }

    #[test]
    fn what_was_fetched_costs_no_further_read() {
        let memory = memory();
        let set = ReadSet::new(&memory);
        set.fetch([(0x1000, 8), (0x2000, 8), (0, 8)]);
        assert_eq!((set.word(0x1000), set.word(0x2000)), (Ok(7), Ok(9)));
        assert_eq!(memory.1.get(), 1);
        assert_eq!(set.half(0x1004), Ok(0));
        assert_eq!(memory.1.get(), 1);
        assert_eq!(set.word(0x1004), Err(Fault::Unmapped));
        assert_eq!(memory.1.get(), 2);
    }

    #[test]
    fn a_fetch_that_fails_leaves_the_memory_itself() {
        let memory = memory();
        let set = ReadSet::new(&memory);
        set.fetch([(0x1000, 8), (0x9000, 8)]);
        assert_eq!(set.word(0x1000), Ok(7));
        assert_eq!(memory.1.get(), 2);
    }
}
