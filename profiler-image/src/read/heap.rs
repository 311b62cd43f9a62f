//! The sizes of a worker's heap at the moment of its stack; the same call reads both.
//!
//! The heap is found once for each worker, through the VM stack. Invariant: inconsistent numbers
//! are counted and not returned, and the heap is then searched again.

use phpprof_zend::Layout;
use phpprof_zend::heap::{self, HEAD, Sizes};
use phpprof_zend::memory::{Memory, Piece};

/// Stacks through which a heap is searched for: the page of one may be a huge block, which does not
/// lead to the heap.
const TRIES: u32 = 16;

/// The sizes of `zend_mm_heap` (php-src: Zend/zend_alloc.c), in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapSizes {
    /// The memory that the request holds now.
    pub size: u64,
    /// The largest amount that it held at once.
    pub peak: u64,
}

/// Reads the heap of a worker.
#[derive(Debug)]
pub struct HeapWatch {
    layout: &'static Layout,
    place: HeapPlace,
    head: [u8; HEAD],
    /// The sizes of the newest read.
    sizes: Option<Sizes>,
    /// Reads with inconsistent numbers.
    pub refused: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeapPlace {
    /// Not found yet, after this many tries.
    Sought(u32),
    At(u64),
}

impl HeapWatch {
    /// The watch of a worker whose heap is not found yet.
    #[must_use]
    pub fn new(layout: &'static Layout) -> Self {
        Self {
            layout,
            place: HeapPlace::Sought(0),
            head: [0; HEAD],
            sizes: None,
            refused: 0,
        }
    }

    /// The worker has no heap that can be read.
    #[must_use]
    pub fn has_none(&self) -> bool {
        self.place == HeapPlace::Sought(TRIES)
    }

    /// The sizes of the newest read.
    #[must_use]
    pub fn sizes(&self) -> Option<Sizes> {
        self.sizes
    }

    /// The part of the sizes that changes with each allocation.
    #[must_use]
    pub fn heap(&self) -> Option<HeapSizes> {
        let Sizes { size, peak, .. } = self.sizes?;
        Some(HeapSizes { size, peak })
    }

    /// Searches for the heap through a page of the VM stack, unless it is known. It takes two
    /// calls.
    pub fn seek<M: Memory + ?Sized>(&mut self, memory: &M, page: u64) {
        if let HeapPlace::Sought(tries) = self.place
            && tries < TRIES
        {
            let found = heap::find(memory, self.layout, page);
            self.place = found.map_or(HeapPlace::Sought(tries + 1), HeapPlace::At);
        }
    }

    /// The piece to read together with a stack.
    pub fn piece(&mut self) -> Option<Piece<'_>> {
        let HeapPlace::At(address) = self.place else {
            return None;
        };
        let bytes = self.head.get_mut(..heap::length(self.layout))?;
        Some(Piece { address, bytes })
    }

    /// Takes the piece, which has been read.
    pub fn took(&mut self) {
        if let HeapPlace::At(_) = self.place {
            self.sizes = heap::sizes(self.layout, &self.head);
            if self.sizes.is_none() {
                self.refused += 1;
                self.place = HeapPlace::Sought(0);
            }
        }
    }

    /// The pieces of a read failed. Returns whether there is less to read now.
    pub fn lost(&mut self) -> bool {
        self.sizes = None;
        let was_known = matches!(self.place, HeapPlace::At(_));
        if was_known {
            self.place = HeapPlace::Sought(0);
        }
        was_known
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use phpprof_zend::layouts::ROWS;
    use phpprof_zend::memory::Recorded;

    use super::*;

    const CHUNK: u64 = 0x7f00_0020_0000;
    const AT: u64 = CHUNK + 64;
    const PAGE: u64 = CHUNK + 0x4000;

    pub(crate) fn memory(layout: &Layout, size: u64, peak: u64) -> Recorded {
        let mut memory = Recorded::default();
        memory.room(CHUNK, 4096);
        memory.put_word(CHUNK, AT);
        let row = &layout.mm_heap;
        for (offset, value) in [
            (row.size, size),
            (row.peak, peak),
            (row.real_size, 1 << 21),
            (row.real_peak, 1 << 21),
            (row.limit, 1 << 27),
        ] {
            memory.put_word(AT + offset as u64, value);
        }
        memory
    }

    pub(crate) fn read(watch: &mut HeapWatch, memory: &Recorded) -> Option<HeapSizes> {
        watch.seek(memory, PAGE);
        let mut pieces: Vec<Piece<'_>> = watch.piece().into_iter().collect();
        memory.gather(&mut pieces).unwrap();
        watch.took();
        watch.heap()
    }

    #[test]
    fn heap_is_sought_once_and_read_each_time() {
        let layout = &ROWS[0];
        let mut watch = HeapWatch::new(layout);
        assert_eq!(watch.heap(), None);
        let heap = |size, peak| Some(HeapSizes { size, peak });
        assert_eq!(read(&mut watch, &memory(layout, 7, 9)), heap(7, 9));
        watch.seek(&Recorded::default(), PAGE);
        assert_eq!(read(&mut watch, &memory(layout, 5, 9)), heap(5, 9));
        assert_eq!(watch.refused, 0);
    }

    #[test]
    fn wrong_numbers_are_counted_and_heap_sought_again() {
        let layout = &ROWS[0];
        let mut watch = HeapWatch::new(layout);
        read(&mut watch, &memory(layout, 7, 9));
        assert_eq!(read(&mut watch, &memory(layout, u64::MAX, 9)), None);
        assert_eq!(watch.refused, 1);
        assert!(watch.piece().is_none());
        assert!(read(&mut watch, &memory(layout, 7, 9)).is_some());
    }

    #[test]
    fn missing_heap_is_sought_a_bounded_number() {
        let mut watch = HeapWatch::new(&ROWS[0]);
        (0..TRIES).for_each(|_| {
            assert!(!watch.has_none());
            watch.seek(&Recorded::default(), PAGE);
        });
        assert!(watch.has_none());
        watch.seek(&memory(&ROWS[0], 7, 9), PAGE);
        assert!(watch.has_none() && watch.piece().is_none());
    }

    #[test]
    fn unreadable_heap_is_read_no_further() {
        let layout = &ROWS[0];
        let mut watch = HeapWatch::new(layout);
        read(&mut watch, &memory(layout, 7, 9));
        assert!(watch.lost());
        assert!(!watch.lost() && watch.heap().is_none());
    }
}
