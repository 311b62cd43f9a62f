//! Which blocks of a heap a walk has seen.
//!
//! Invariant: it takes at most 5 MiB, and a block for which there is no room counts as seen.

use std::collections::HashSet;

use super::blocks::HeapBlocks;
use super::pages::HeapBlock;

/// Of how many chunks each block has a bit: of half a gigabyte, in 4 MiB.
const MAX_CHUNKS: usize = 256;
/// How many other blocks are remembered.
const MAX_OTHERS: usize = 1 << 16;
/// The bits of a chunk: one for 16 bytes, because nothing that holds or is held is shorter.
const WORDS: usize = (2 << 20) / 16 / 64;

/// The blocks.
#[derive(Debug, Default)]
pub struct SeenBlocks {
    bits: Vec<u64>,
    others: HashSet<u64>,
    /// Whether there was no room for one.
    pub is_full: bool,
}

impl SeenBlocks {
    /// None of these blocks.
    pub fn of(blocks: &HeapBlocks) -> Self {
        let chunks = blocks.chunks.count().min(MAX_CHUNKS as u64) as usize;
        Self {
            bits: vec![0; chunks * WORDS],
            ..Self::default()
        }
    }

    /// Whether this block was seen.
    pub fn contains(&self, blocks: &HeapBlocks, block: HeapBlock) -> bool {
        let bit = bit_of(blocks, block);
        match self.bits.get(bit / 64) {
            Some(word) => word >> (bit % 64) & 1 == 1,
            None => self.others.contains(&block.start),
        }
    }

    /// Remembers a block; returns whether it is new.
    pub fn insert(&mut self, blocks: &HeapBlocks, block: HeapBlock) -> bool {
        let is_new = !self.contains(blocks, block);
        let bit = bit_of(blocks, block);
        match self.bits.get_mut(bit / 64) {
            Some(word) => *word |= 1 << (bit % 64),
            None if is_new && self.others.len() >= MAX_OTHERS => {
                self.is_full = true;
                return false;
            }
            None => {
                self.others.insert(block.start);
            }
        }
        is_new
    }
}

/// The number of a block's bit; one without a bit if it is in no chunk.
fn bit_of(blocks: &HeapBlocks, block: HeapBlock) -> usize {
    let place = blocks.chunks.place(block.start);
    place.map_or(usize::MAX, |place| place as usize / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::account;
    use crate::layouts::ROWS;
    use crate::testing::heap::HeapImage;

    #[test]
    fn each_block_is_new_once() {
        let mut image = HeapImage::new(&ROWS[0]);
        let (run, large) = (image.small(6), image.large(2));
        image.huge(3 << 20);
        image.settle();
        let blocks = account::read(image.memory(), &ROWS[0], image.heap())
            .unwrap()
            .blocks;
        let mut seen = SeenBlocks::of(&blocks);
        // The middle of an element is the same block.
        for address in [run, run + 56, run + 112, large, 0x7f50_0000_0000] {
            let block = blocks.block(address + 8).unwrap();
            assert!(!seen.contains(&blocks, block), "{address:x}");
            assert!(seen.insert(&blocks, block), "{address:x}");
            assert!(!seen.insert(&blocks, block), "{address:x}");
        }
    }

    #[test]
    fn blocks_without_room_count_as_seen() {
        let blocks = HeapBlocks::default();
        let mut seen = SeenBlocks::of(&blocks);
        for number in 0..MAX_OTHERS as u64 + 2 {
            let block = HeapBlock {
                start: number * 4096,
                bytes: 4096,
            };
            assert_eq!(seen.insert(&blocks, block), number < MAX_OTHERS as u64);
        }
        assert!(seen.is_full);
    }
}
