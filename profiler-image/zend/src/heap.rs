//! Finds the heap of a worker (`zend_mm_heap`, Zend/zend_alloc.c), and reads its sizes.
//!
//! It has no symbol. The VM stack is a block of the heap; all blocks except huge ones are in chunks
//! that begin at a multiple of their size, and a chunk begins with a pointer to its heap.
//! [`account`] says what a heap is made of, and [`objects`] of which classes its objects are, and
//! they read more for it. The search and the sizes need no block's content.
//! Invariant: a heap is accepted only if its own first chunk points to it; inconsistent sizes give
//! no result.

pub mod account;
pub mod bins;
pub mod blocks;
mod free;
pub mod holders;
pub mod objects;
pub(crate) mod pages;
pub mod seen;

use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, Piece, half_at, word_at};

/// `ZEND_MM_CHUNK_SIZE`, to which chunks are aligned.
pub const CHUNK_SIZE: u64 = 2 << 20;
/// `ZEND_MM_PAGE_SIZE`: the heap takes whole pages from the system.
pub const PAGE_SIZE: u64 = 4096;
/// How much of a heap is read: from its beginning to `limit`.
pub const HEAD: usize = 304;

/// The sizes of a heap, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The current size: `memory_get_usage()`.
    pub size: u64,
    /// The largest size in this request: `memory_get_peak_usage()`.
    pub peak: u64,
    /// The most that was taken from the system at once, which `memory_limit` limits:
    /// `memory_get_peak_usage(true)`.
    pub real_peak: u64,
    /// `memory_limit`; `None` if there is no limit.
    pub limit: Option<u64>,
}

/// How many bytes of a heap are read.
#[must_use]
pub fn length(layout: &Layout) -> usize {
    (layout.mm_heap.limit + 8).min(HEAD)
}

/// The heap whose block a page of the VM stack is; `None` if there is none: the engine runs without
/// its memory manager (`USE_ZEND_ALLOC=0`), or the page is a huge block. Takes two gathers.
pub fn find<M: Memory + ?Sized>(memory: &M, layout: &Layout, vm_stack: u64) -> Option<u64> {
    let chunk = vm_stack & !(CHUNK_SIZE - 1);
    // A chunk begins with its own header; a block at the beginning of a chunk is a huge block.
    if chunk == vm_stack {
        return None;
    }
    of_chunk(memory, layout, chunk)
}

/// The heap to which the chunk at this address belongs; `None` if it is not a chunk.
pub fn of_chunk<M: Memory + ?Sized>(memory: &M, layout: &Layout, chunk: u64) -> Option<u64> {
    if chunk == 0 || !chunk.is_multiple_of(CHUNK_SIZE) || chunk >= END_OF_USER_SPACE {
        return None;
    }
    let heap = memory.word(chunk).ok()?;
    let first_chunk = heap & !(CHUNK_SIZE - 1);
    if first_chunk == 0 || first_chunk == heap || heap >= END_OF_USER_SPACE || heap % 8 != 0 {
        return None;
    }
    let (mut owner, mut head) = ([0; 8], [0; HEAD]);
    let head = head.get_mut(..length(layout))?;
    memory
        .gather(&mut [
            Piece {
                address: first_chunk,
                bytes: &mut owner,
            },
            Piece {
                address: heap,
                bytes: head,
            },
        ])
        .ok()?;
    let is_own = u64::from_le_bytes(owner) == heap;
    (is_own && sizes(layout, head).is_some()).then_some(heap)
}

/// The sizes in the first bytes of a heap; `None` if they are not those of a heap in use.
#[must_use]
pub fn sizes(layout: &Layout, head: &[u8]) -> Option<Sizes> {
    let row = &layout.mm_heap;
    let uses_custom_heap = half_at(head, 0) != 0;
    let (size, peak) = (word_at(head, row.size), word_at(head, row.peak));
    let (real_size, real_peak) = (word_at(head, row.real_size), word_at(head, row.real_peak));
    let limit = word_at(head, row.limit);
    // An allocation sets the size before the peak.
    let (peak, real_peak) = (peak.max(size), real_peak.max(real_size));
    // Up to 7.4 chunks that were kept from an earlier request do not count as taken: more may be in
    // use than that.
    let are_pages = real_size > 0 && real_size % PAGE_SIZE == 0 && real_peak % PAGE_SIZE == 0;
    let fits = are_pages && peak.max(real_peak) < END_OF_USER_SPACE && limit > 0;
    (fits && !uses_custom_heap).then_some(Sizes {
        size,
        peak,
        real_peak,
        limit: (limit < END_OF_USER_SPACE).then_some(limit),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layouts::ROWS;
    use crate::memory::Recorded;

    const CHUNK: u64 = 0x7f00_0020_0000;
    const HEAP: u64 = CHUNK + 64;
    const OTHER_CHUNK: u64 = CHUNK + CHUNK_SIZE;
    const MIB: u64 = 1 << 20;

    /// A heap of 3 MiB with a peak of 5, of 8 taken and a limit of 128; the VM stack is in another
    /// of its chunks.
    fn memory(layout: &Layout) -> Recorded {
        let mut memory = Recorded::default();
        memory.room(CHUNK, 4096);
        memory.room(OTHER_CHUNK, 4096);
        memory.put_word(CHUNK, HEAP);
        memory.put_word(OTHER_CHUNK, HEAP);
        let row = &layout.mm_heap;
        for (offset, mib) in [
            (row.size, 3),
            (row.peak, 5),
            (row.real_size, 6),
            (row.real_peak, 8),
            (row.limit, 128),
        ] {
            memory.put_word(HEAP + offset as u64, mib * MIB);
        }
        memory
    }

    fn sizes_in(memory: &Recorded, layout: &Layout) -> Option<Sizes> {
        let heap = find(memory, layout, OTHER_CHUNK + 0x4000)?;
        let mut head = vec![0; length(layout)];
        memory.read(heap, &mut head).ok()?;
        sizes(layout, &head)
    }

    #[test]
    fn each_versions_heap_is_found() {
        for layout in ROWS {
            let expected = Sizes {
                size: 3 * MIB,
                peak: 5 * MIB,
                real_peak: 8 * MIB,
                limit: Some(128 * MIB),
            };
            assert_eq!(sizes_in(&memory(layout), layout), Some(expected));
        }
    }

    #[track_caller]
    fn check_refused(change: impl Fn(&mut Recorded, &Layout)) {
        for layout in ROWS {
            let mut memory = memory(layout);
            change(&mut memory, layout);
            assert_eq!(sizes_in(&memory, layout), None);
        }
    }

    #[test]
    fn what_is_no_heap_is_refused() {
        check_refused(|memory, _| memory.put_word(OTHER_CHUNK, 0));
        check_refused(|memory, _| memory.put_word(OTHER_CHUNK, u64::MAX));
        check_refused(|memory, _| memory.put_word(OTHER_CHUNK, HEAP + 8 * CHUNK_SIZE));
        check_refused(|memory, _| memory.put_word(CHUNK, HEAP + 8));
        check_refused(|memory, _| memory.put_word(HEAP, 1));
        let row = |layout: &Layout| layout.mm_heap.clone();
        check_refused(move |memory, layout| {
            memory.put_word(HEAP + row(layout).size as u64, u64::MAX);
        });
        check_refused(move |memory, layout| {
            memory.put_word(HEAP + row(layout).real_size as u64, 0);
        });
        check_refused(move |memory, layout| {
            memory.put_word(HEAP + row(layout).real_size as u64, MIB + 8);
        });
        check_refused(move |memory, layout| {
            memory.put_word(HEAP + row(layout).real_peak as u64, u64::MAX);
        });
        check_refused(move |memory, layout| memory.put_word(HEAP + row(layout).limit as u64, 0));
    }

    #[test]
    fn huge_block_has_no_heap_before_it() {
        let layout = &ROWS[0];
        assert_eq!(find(&memory(layout), layout, OTHER_CHUNK), None);
    }

    #[test]
    fn a_heap_without_a_limit_has_none() {
        for layout in ROWS {
            let mut memory = memory(layout);
            let at = HEAP + layout.mm_heap.limit as u64;
            for limit in [u64::MAX, u64::MAX >> 1] {
                memory.put_word(at, limit);
                assert_eq!(
                    sizes_in(&memory, layout).map(|sizes| sizes.limit),
                    Some(None)
                );
            }
        }
    }

    #[test]
    fn use_may_exceed_what_was_taken() {
        let layout = &ROWS[0];
        let mut memory = memory(layout);
        memory.put_word(HEAP + layout.mm_heap.peak as u64, 9 * MIB);
        memory.put_word(HEAP + layout.mm_heap.size as u64, 7 * MIB);
        let sizes = sizes_in(&memory, layout).map(|sizes| (sizes.size, sizes.peak));
        assert_eq!(sizes, Some((7 * MIB, 9 * MIB)));
    }

    #[test]
    fn size_above_its_peak_is_the_peak() {
        let layout = &ROWS[0];
        let mut memory = memory(layout);
        memory.put_word(HEAP + layout.mm_heap.size as u64, 6 * MIB);
        let peak = sizes_in(&memory, layout).map(|sizes| sizes.peak);
        assert_eq!(peak, Some(6 * MIB));
    }

    proptest! {
        #[test]
        fn sizes_of_any_bytes_fit_one_another(head in proptest::collection::vec(any::<u8>(), 0..HEAD)) {
            for layout in ROWS {
                if let Some(sizes) = sizes(layout, &head) {
                    prop_assert!(sizes.size <= sizes.peak);
                    prop_assert!(sizes.peak.max(sizes.real_peak) < END_OF_USER_SPACE);
                }
            }
        }
    }
}
