//! The free elements of each bin: the lists at `zend_mm_heap.free_slot` (Zend/zend_alloc.c).
//!
//! The first word of a free element is the address of the next one; from 8.4 on, its last word has
//! the same address in another form, which nothing here needs. A list goes through runs in any
//! order, so the links of a whole run are read at once and kept as long as there is room.
//! Invariant: a list counts no more elements than its bin has, and no run is read more often than
//! [`READS`] allows.

use std::collections::HashMap;

use super::bins::ALL;
use super::pages::Chunks;
use crate::memory::{Memory, word_at};

/// The most links that are kept: 32 MiB, for eight million elements of one size.
const MAX_LINKS: usize = 8 << 20;
/// By how many links the room grows.
const GROWTH: usize = 64 << 10;
/// How often each run of a bin may be read on average; more than once only if its links do not all
/// fit.
const READS: u64 = 2;
/// The end of a list, and a link that leads to no chunk: no place has these numbers.
const END: u32 = u32::MAX;
const ASTRAY: u32 = u32::MAX - 1;

/// A list of free elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FreeList {
    /// Its elements, as far as it could be followed.
    pub elements: u64,
    /// Runs that have no other elements.
    pub free_runs: u64,
    /// It was followed to its end.
    pub is_whole: bool,
}

/// Follows lists.
pub struct FreeLists<'a, M: ?Sized> {
    memory: &'a M,
    chunks: &'a mut Chunks,
    /// The position of each run's links.
    starts: HashMap<u32, usize>,
    links: Vec<u32>,
    most_links: usize,
    /// A run's bytes.
    bytes: Vec<u8>,
}

impl<'a, M: Memory + ?Sized> FreeLists<'a, M> {
    pub fn new(memory: &'a M, chunks: &'a mut Chunks) -> Self {
        Self {
            memory,
            chunks,
            starts: HashMap::new(),
            links: Vec::new(),
            most_links: MAX_LINKS,
            bytes: Vec::new(),
        }
    }

    /// Follows the list of a bin with this many runs, from the address of its first element.
    pub fn follow(&mut self, number: usize, head: u64, runs: u64) -> FreeList {
        let mut list = FreeList::default();
        let Some(bin) = ALL.get(number) else {
            return list;
        };
        self.starts.clear();
        self.links.clear();
        let most = runs.saturating_mul(bin.elements);
        let mut reads = runs.saturating_mul(READS);
        let mut next = self.link(head);
        while next != END && list.elements < most {
            let Some(element) = self.chunks.element(next, number) else {
                return list;
            };
            let known = self.starts.get(&element.run).copied();
            let start = match known {
                Some(start) => start,
                None if reads == 0 => return list,
                None => {
                    reads -= 1;
                    let Some(start) = self.read(element.run, number) else {
                        return list;
                    };
                    start
                }
            };
            list.elements += 1;
            if self.chunks.free(element.run) == bin.elements {
                list.free_runs += 1;
            }
            let link = self.links.get(start + element.index as usize);
            next = link.copied().unwrap_or(ASTRAY);
        }
        list.is_whole = next == END;
        list
    }

    /// Reads a run's links, and returns where they begin.
    fn read(&mut self, run: u32, number: usize) -> Option<usize> {
        let bin = ALL.get(number)?;
        let size = usize::try_from(bin.size).ok()?;
        let elements = usize::try_from(bin.elements).ok()?;
        if self.links.len() + elements > self.most_links {
            self.starts.clear();
            self.links.clear();
        }
        let address = self.chunks.address(run)?;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(size * elements, 0);
        let is_read = self.memory.read(address, &mut bytes).is_ok();
        let start = self.links.len();
        if self.links.capacity() < start + elements {
            // Not by doubling: that would take twice as much.
            self.links.reserve_exact(GROWTH);
        }
        for at in (0..elements).map(|index| index * size) {
            self.links.push(self.link(word_at(&bytes, at)));
        }
        self.bytes = bytes;
        self.starts.insert(run, start);
        is_read.then_some(start)
    }

    fn link(&self, address: u64) -> u32 {
        if address == 0 {
            return END;
        }
        self.chunks.place(address).unwrap_or(ASTRAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layouts::ROWS;
    use crate::testing::Counted;
    use crate::testing::heap::HeapImage;

    /// Follows the list of one bin, with room for this many links; also returns how many reads that
    /// took.
    fn follow(image: &HeapImage, number: usize, most_links: usize) -> (FreeList, usize) {
        let (mut chunks, runs) = image.chunks(number);
        let memory = Counted::new(image.memory());
        let mut lists = FreeLists::new(&memory, &mut chunks);
        lists.most_links = most_links;
        let list = lists.follow(number, image.free_slot(number), runs);
        (list, memory.calls())
    }

    #[test]
    fn lists_are_followed_in_any_order() {
        let mut image = HeapImage::new(&ROWS[0]);
        let runs: Vec<_> = (0..4).map(|_| image.small(6)).collect();
        // Each run in turn, so that each link leaves its run; one run is wholly free.
        let mut free: Vec<_> = (0..30)
            .flat_map(|index| runs.iter().map(move |run| (*run, index)))
            .collect();
        free.extend((30..73).map(|index| (runs[2], index)));
        image.free(6, &free);
        let (list, reads) = follow(&image, 6, MAX_LINKS);
        assert_eq!((list.elements, list.free_runs), (30 * 4 + 43, 1));
        assert!(list.is_whole);
        assert_eq!(reads, 4);
    }

    #[test]
    fn links_without_room_are_read_again_boundedly() {
        let mut image = HeapImage::new(&ROWS[0]);
        let runs: Vec<_> = (0..4).map(|_| image.small(6)).collect();
        let free: Vec<_> = (0..2)
            .flat_map(|index| runs.iter().map(move |run| (*run, index)))
            .collect();
        image.free(6, &free);
        let (list, reads) = follow(&image, 6, 73);
        assert!(list.is_whole && list.elements == 8 && reads == 8);
        let free: Vec<_> = (0..60)
            .flat_map(|index| runs.iter().map(move |run| (*run, index)))
            .collect();
        image.free(6, &free);
        let (list, reads) = follow(&image, 6, 73);
        assert!(!list.is_whole && list.elements == 8 && reads == 8);
    }

    #[test]
    fn loops_and_strays_end() {
        let mut image = HeapImage::new(&ROWS[0]);
        let run = image.small(6);
        image.free(6, &[(run, 0), (run, 1)]);
        image.put_word(run + 56, run);
        let (list, _) = follow(&image, 6, MAX_LINKS);
        assert!(!list.is_whole && list.elements == 73);

        let mut image = HeapImage::new(&ROWS[0]);
        let (run, other) = (image.small(6), image.small(7));
        image.free(6, &[(run, 0), (other, 0)]);
        let (list, _) = follow(&image, 6, MAX_LINKS);
        assert!(!list.is_whole && list.elements == 1);

        image.free(6, &[(run, 0)]);
        image.put_word(run, 0xdead_beef_0000);
        let (list, _) = follow(&image, 6, MAX_LINKS);
        assert!(!list.is_whole && list.elements == 1);
    }
}
