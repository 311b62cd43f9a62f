//! A heap of the memory manager for tests: chunks with their maps, lists of free elements, huge
//! blocks and cached chunks, laid out by one row.
//!
//! Invariant: after [`HeapImage::settle`], its numbers are those of its blocks.

use crate::heap::bins::ALL;
#[cfg(test)]
use crate::heap::pages::Chunks;
use crate::heap::pages::PAGES;
use crate::heap::{CHUNK_SIZE, PAGE_SIZE};
use crate::layouts::Layout;
use crate::memory::{Memory as _, Recorded};

/// The address of the first chunk.
const FIRST: u64 = 0x7f10_0000_0000;
/// The address of the first huge block.
const HUGE: u64 = 0x7f50_0000_0000;
/// `ZEND_MM_IS_SRUN`, `ZEND_MM_IS_LRUN`.
const IS_SMALL: u32 = 0x8000_0000;
const IS_LARGE: u32 = 0x4000_0000;

/// A heap in a memory of its own.
pub struct HeapImage {
    layout: &'static Layout,
    memory: Recorded,
    is_other_form: bool,
    chunks: u64,
    /// The next free page of the newest chunk.
    page: usize,
    cached: u64,
    huge: u64,
    huge_bytes: u64,
    large_pages: u64,
    runs: Vec<u64>,
    free: Vec<u64>,
}

impl HeapImage {
    /// A heap of one chunk without blocks, in the form of most releases of a version.
    #[must_use]
    pub fn new(layout: &'static Layout) -> Self {
        Self::of(layout, false)
    }

    /// The same in the other form that some releases of the version have.
    #[must_use]
    pub fn in_other_form(layout: &'static Layout) -> Self {
        Self::of(layout, true)
    }

    fn of(layout: &'static Layout, is_other_form: bool) -> Self {
        let mut image = Self {
            layout,
            memory: Recorded::default(),
            is_other_form,
            chunks: 0,
            page: 0,
            cached: 0,
            huge: 0,
            huge_bytes: 0,
            large_pages: 0,
            runs: vec![0; ALL.len()],
            free: vec![0; ALL.len()],
        };
        image.chunk();
        image.settle();
        image
    }

    /// The address of the heap.
    #[must_use]
    pub fn heap(&self) -> u64 {
        FIRST + self.layout.mm_chunk.heap_slot as u64
    }

    /// The address of a page of its main chunk, as the VM stack has.
    #[must_use]
    pub fn vm_stack(&self) -> u64 {
        FIRST + 64 * PAGE_SIZE
    }

    /// Its memory.
    #[must_use]
    pub fn memory(&self) -> &Recorded {
        &self.memory
    }

    /// Overwrites a word.
    pub fn put_word(&mut self, address: u64, word: u64) {
        self.memory.put_word(address, word);
    }

    /// Writes bytes.
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.memory.put(address, bytes);
    }

    /// The address of a chunk, and of its fields.
    #[must_use]
    pub fn chunk_at(number: u64) -> u64 {
        FIRST + number * CHUNK_SIZE
    }

    /// The address of a field of the heap's tail.
    #[must_use]
    pub fn tail(&self, offset: usize) -> u64 {
        let moved = if self.is_other_form {
            self.layout.mm_heap.tail_moved
        } else {
            0
        };
        self.heap() + (offset + moved) as u64
    }

    fn free_map(&self) -> u64 {
        let row = &self.layout.mm_heap;
        let size = if self.is_other_form {
            row.sizeof_other
        } else {
            row.sizeof
        };
        (self.layout.mm_chunk.heap_slot + size) as u64
    }

    /// Adds a chunk to the ring.
    pub fn chunk(&mut self) {
        let at = Self::chunk_at(self.chunks);
        self.memory.room(at, CHUNK_SIZE as usize);
        self.chunks += 1;
        self.page = 1;
        let next = self.layout.mm_chunk.next as u64;
        self.memory.put_word(at, self.heap());
        self.memory.put_word(at + next, FIRST);
        if let Some(before) = self.chunks.checked_sub(2) {
            self.memory.put_word(Self::chunk_at(before) + next, at);
        }
        self.run(0, 1, &[IS_LARGE | 1]);
    }

    /// Marks pages as used.
    fn run(&mut self, first: usize, pages: usize, infos: &[u32]) {
        let at = Self::chunk_at(self.chunks - 1) + self.free_map();
        for (page, info) in (first..).zip(infos) {
            self.memory
                .put(at + 64 + page as u64 * 4, info.to_le_bytes());
        }
        let mut bits = [0; PAGES / 8];
        self.memory.read(at, &mut bits).unwrap_or_default();
        for page in first..first + pages {
            bits[page / 8] |= 1 << (page % 8);
        }
        self.memory.put(at, bits);
        let used: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
        let free = Self::chunk_at(self.chunks - 1) + self.layout.mm_chunk.free_pages as u64;
        self.memory.put(free, (PAGES as u32 - used).to_le_bytes());
    }

    fn pages(&mut self, pages: usize, infos: &[u32]) -> u64 {
        if self.page + pages > PAGES {
            self.chunk();
        }
        let first = self.page;
        self.run(first, pages, infos);
        self.page += pages;
        Self::chunk_at(self.chunks - 1) + first as u64 * PAGE_SIZE
    }

    /// Adds a run of small elements, all in use; returns its address.
    pub fn small(&mut self, bin: usize) -> u64 {
        let pages = ALL[bin].pages;
        let of_bin = IS_SMALL | bin as u32;
        let rest = (1..pages as u32).map(|before| of_bin | IS_LARGE | (before << 16));
        let infos: Vec<_> = [of_bin].into_iter().chain(rest).collect();
        self.runs[bin] += 1;
        self.pages(pages, &infos)
    }

    /// Adds a large block of this many pages; returns its address.
    pub fn large(&mut self, pages: usize) -> u64 {
        self.large_pages += pages as u64;
        self.pages(pages, &[IS_LARGE | pages as u32])
    }

    /// Makes these elements the bin's free ones, in this order: their runs and their numbers.
    pub fn free(&mut self, bin: usize, elements: &[(u64, u64)]) {
        let at = |(run, number): &(u64, u64)| run + number * ALL[bin].size;
        let addresses: Vec<_> = elements.iter().map(at).collect();
        let slot = self.heap() + (self.layout.mm_heap.free_slot + bin * 8) as u64;
        let links = [slot].into_iter().chain(addresses.iter().copied());
        for (link, next) in links.zip(addresses.iter().copied().chain([0])) {
            self.memory.put_word(link, next);
        }
        self.free[bin] = elements.len() as u64;
    }

    /// Adds a huge block; its entry is in a run of its own. Returns the entry's address.
    pub fn huge(&mut self, bytes: u64) -> u64 {
        let (row, list) = (&self.layout.mm_heap, &self.layout.mm_huge_list);
        let head = self.tail(row.huge_list);
        let entry = self.small(2);
        let next = self.memory.word(head).unwrap_or_default();
        for (offset, word) in [
            (list.ptr, HUGE + self.huge * CHUNK_SIZE * 64),
            (list.size, bytes),
            (list.next, next),
        ] {
            self.memory.put_word(entry + offset as u64, word);
        }
        self.memory.put_word(head, entry);
        (self.huge, self.huge_bytes) = (self.huge + 1, self.huge_bytes + bytes);
        entry
    }

    /// Adds a chunk that is kept for later.
    pub fn cached(&mut self) {
        let at = Self::chunk_at(1000 + self.cached);
        self.memory.room(at, PAGE_SIZE as usize);
        let head = self.tail(self.layout.mm_heap.cached_chunks);
        let next = self.memory.word(head).unwrap_or_default();
        let link = self.layout.mm_chunk.next as u64;
        self.memory.put_word(at + link, next);
        self.memory.put_word(head, at);
        self.cached += 1;
    }

    /// What its blocks add up to.
    #[must_use]
    pub fn size(&self) -> u64 {
        let small = ALL.iter().zip(&self.runs).zip(&self.free);
        let small = small.map(|((bin, runs), free)| (runs * bin.elements - free) * bin.size);
        small.sum::<u64>() + self.large_pages * PAGE_SIZE + self.huge_bytes
    }

    /// Sets the heap's numbers to those of its blocks.
    pub fn settle(&mut self) {
        let row = self.layout.mm_heap.clone();
        let real = (self.chunks + self.cached) * CHUNK_SIZE + self.huge_bytes;
        let size = self.size();
        for (offset, word) in [
            (row.size, size),
            (row.peak, size),
            (row.real_size, real),
            (row.real_peak, real),
            (row.limit, 1 << 30),
        ] {
            self.memory.put_word(self.heap() + offset as u64, word);
        }
        self.memory.put_word(self.tail(row.main_chunk), FIRST);
        for (offset, count) in [
            (row.chunks_count, self.chunks),
            (row.cached_chunks_count, self.cached),
        ] {
            let count = (count as u32).to_le_bytes();
            self.memory.put(self.tail(offset), count);
        }
    }

    /// Its chunks, and the number of runs of a bin.
    #[cfg(test)]
    pub(crate) fn chunks(&self, bin: usize) -> (Chunks, u64) {
        let mut chunks = Chunks::default();
        for number in 0..self.chunks {
            let at = Self::chunk_at(number);
            let mut header = vec![0; PAGE_SIZE as usize];
            self.memory.read(at, &mut header).unwrap_or_default();
            let free_map = usize::try_from(self.free_map()).unwrap_or_default();
            chunks.add(at, &header, free_map);
        }
        (chunks, self.runs[bin])
    }

    /// The address of the first free element of a bin.
    #[cfg(test)]
    pub(crate) fn free_slot(&self, bin: usize) -> u64 {
        let slot = self.heap() + (self.layout.mm_heap.free_slot + bin * 8) as u64;
        self.memory.word(slot).unwrap_or_default()
    }
}
