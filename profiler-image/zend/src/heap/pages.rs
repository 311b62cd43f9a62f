//! The pages of a heap's chunks, by each chunk's own map (`zend_mm_chunk`, Zend/zend_alloc.c).
//!
//! A chunk has 512 pages; the first one is its header. A run of pages is small, with elements of
//! one size, or large, for one block. Invariant: each page is counted once; a chunk whose header
//! contradicts itself is refused.

use std::collections::HashMap;

use super::bins::{ALL, BINS};
use crate::memory::{byte_at, half_at};

/// `ZEND_MM_PAGES`.
pub const PAGES: usize = 512;
/// `ZEND_MM_FIRST_PAGE`: the pages before it are the chunk's header.
const FIRST_PAGE: usize = 1;
/// The bytes of a chunk's `free_map`, after which `map` begins.
const FREE_MAP: usize = PAGES / 8;
/// `ZEND_MM_IS_SRUN`, `ZEND_MM_IS_LRUN`: a page that continues a small run has both.
const IS_SMALL: u32 = 0x8000_0000;
const IS_LARGE: u32 = 0x4000_0000;
/// `ZEND_MM_SRUN_BIN_NUM`.
const BIN_MASK: u32 = 0x1f;
/// `ZEND_MM_LRUN_PAGES`.
const PAGES_MASK: u32 = 0x3ff;
/// What the map says of a chunk's first page: a large run of one page.
const HEADER_RUN: u32 = IS_LARGE | 1;

/// A page that is free, or of unknown use; the first page of a large block; and another one of it.
/// No page of small elements has these marks: its bin would be the 30th or the 31st.
const UNUSED: u8 = u8::MAX;
const LARGE: u8 = 0xfe;
const REST_OF_LARGE: u8 = 0xdf;

/// What the pages of one chunk are used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageUse {
    /// Small runs of each bin.
    pub runs: [u32; BINS],
    /// Large blocks, and their pages.
    pub large_runs: u32,
    /// Pages of large blocks.
    pub large_pages: u32,
    /// Pages that are not in use.
    pub free: u32,
    /// Pages whose use the map does not say.
    pub unknown: u32,
}

/// Whether these bytes of a chunk are its header, with `free_map` at this offset: the map describes
/// the header itself, and the count of free pages is that of the bits.
pub fn is_header(chunk: &[u8], free_pages: usize, free_map: usize) -> bool {
    let bits = chunk.get(free_map..free_map + FREE_MAP).unwrap_or(&[]);
    let used: u32 = bits.iter().map(|byte| byte.count_ones()).sum();
    let free = (PAGES as u32).checked_sub(used);
    half_at(chunk, free_map + FREE_MAP) == HEADER_RUN
        && byte_at(bits, 0) & 1 == 1
        && free == Some(half_at(chunk, free_pages))
}

/// For each page of a chunk: its bin, and how many pages of its run are before it; or one of the
/// marks of other pages.
#[derive(Debug, Clone)]
struct PageMarks([u8; PAGES]);

impl PageMarks {
    /// Reads a chunk's map.
    fn of(chunk: &[u8], free_map: usize) -> (Self, PageUse) {
        let mut marks = Self([UNUSED; PAGES]);
        let mut uses = PageUse::default();
        let mut page = FIRST_PAGE;
        while page < PAGES {
            let info = half_at(chunk, free_map + FREE_MAP + page * 4);
            let is_used = (byte_at(chunk, free_map + page / 8) >> (page % 8)) & 1 == 1;
            page += if is_used {
                marks.run(page, info, &mut uses)
            } else {
                uses.free += 1;
                1
            };
        }
        (marks, uses)
    }

    /// Takes the run that begins at a page, and returns its length.
    fn run(&mut self, page: usize, info: u32, uses: &mut PageUse) -> usize {
        let left = PAGES - page;
        let number = (info & BIN_MASK) as usize;
        let length = (info & PAGES_MASK) as usize;
        match (info & (IS_SMALL | IS_LARGE), ALL.get(number)) {
            (IS_SMALL, Some(bin)) if bin.pages <= left => {
                for (before, of_page) in self.0.iter_mut().skip(page).take(bin.pages).enumerate() {
                    // At most 29, and at most 6 pages before.
                    *of_page = (number | (before << 5)) as u8;
                }
                if let Some(runs) = uses.runs.get_mut(number) {
                    *runs += 1;
                }
                bin.pages
            }
            (IS_LARGE, _) if (1..=left).contains(&length) => {
                let mut pages = self.0.iter_mut().skip(page).take(length);
                if let Some(first) = pages.next() {
                    *first = LARGE;
                }
                pages.for_each(|of_page| *of_page = REST_OF_LARGE);
                uses.large_runs += 1;
                uses.large_pages += length as u32;
                length
            }
            _ => {
                uses.unknown += 1;
                1
            }
        }
    }
}

/// A block of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapBlock {
    /// Its address.
    pub start: u64,
    /// All that it takes of the heap.
    pub bytes: u64,
}

impl HeapBlock {
    /// How many of its bytes are at this address and after it.
    pub fn rest(&self, address: u64) -> u64 {
        let before = address.saturating_sub(self.start);
        self.bytes.saturating_sub(before)
    }
}

/// An element of a small run: the run, and which element of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// The number of the run's first page: see [`Chunks::address`].
    pub run: u32,
    /// Which of the run's elements.
    pub index: u32,
}

/// All chunks of a heap. A place in them is a number: that of its chunk, times the words of a
/// chunk, plus its words in the chunk.
#[derive(Debug, Default)]
pub struct Chunks {
    by_address: HashMap<u64, u32>,
    addresses: Vec<u64>,
    pages: Vec<PageMarks>,
    /// How many elements of each run are free, at its first page.
    freed: Vec<[u16; PAGES]>,
}

/// Words of a chunk, as bits of a place.
const WORD_BITS: u32 = 18;
/// Pages of a chunk, as bits of a run.
const PAGE_BITS: u32 = 9;
/// The most chunks: a place has 30 bits.
pub const MAX_CHUNKS: usize = 1 << 12;

impl Chunks {
    /// Adds a chunk; `None` if it was added before, or is one too many.
    pub fn add(&mut self, address: u64, chunk: &[u8], free_map: usize) -> Option<PageUse> {
        if self.by_address.contains_key(&address) || self.addresses.len() >= MAX_CHUNKS {
            return None;
        }
        let (marks, uses) = PageMarks::of(chunk, free_map);
        let number = u32::try_from(self.addresses.len()).ok()?;
        self.by_address.insert(address, number);
        self.addresses.push(address);
        self.pages.push(marks);
        self.freed.push([0; PAGES]);
        Some(uses)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.addresses.len() as u64
    }

    /// The place of an address; `None` if no chunk has it, or it is not that of a word.
    pub fn place(&self, address: u64) -> Option<u32> {
        let chunk = self.by_address.get(&(address & !(super::CHUNK_SIZE - 1)))?;
        let offset = (address & (super::CHUNK_SIZE - 1)) as u32;
        offset
            .is_multiple_of(8)
            .then_some((chunk << WORD_BITS) | (offset / 8))
    }

    /// The element of this bin that begins at a place; `None` if there is none.
    pub fn element(&self, place: u32, number: usize) -> Option<Element> {
        let bin = ALL.get(number)?;
        let chunk = place >> WORD_BITS;
        let offset = u64::from(place & ((1 << WORD_BITS) - 1)) * 8;
        let page = (offset / super::PAGE_SIZE) as u32;
        let of_page = *self.pages.get(chunk as usize)?.0.get(page as usize)?;
        let first = page.checked_sub(u32::from(of_page >> 5))?;
        let within = offset - u64::from(first) * super::PAGE_SIZE;
        let index = within / bin.size;
        let is_one = usize::from(of_page & 0x1f) == number
            && within.is_multiple_of(bin.size)
            && index < bin.elements;
        is_one.then_some(Element {
            run: (chunk << PAGE_BITS) | first,
            index: index as u32,
        })
    }

    /// The block that an address is in, by the map: a small element, free or not, or a large block;
    /// `None` if it is in no run of a chunk.
    pub fn block(&self, address: u64) -> Option<HeapBlock> {
        let chunk = address & !(super::CHUNK_SIZE - 1);
        let number = self.by_address.get(&chunk)?;
        let marks = &self.pages.get(*number as usize)?.0;
        let offset = address - chunk;
        let page = (offset / super::PAGE_SIZE) as usize;
        let mark = *marks.get(page)?;
        let start_of = |page: usize| page as u64 * super::PAGE_SIZE;
        if mark == LARGE || mark == REST_OF_LARGE {
            let first = marks.get(..=page)?.iter().rposition(|&it| it == LARGE)?;
            let rest = marks.get(first + 1..)?.iter();
            let rest = rest.take_while(|&&it| it == REST_OF_LARGE).count();
            return Some(HeapBlock {
                start: chunk + start_of(first),
                bytes: start_of(1 + rest),
            });
        }
        let bin = ALL.get(usize::from(mark & 0x1f))?;
        let run = start_of(page.checked_sub(usize::from(mark >> 5))?);
        let index = (offset - run) / bin.size;
        (index < bin.elements).then_some(HeapBlock {
            start: chunk + run + index * bin.size,
            bytes: bin.size,
        })
    }

    /// The address of a run.
    pub fn address(&self, run: u32) -> Option<u64> {
        let chunk = self.addresses.get((run >> PAGE_BITS) as usize)?;
        Some(chunk + u64::from(run & ((1 << PAGE_BITS) - 1)) * super::PAGE_SIZE)
    }

    /// Counts a free element of a run, and returns how many there are now.
    pub fn free(&mut self, run: u32) -> u64 {
        let freed = self.freed.get_mut((run >> PAGE_BITS) as usize);
        let page = (run & ((1 << PAGE_BITS) - 1)) as usize;
        let Some(count) = freed.and_then(|pages| pages.get_mut(page)) else {
            return 0;
        };
        *count = count.saturating_add(1);
        u64::from(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE_PAGES: usize = 24;
    const MAP: usize = 456;

    /// A chunk's header with these runs: the first page, and what the map says of it.
    fn header(runs: &[(usize, u32, usize)]) -> Vec<u8> {
        let mut chunk = vec![0; 4096];
        let mut free = PAGES as u32;
        for &(first, info, pages) in [(0, HEADER_RUN, 1)].iter().chain(runs) {
            let at = MAP + FREE_MAP + first * 4;
            chunk[at..at + 4].copy_from_slice(&info.to_le_bytes());
            for page in first..first + pages {
                chunk[MAP + page / 8] |= 1 << (page % 8);
                free -= 1;
            }
        }
        chunk[FREE_PAGES..FREE_PAGES + 4].copy_from_slice(&free.to_le_bytes());
        chunk
    }

    #[test]
    fn header_is_one_with_right_counts() {
        let mut chunk = header(&[(1, IS_SMALL | 7, 1)]);
        assert!(is_header(&chunk, FREE_PAGES, MAP));
        assert!(!is_header(&chunk, FREE_PAGES, MAP + 8));
        chunk[FREE_PAGES] += 1;
        assert!(!is_header(&chunk, FREE_PAGES, MAP));
        assert!(!is_header(&[], FREE_PAGES, MAP));
    }

    #[test]
    fn pages_are_counted_once_by_use() {
        let chunk = header(&[
            (1, IS_SMALL | 16, 5),
            (6, IS_LARGE | 10, 10),
            (20, IS_SMALL | 16, 5),
            // No run begins like this.
            (30, IS_SMALL | IS_LARGE | 16, 1),
            (31, IS_SMALL | 31, 1),
            (32, IS_LARGE, 1),
            (509, IS_SMALL | 16, 3),
        ]);
        let uses = Chunks::default().add(0, &chunk, MAP).unwrap();
        assert_eq!(uses.runs[16], 2);
        assert_eq!((uses.large_runs, uses.large_pages), (1, 10));
        assert_eq!(uses.unknown, 6);
        assert_eq!(uses.free + 10 + 10 + 6, 511);
    }

    #[test]
    fn elements_are_found_in_their_bin_only() {
        let mut chunks = Chunks::default();
        let at = 0x7f00_0000_0000;
        chunks.add(at, &header(&[(4, IS_SMALL | 16, 5)]), MAP);
        // The second page of a run has elements, too.
        let place = chunks.place(at + 4 * 4096 + 13 * 320).unwrap();
        let element = chunks.element(place, 16).unwrap();
        assert_eq!((element.run, element.index), (4, 13));
        assert_eq!(chunks.address(element.run), Some(at + 4 * 4096));
        assert_eq!(chunks.element(place, 15), None);
        assert_eq!(chunks.element(place + 1, 16), None);
        assert_eq!(chunks.element(0, 16), None);
        assert_eq!(chunks.place(at + 3), None);
        assert_eq!(chunks.place(at + super::super::CHUNK_SIZE), None);
    }

    #[test]
    fn block_has_its_runs_size() {
        let mut chunks = Chunks::default();
        let at = 0x7f00_0000_0000;
        let runs = [
            (4, IS_SMALL | 16, 5),
            (9, IS_LARGE | 10, 10),
            (19, IS_LARGE | 1, 1),
        ];
        chunks.add(at, &header(&runs), MAP);
        let check = |offset: u64, expected: Option<[u64; 2]>| {
            let block = chunks.block(at + offset);
            let block = block.map(|it| [it.start - at, it.bytes]);
            assert_eq!(block, expected, "{offset:x}");
        };
        check(0x4000, Some([0x4000, 320]));
        // Within an element of the run's second page.
        check(0x4000 + 13 * 320 + 24, Some([0x4000 + 13 * 320, 320]));
        for offset in [0x9000, 0x9008, 0x12fff] {
            check(offset, Some([0x9000, 0xa000]));
        }
        check(0x13000, Some([0x13000, 0x1000]));
        for offset in [0, 0x1000, 0x14000, super::super::CHUNK_SIZE] {
            check(offset, None);
        }
        let block = chunks.block(at + 0x4008).unwrap();
        assert_eq!([block.rest(at + 0x4008), block.rest(0)], [312, 320]);
    }

    #[test]
    fn chunk_is_added_once() {
        let mut chunks = Chunks::default();
        assert!(chunks.add(0, &header(&[]), MAP).is_some());
        assert!(chunks.add(0, &header(&[]), MAP).is_none());
    }
}
