//! The blocks of a heap, by their addresses.
//!
//! Invariant: an address is in a block only if the memory manager's own structures say so: a
//! chunk's map, or the list of huge blocks.

use std::collections::BTreeMap;

use super::pages::Chunks;
pub use super::pages::HeapBlock;

/// Where the blocks of a heap are.
#[derive(Debug, Default)]
pub struct HeapBlocks {
    pub(super) chunks: Chunks,
    /// The sizes of huge blocks.
    huge: BTreeMap<u64, u64>,
}

impl HeapBlocks {
    pub(super) fn add_huge(&mut self, block: HeapBlock) {
        self.huge.insert(block.start, block.bytes);
    }

    /// The block that an address is in; `None` if it is in none of this heap. An element that is
    /// free counts as one.
    #[must_use]
    pub fn block(&self, address: u64) -> Option<HeapBlock> {
        self.chunks.block(address).or_else(|| {
            let (&start, &bytes) = self.huge.range(..=address).next_back()?;
            (address - start < bytes).then_some(HeapBlock { start, bytes })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_of_huge_ones_is_the_one_around() {
        let mut blocks = HeapBlocks::default();
        for start in [0x4000_0000, 0x6000_0000] {
            let bytes = 0x1000;
            blocks.add_huge(HeapBlock { start, bytes });
        }
        let start_of = |address: u64| blocks.block(address).map(|block| block.start);
        assert_eq!(start_of(0x4000_0000), Some(0x4000_0000));
        assert_eq!(start_of(0x4000_0fff), Some(0x4000_0000));
        for outside in [0, 0x3fff_ffff, 0x4000_1000, u64::MAX] {
            assert_eq!(start_of(outside), None);
        }
    }
}
