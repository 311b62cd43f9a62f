//! The only interface to the target: how its bytes are read.
//!
//! Invariant: a read returns all requested bytes or a [`MemoryFault`]; it never returns some of
//! them.

use std::fmt;
use std::ops::Range;

/// Why a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFault {
    /// Not all of it is mapped.
    Unmapped,
    /// The kernel refuses this process (EPERM, EACCES).
    Denied,
    /// The process has ended or replaced its memory by `execve`.
    Gone,
    /// No further file can be opened.
    NoFiles,
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryFault::Unmapped => "nothing is mapped there",
            MemoryFault::Denied => "the kernel refuses to read the target's memory",
            MemoryFault::Gone => "the process has ended",
            MemoryFault::NoFiles => {
                "the limit of open files (of phpprof, or of the whole machine) is reached"
            }
        })
    }
}

impl std::error::Error for MemoryFault {}

/// One piece of a gather: its source, and its destination.
pub struct Piece<'a> {
    /// The address in the target.
    pub address: u64,
    /// Filled completely, or the read is a fault.
    pub bytes: &'a mut [u8],
}

/// Whether an address is in one of these ranges.
#[must_use]
pub fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

/// The memory of one process. Addresses and words are little-endian 64-bit, as on x86_64 and
/// aarch64.
pub trait Memory {
    /// Fills `bytes` from `address`.
    ///
    /// # Errors
    /// A [`MemoryFault`] if not all of it can be read; `bytes` is then unspecified.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault>;

    /// Fills several pieces, in their order, with as few system calls as the implementation needs.
    ///
    /// # Errors
    /// A [`MemoryFault`] if any piece cannot be read whole; all pieces are then unspecified.
    fn gather(&self, pieces: &mut [Piece<'_>]) -> Result<(), MemoryFault> {
        for piece in pieces {
            self.read(piece.address, piece.bytes)?;
        }
        Ok(())
    }

    /// Announces reads, each an address and a length, so that they can be done together.
    fn prepare(&self, _: &[(u64, usize)]) {}

    /// Reads one 64-bit word.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn word(&self, address: u64) -> Result<u64, MemoryFault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads one 32-bit word.
    ///
    /// # Errors
    /// As [`Memory::read`].
    fn half(&self, address: u64) -> Result<u32, MemoryFault> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// No address of a process is above: a larger word is not a pointer, and sums of an address and an
/// offset cannot overflow.
pub const END_OF_USER_SPACE: u64 = 1 << 56;

/// The 64-bit word at `offset`, or 0 beyond the end: all users refuse a zero pointer.
#[must_use]
pub fn word_at(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<8>())
        .map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// The 32-bit word at `offset`, or 0 beyond the end.
#[must_use]
pub fn half_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// The byte at `offset`, or 0 beyond the end.
#[must_use]
pub fn byte_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

/// A memory of byte strings at addresses, for fixtures and tests.
#[derive(Debug, Default, Clone)]
pub struct Recorded {
    regions: Vec<(u64, Vec<u8>)>,
}

impl Recorded {
    /// Writes into an existing region, or adds one, which hides those that it overlaps.
    pub fn put(&mut self, address: u64, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        match self.holder(address, bytes.len()) {
            Some((index, range)) => self.regions[index].1[range].copy_from_slice(&bytes),
            None => self.regions.push((address, bytes)),
        }
    }

    /// The newest region with any of these bytes, if it has them all, and their position in it.
    fn holder(&self, address: u64, length: usize) -> Option<(usize, Range<usize>)> {
        let end = address.checked_add(length as u64)?;
        let index = self.regions.iter().rposition(|(start, region)| {
            *start < end && address < start.saturating_add(region.len() as u64)
        })?;
        let (start, region) = &self.regions[index];
        let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
        (offset + length <= region.len()).then_some((index, offset..offset + length))
    }

    /// Writes one word.
    pub fn put_word(&mut self, address: u64, value: u64) {
        self.put(address, value.to_le_bytes());
    }

    /// Maps zeros where nothing was put.
    pub fn room(&mut self, address: u64, size: usize) {
        let mut there = vec![0; size];
        if self.read(address, &mut there).is_err() {
            self.regions.insert(0, (address, vec![0; size]));
        }
    }

    /// All bytes by their addresses; those of a region that hides another come later.
    pub fn bytes(&self) -> impl Iterator<Item = (u64, u8)> {
        self.regions
            .iter()
            .flat_map(|(start, region)| (*start..).zip(region.iter().copied()))
    }
}

impl Memory for Recorded {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        if let Some((index, range)) = self.holder(address, bytes.len()) {
            bytes.copy_from_slice(&self.regions[index].1[range]);
            return Ok(());
        }
        // A read may span adjacent regions: then it is answered byte by byte, from the newest
        // region that has the byte.
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = address
                .checked_add(index as u64)
                .ok_or(MemoryFault::Unmapped)?;
            *byte = self
                .regions
                .iter()
                .rev()
                .find_map(|(start, region)| {
                    let offset = usize::try_from(at.checked_sub(*start)?).ok()?;
                    region.get(offset).copied()
                })
                .ok_or(MemoryFault::Unmapped)?;
        }
        Ok(())
    }
}
