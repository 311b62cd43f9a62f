//! A memory made of the fuzzer's bytes.
//!
//! Three words, then regions: address (8 bytes), size (4), number of bytes that follow (2), and
//! these; the rest of a region is zero. Invariant: any bytes make an image, and an image allows a
//! limited number of reads: a reader that needs more than a hostile target may cost fails.

use std::cell::Cell;
use std::collections::BTreeMap;

use phpprof_zend::memory::{Memory, MemoryFault};

/// Words before the regions.
pub const WORDS: usize = 3;
/// The largest size of a region.
const MAX_SIZE: u32 = 2 << 20;

/// The words and the regions of some bytes.
#[derive(Debug, Clone)]
pub struct FuzzImage<'a> {
    /// The first bytes: parameters of the reader (addresses, flags), which each fuzzer interprets.
    pub words: [u64; WORDS],
    regions: BTreeMap<u64, (u64, &'a [u8])>,
    /// The reads that are left before the reader counts as endless.
    reads: Cell<u64>,
    bytes: Cell<u64>,
}

impl<'a> FuzzImage<'a> {
    /// Parses the bytes. The reader may read `reads` times, and `bytes` in all.
    #[must_use]
    pub fn parse(input: &'a [u8], reads: u64, bytes: u64) -> Self {
        let mut rest = input;
        let words = [(); WORDS].map(|()| take(&mut rest).map_or(0, u64::from_le_bytes));
        let mut regions = BTreeMap::new();
        while let (Some(address), Some(size), Some(filled)) =
            (take(&mut rest), take(&mut rest), take(&mut rest))
        {
            let filled = usize::from(u16::from_le_bytes(filled)).min(rest.len());
            let (content, after) = rest.split_at(filled);
            rest = after;
            let size = u64::from(u32::from_le_bytes(size).min(MAX_SIZE)).max(filled as u64);
            regions.insert(u64::from_le_bytes(address), (size, content));
        }
        Self {
            words,
            regions,
            reads: Cell::new(reads),
            bytes: Cell::new(bytes),
        }
    }

    fn spend(&self, bytes: usize) {
        let left = |budget: &Cell<u64>, cost: u64| {
            let left = budget.get().checked_sub(cost);
            assert!(left.is_some(), "more is read than a target may cost");
            budget.set(left.unwrap_or(0));
        };
        left(&self.reads, 1);
        left(&self.bytes, bytes as u64);
    }
}

impl Memory for FuzzImage<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.spend(bytes.len());
        let mut at = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (start, (size, content)) = self
                .regions
                .range(..=at)
                .next_back()
                .ok_or(MemoryFault::Unmapped)?;
            let offset = at - start;
            let here = size.checked_sub(offset).filter(|&here| here > 0);
            let length = here.ok_or(MemoryFault::Unmapped)?.min(rest.len() as u64);
            let (now, later) = rest.split_at_mut(usize::try_from(length).unwrap_or(0));
            let stored = usize::try_from(offset)
                .ok()
                .and_then(|offset| content.get(offset..))
                .unwrap_or_default();
            let known = stored.len().min(now.len());
            now[..known].copy_from_slice(&stored[..known]);
            now[known..].fill(0);
            rest = later;
            if rest.is_empty() {
                break;
            }
            at = at.checked_add(length).ok_or(MemoryFault::Unmapped)?;
        }
        Ok(())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Writes the format of [`FuzzImage::parse`]. `memory` is bytes by address.
#[must_use]
pub fn encode(words: [u64; WORDS], memory: &BTreeMap<u64, u8>) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bytes = memory.iter().peekable();
    while let Some((&address, &first)) = bytes.next() {
        let mut content = vec![first];
        let is_whole = |content: &Vec<u8>| content.len() >= usize::from(u16::MAX);
        while let Some((_, &byte)) = bytes
            .next_if(|&(&next, _)| next == address + content.len() as u64 && !is_whole(&content))
        {
            content.push(byte);
        }
        push_region(&mut out, address, &content);
    }
    out
}

/// One region, or several if there are long runs of zeros.
fn push_region(out: &mut Vec<u8>, address: u64, content: &[u8]) {
    const RUN: usize = 32;
    let mut start = 0;
    while start < content.len() {
        let rest = &content[start..];
        let zeros_from = rest
            .windows(RUN)
            .position(|window| window.iter().all(|&byte| byte == 0));
        let filled = zeros_from.unwrap_or(rest.len());
        let zeros = rest[filled..].iter().take_while(|&&byte| byte == 0).count();
        let size = u32::try_from(filled + zeros).unwrap_or(u32::MAX);
        out.extend_from_slice(&(address + start as u64).to_le_bytes());
        out.extend_from_slice(&size.to_le_bytes());
        out.extend_from_slice(&u16::try_from(filled).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&rest[..filled]);
        start += filled + zeros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_again() {
        let mut memory = BTreeMap::new();
        for (index, byte) in (0..200_u64).zip([1, 2, 3].iter().chain(&[0; 100]).cycle()) {
            memory.insert(0x1000 + index, *byte);
        }
        memory.insert(u64::MAX, 7);
        let bytes = encode([1, 2, 3], &memory);
        let image = FuzzImage::parse(&bytes, 10, 1000);
        assert_eq!(image.words, [1, 2, 3]);
        let mut read = vec![0; 200];
        assert_eq!(image.read(0x1000, &mut read), Ok(()));
        assert_eq!(read, memory.values().copied().take(200).collect::<Vec<_>>());
        assert_eq!(image.read(u64::MAX, &mut [0]), Ok(()));
        assert_eq!(
            image.read(u64::MAX, &mut [0; 2]),
            Err(MemoryFault::Unmapped)
        );
        assert_eq!(image.read(0xfff, &mut [0; 2]), Err(MemoryFault::Unmapped));
        assert_eq!(
            image.read(0x1000, &mut [0; 201]),
            Err(MemoryFault::Unmapped)
        );
    }

    #[test]
    #[should_panic(expected = "more is read")]
    fn a_reader_that_does_not_end_is_stopped() {
        let image = FuzzImage::parse(&[], 10, 1000);
        while image.word(0).is_err() {}
    }
}
