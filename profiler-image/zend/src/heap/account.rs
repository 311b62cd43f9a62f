//! What a heap is made of: small elements by size, large runs, huge blocks, chunks, and what is
//! free in them (`zend_mm_heap`, Zend/zend_alloc.c).
//!
//! Only what is the allocator's own is looked at: headers of chunks, the list of huge blocks, and
//! the first word of free elements. For these, runs with free elements are read whole, also their
//! elements in use. Invariant: only sizes and counts are kept; each loop ends by a bound that does
//! not depend on the target, and what could not be followed is counted in [`MmLosses`].

use std::fmt;

use super::bins::{ALL, BINS};
use super::blocks::HeapBlocks;
use super::free::FreeLists;
use super::pages::{HeapBlock, MAX_CHUNKS, is_header};
use super::{CHUNK_SIZE, PAGE_SIZE, Sizes, length, sizes};
use crate::layouts::Layout;
use crate::memory::{END_OF_USER_SPACE, Memory, MemoryFault, half_at, word_at};

/// Huge blocks of which one account is made; the others are lost.
const MAX_HUGE: u64 = 1 << 16;
/// A chunk's header: one page.
const HEADER: usize = 4096;

/// What a heap is made of. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MmAccount {
    /// The heap's own numbers.
    pub sizes: Sizes,
    /// What is taken from the system now: `memory_get_usage(true)`.
    pub real_size: u64,
    /// Small elements, by bin.
    pub bins: [BinUse; BINS],
    /// Blocks of whole pages.
    pub large_runs: u64,
    /// Their pages.
    pub large_pages: u64,
    /// Blocks that are larger than a chunk.
    pub huge_blocks: u64,
    /// Their bytes.
    pub huge_bytes: u64,
    /// Chunks in use, of 2 MiB.
    pub chunks: u64,
    /// Chunks that are kept for later.
    pub cached_chunks: u64,
    /// Pages of 4 KiB that are free in the chunks in use.
    pub free_pages: u64,
    /// What could not be followed.
    pub losses: MmLosses,
    /// The heap's own numbers and list heads were the same before and after.
    pub is_steady: bool,
}

/// The elements of one bin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BinUse {
    /// Runs of pages.
    pub runs: u64,
    /// Elements of these runs in use.
    pub used: u64,
    /// Elements that are free.
    pub free: u64,
    /// Runs that have free elements only.
    pub free_runs: u64,
}

/// What an account could not follow; all 0 if it is whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MmLosses {
    /// Chunks that the heap counts, and that could not be read or are not chunks.
    pub chunks: u64,
    /// Pages whose chunk does not say what they are.
    pub pages: u64,
    /// Lists of free elements that do not end within their bin: those of its elements are counted
    /// as in use.
    pub lists: u64,
    /// Lists of huge blocks that do not end: their other blocks are not known.
    pub huge: u64,
}

/// Why there is no account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmRefusal {
    /// The address is not that of a heap in use.
    NoHeap,
    /// The heap has none of the forms that are known of its version.
    UnknownForm,
    /// It could not be read.
    Unreadable(MemoryFault),
}

impl fmt::Display for MmRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeap => f.write_str("PHP runs without its memory manager"),
            Self::UnknownForm => {
                f.write_str("the memory manager has another form than those known of its version")
            }
            Self::Unreadable(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for MmRefusal {}

impl MmAccount {
    /// Bytes of small elements in use.
    #[must_use]
    pub fn small_bytes(&self) -> u64 {
        self.sum(|of_bin, bin| of_bin.used * bin)
    }

    /// Bytes of small elements that are free.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.sum(|of_bin, bin| of_bin.free * bin)
    }

    /// Bytes of large blocks.
    #[must_use]
    pub fn large_bytes(&self) -> u64 {
        self.large_pages * PAGE_SIZE
    }

    /// What `gc_mem_caches()` would return: the bytes of runs that have free elements only.
    #[must_use]
    pub fn reclaimable(&self) -> u64 {
        let pages = self.bins.iter().zip(&ALL);
        let pages = pages.map(|(of_bin, bin)| of_bin.free_runs * bin.pages as u64);
        pages.sum::<u64>() * PAGE_SIZE
    }

    /// How much larger the heap says that it is than all blocks together. In an account of one
    /// moment, it is 0, or a block that was just being allocated or freed: an allocation adds to
    /// the size before it takes its element from the list.
    #[must_use]
    pub fn unaccounted(&self) -> i64 {
        let blocks = [self.small_bytes(), self.large_bytes(), self.huge_bytes];
        let blocks = blocks.into_iter().fold(0, u64::saturating_add);
        let [size, blocks] =
            [self.sizes.size, blocks].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        size - blocks
    }

    fn sum(&self, of: impl Fn(&BinUse, u64) -> u64) -> u64 {
        let bins = self.bins.iter().zip(&ALL);
        bins.map(|(of_bin, bin)| of(of_bin, bin.size)).sum()
    }
}

/// Where the tail of a heap is, which has moved within versions.
#[derive(Debug, Clone, Copy)]
struct TailForm {
    /// How much further the fields from `huge_list` on are.
    moved: usize,
    /// The offset of a chunk's `free_map`.
    free_map: usize,
}

impl TailForm {
    /// The form of a live heap, by its main chunk's header: the one in which the heap points to
    /// that chunk, and the chunk's map describes itself.
    fn of(layout: &Layout, header: &[u8], chunk: u64) -> Option<Self> {
        let (heap, slot) = (&layout.mm_heap, layout.mm_chunk.heap_slot);
        let forms = [(0, heap.sizeof), (heap.tail_moved, heap.sizeof_other)];
        let mut forms = forms.into_iter().filter(|(_, sizeof)| *sizeof > 0);
        forms.find_map(|(moved, sizeof)| {
            let free_map = slot + sizeof;
            let is_it = word_at(header, slot + heap.main_chunk + moved) == chunk
                && is_header(header, layout.mm_chunk.free_pages, free_map);
            is_it.then_some(Self { moved, free_map })
        })
    }
}

/// An account, and where the heap's blocks are.
#[derive(Debug)]
pub struct MmReading {
    /// What the heap is made of.
    pub account: MmAccount,
    /// Its blocks, by their addresses.
    pub blocks: HeapBlocks,
}

/// Reads the account of the heap that [`super::find`] has found.
///
/// # Errors
/// An [`MmRefusal`] if there is no heap, or it is not understood.
pub fn read<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    heap: u64,
) -> Result<MmReading, MmRefusal> {
    let (mut walk, header) = Walk::begin(memory, layout, heap)?;
    let chunk = heap & !(CHUNK_SIZE - 1);
    let slot = header.get(layout.mm_chunk.heap_slot..).unwrap_or(&[]);
    walk.chunks(&header, chunk);
    walk.cached(slot);
    walk.huge(slot);
    walk.free_lists(slot);
    let after = header_of(memory, chunk).map_err(MmRefusal::Unreadable)?;
    let heap_of = |header: &[u8]| {
        let heap = header.get(layout.mm_chunk.heap_slot..walk.form.free_map);
        heap.unwrap_or(&[]).to_vec()
    };
    walk.account.is_steady = heap_of(&header) == heap_of(&after);
    Ok(MmReading {
        account: walk.account,
        blocks: walk.blocks,
    })
}

/// Reads only where the blocks of a heap are: no list of free elements is followed, whose cost
/// grows with the heap.
///
/// # Errors
/// As [`read`].
pub fn read_blocks<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    heap: u64,
) -> Result<HeapBlocks, MmRefusal> {
    let (mut walk, header) = Walk::begin(memory, layout, heap)?;
    walk.chunks(&header, heap & !(CHUNK_SIZE - 1));
    walk.huge(header.get(layout.mm_chunk.heap_slot..).unwrap_or(&[]));
    Ok(walk.blocks)
}

fn header_of<M: Memory + ?Sized>(memory: &M, chunk: u64) -> Result<[u8; HEADER], MemoryFault> {
    let mut header = [0; HEADER];
    memory.read(chunk, &mut header).map(|()| header)
}

/// An account in the making.
struct Walk<'a, M: ?Sized> {
    memory: &'a M,
    layout: &'a Layout,
    form: TailForm,
    heap: u64,
    blocks: HeapBlocks,
    account: MmAccount,
}

impl<'a, M: Memory + ?Sized> Walk<'a, M> {
    /// An account of nothing yet, and the header of the heap's first chunk.
    fn begin(
        memory: &'a M,
        layout: &'a Layout,
        heap: u64,
    ) -> Result<(Self, [u8; HEADER]), MmRefusal> {
        let chunk = heap & !(CHUNK_SIZE - 1);
        if chunk == 0 || heap != chunk + layout.mm_chunk.heap_slot as u64 {
            return Err(MmRefusal::NoHeap);
        }
        let header = header_of(memory, chunk).map_err(MmRefusal::Unreadable)?;
        let slot = header.get(layout.mm_chunk.heap_slot..).unwrap_or(&[]);
        let head = slot.get(..length(layout)).unwrap_or(&[]);
        let sizes = sizes(layout, head).ok_or(MmRefusal::NoHeap)?;
        let form = TailForm::of(layout, &header, chunk).ok_or(MmRefusal::UnknownForm)?;
        let account = MmAccount {
            sizes,
            real_size: word_at(head, layout.mm_heap.real_size),
            bins: [BinUse::default(); BINS],
            large_runs: 0,
            large_pages: 0,
            huge_blocks: 0,
            huge_bytes: 0,
            chunks: 0,
            cached_chunks: 0,
            free_pages: 0,
            losses: MmLosses::default(),
            is_steady: false,
        };
        let walk = Self {
            memory,
            layout,
            form,
            heap,
            blocks: HeapBlocks::default(),
            account,
        };
        Ok((walk, header))
    }

    /// A field of the heap's tail.
    fn tail(&self, slot: &[u8], offset: usize) -> u64 {
        word_at(slot, offset + self.form.moved)
    }

    /// Follows the ring of chunks from the main one.
    fn chunks(&mut self, main: &[u8; HEADER], first: u64) {
        let slot = main.get(self.layout.mm_chunk.heap_slot..).unwrap_or(&[]);
        let counted = half_at(slot, self.layout.mm_heap.chunks_count + self.form.moved);
        let (mut at, mut header) = (first, *main);
        for _ in 0..MAX_CHUNKS {
            if word_at(&header, 0) != self.heap || !self.add(at, &header) {
                break;
            }
            at = word_at(&header, self.layout.mm_chunk.next);
            if at == first {
                break;
            }
            match header_of(self.memory, at) {
                Ok(next) if at.is_multiple_of(CHUNK_SIZE) => header = next,
                _ => break,
            }
        }
        let found = self.blocks.chunks.count();
        self.account.chunks = found;
        // More than the heap has counted are a ring that changed meanwhile.
        self.account.losses.chunks = u64::from(counted).abs_diff(found);
    }

    /// Adds a chunk of this heap; false if it was added before. One whose pages are just being
    /// allocated is left out, and does not end the ring.
    fn add(&mut self, at: u64, header: &[u8]) -> bool {
        if !is_header(header, self.layout.mm_chunk.free_pages, self.form.free_map) {
            return true;
        }
        let Some(uses) = self.blocks.chunks.add(at, header, self.form.free_map) else {
            return false;
        };
        let account = &mut self.account;
        account.large_runs += u64::from(uses.large_runs);
        account.large_pages += u64::from(uses.large_pages);
        account.free_pages += u64::from(uses.free);
        account.losses.pages += u64::from(uses.unknown);
        for (of_bin, runs) in account.bins.iter_mut().zip(uses.runs) {
            of_bin.runs += u64::from(runs);
        }
        true
    }

    /// Counts the chunks that are kept for later, by their list.
    fn cached(&mut self, slot: &[u8]) {
        let row = &self.layout.mm_heap;
        let counted = half_at(slot, row.cached_chunks_count + self.form.moved);
        let mut at = self.tail(slot, row.cached_chunks);
        let mut found = 0;
        while at != 0
            && at.is_multiple_of(CHUNK_SIZE)
            && at < END_OF_USER_SPACE
            && found < MAX_CHUNKS as u64
        {
            found += 1;
            let next = self.memory.word(at + self.layout.mm_chunk.next as u64);
            at = next.unwrap_or(u64::MAX);
        }
        self.account.cached_chunks = found;
        self.account.losses.chunks += u64::from(counted).abs_diff(found);
    }

    /// Follows the list of huge blocks.
    fn huge(&mut self, slot: &[u8]) {
        let list = &self.layout.mm_huge_list;
        let mut at = self.tail(slot, self.layout.mm_heap.huge_list);
        let mut node = [0; 32];
        let size = (list.next.max(list.size).max(list.ptr) + 8).min(node.len());
        while at != 0 {
            let bytes = node.get_mut(..size).unwrap_or_default();
            let is_ours = self.blocks.chunks.place(at).is_some()
                && self.account.huge_blocks < MAX_HUGE
                && self.memory.read(at, bytes).is_ok();
            let (block, taken) = (word_at(bytes, list.ptr), word_at(bytes, list.size));
            let is_block =
                block.is_multiple_of(CHUNK_SIZE) && block != 0 && taken.is_multiple_of(PAGE_SIZE);
            if !is_ours || !is_block || taken >= END_OF_USER_SPACE {
                self.account.losses.huge += 1;
                return;
            }
            self.account.huge_blocks += 1;
            self.blocks.add_huge(HeapBlock {
                start: block,
                bytes: taken,
            });
            self.account.huge_bytes = self.account.huge_bytes.saturating_add(taken);
            at = word_at(bytes, list.next);
        }
    }

    /// Follows the lists of free elements, and counts all others as used.
    fn free_lists(&mut self, slot: &[u8]) {
        let mut lists = FreeLists::new(self.memory, &mut self.blocks.chunks);
        for (number, (of_bin, bin)) in self.account.bins.iter_mut().zip(&ALL).enumerate() {
            let head = word_at(slot, self.layout.mm_heap.free_slot + number * 8);
            let list = lists.follow(number, head, of_bin.runs);
            of_bin.free = list.elements;
            of_bin.used = of_bin.runs * bin.elements - list.elements;
            of_bin.free_runs = list.free_runs;
            self.account.losses.lists += u64::from(!list.is_whole);
        }
    }
}

#[cfg(test)]
mod tests;
