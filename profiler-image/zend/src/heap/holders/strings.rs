//! The strings that values and keys are, by path. No byte of a text is read.
//!
//! Invariant: a string counts once, and only if its header is that of one that is not interned.

use crate::layouts::Layout;
use crate::memory::{Memory, half_at};
use crate::zval::IS_STRING;

use super::super::objects::near::NearReads;
use super::super::pages::HeapBlock;
use super::paths::{HeldPath, MAX_PATHS, PathTree};
use super::{HeldKind, HoldersWalk, kind_of};

/// How many headers are read at once.
const TOGETHER: usize = 4096;
/// What is read of a string: its references, type and flags.
const HEAD: usize = 8;
/// The bits of a path's number below a string's address, which is a multiple of 8 and below 2^47.
const PATH_BITS: u32 = 15;

const _: () = assert!(MAX_PATHS < 1 << PATH_BITS);

impl<M: Memory + ?Sized> HoldersWalk<'_, M> {
    /// Counts the string that a value is.
    pub(super) fn string(&mut self, address: u64, path: HeldPath) {
        let new = self.new_string(address);
        self.keep_string(new, path);
    }

    /// The block of a string that is to be counted and was not seen yet.
    pub(super) fn new_string(&mut self, address: u64) -> Option<HeapBlock> {
        let blocks = self.place.blocks;
        let block = blocks.block(address).filter(|_| self.counts_all)?;
        let is_new = block.start == address && self.found.seen.insert(blocks, block);
        is_new.then_some(block)
    }

    /// Counts a new string, if there is one, by this path once its header is read.
    pub(super) fn keep_string(&mut self, new: Option<HeapBlock>, path: HeldPath) {
        let Some(block) = new else { return };
        let number = PathTree::index(path) as u64;
        self.strings.push((block.start / 8) << PATH_BITS | number);
        if self.strings.len() >= TOGETHER {
            self.count_strings();
        }
    }

    /// Reads the headers of strings, and counts those that are not interned.
    pub(super) fn count_strings(&mut self) {
        let mut strings = std::mem::take(&mut self.strings);
        strings.sort_unstable();
        let addresses = strings.iter().map(|it| (it >> PATH_BITS) * 8);
        let heads = NearReads::of(self.place.memory, addresses.clone(), HEAD);
        let paths = strings.iter().map(|it| it & ((1 << PATH_BITS) - 1));
        for ((address, path), head) in addresses.zip(paths).zip(heads.pieces()) {
            self.is_cut |= head.is_none();
            let is_string = head.is_some_and(|head| is_counted(self.place.layout, head));
            let block = self.place.blocks.block(address).filter(|_| is_string);
            if let Some(block) = block {
                let path = PathTree::path(path as usize);
                self.count(HeldKind::String, path, block.bytes);
            }
        }
    }
}

/// Whether this is the header of a string with references that is not interned: `IS_STR_INTERNED`
/// (Zend/zend_types.h), which moved with the flags in 7.3. An interned one is the engine's.
fn is_counted(layout: &Layout, head: &[u8]) -> bool {
    let interned = if (layout.major, layout.minor) < (7, 3) {
        1 << 9
    } else {
        1 << 6
    };
    let is_string = kind_of(head) == u32::from(IS_STRING) && half_at(head, 0) > 0;
    is_string && half_at(head, 4) & interned == 0
}
