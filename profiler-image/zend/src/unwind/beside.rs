//! Frames outside the newest page of the VM stack that were read together with the looks at that
//! page.
//!
//! The frames of generators are on the heap, and those of a fiber's callers are on another stack. A
//! further call of the kernel shows them later. By then another call can be at the same address, so
//! that the stack would be of two moments; and a generator has mostly been left, so that stacks
//! without it would be sampled in place of its own.
//! Invariant: what is given is of the read nearest to the look that was taken; whether it stood is
//! for the caller to ask.

use super::Frame;
use crate::layouts::Layout;
use crate::memory::Piece;

/// Parts of memory, each read before the first look, again after it, and again after all looks.
#[derive(Debug, Default)]
pub struct Beside {
    parts: Vec<BesideBytes>,
    before: Vec<u8>,
    after: Vec<u8>,
    at_end: Vec<u8>,
    /// A look other than the first one was taken.
    is_later: bool,
}

#[derive(Debug)]
struct BesideBytes {
    address: u64,
    /// Where its bytes begin in each buffer, and how many there are.
    begin: usize,
    length: usize,
    is_used: bool,
}

impl Beside {
    /// Makes room for these parts, each an address and a length.
    pub fn make_room(&mut self, parts: impl Iterator<Item = (u64, usize)>) {
        let mut begin = 0;
        self.is_later = false;
        self.parts.clear();
        self.parts.extend(parts.map(|(address, length)| {
            let part = BesideBytes {
                address,
                begin,
                length,
                is_used: false,
            };
            begin += length;
            part
        }));
        self.before.resize(begin, 0);
        self.after.resize(begin, 0);
        self.at_end.resize(begin, 0);
    }

    /// The pieces to read before the first look, after it, and after all looks.
    pub fn pieces(&mut self) -> [impl Iterator<Item = Piece<'_>>; 3] {
        let buffers = [&mut self.before, &mut self.after, &mut self.at_end];
        buffers.map(|bytes| pieces(&self.parts, bytes))
    }

    /// Whether unwinding has used each part, in their order.
    pub fn used(&self) -> impl Iterator<Item = bool> {
        self.parts.iter().map(|part| part.is_used)
    }

    /// The bytes from `address` on, of the part that has most of them.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&[u8]> {
        let part = self.parts.get(self.part_at(address)?)?;
        self.nearest().get(part.from(address)?)
    }

    /// The bytes from an address on, as each of the three reads has them.
    pub fn reads(&self, address: u64) -> impl Iterator<Item = &[u8]> {
        let part = self.part_at(address).and_then(|part| self.parts.get(part));
        let range = part.and_then(|part| part.from(address));
        let bytes =
            [&self.before, &self.after, &self.at_end].map(|buffer| buffer.get(range.clone()?));
        bytes.into_iter().flatten()
    }

    /// At least this many bytes from an address on; the part counts as used.
    pub(super) fn take(&mut self, address: u64, length: usize) -> Option<&[u8]> {
        let index = self.part_at(address)?;
        let part = self.parts.get_mut(index)?;
        let range = part.from(address)?;
        part.is_used |= range.len() >= length;
        let bytes = self.nearest().get(range)?;
        (bytes.len() >= length).then_some(bytes)
    }

    /// Gives what is nearest to this look from now on.
    pub(super) fn take_look(&mut self, look: usize) {
        self.is_later = look > 0;
    }

    fn nearest(&self) -> &[u8] {
        if self.is_later {
            &self.at_end
        } else {
            &self.before
        }
    }

    /// The frame at an address on the other side of the look that was taken: after the first look,
    /// or, if another one was taken, before all.
    pub(super) fn again(&self, layout: &Layout, address: u64) -> Option<Frame> {
        let buffer = if self.is_later {
            &self.before
        } else {
            &self.after
        };
        self.frame_in(buffer, layout, address)
    }

    fn frame_in(&self, buffer: &[u8], layout: &Layout, address: u64) -> Option<Frame> {
        let range = self.parts.get(self.part_at(address)?)?.from(address)?;
        let header = buffer.get(range)?.get(..layout.execute_data.sizeof)?;
        Some(Frame::parse(layout, address, header))
    }

    /// The part that has most bytes from an address on.
    fn part_at(&self, address: u64) -> Option<usize> {
        let has = |&(_, part): &(usize, &BesideBytes)| part.from(address).is_some();
        let parts = self.parts.iter().enumerate().filter(has);
        let most = parts.max_by_key(|(_, part)| part.address.saturating_add(part.length as u64));
        most.map(|(index, _)| index)
    }
}

impl BesideBytes {
    /// Where the bytes from an address on are in each buffer.
    fn from(&self, address: u64) -> Option<std::ops::Range<usize>> {
        let offset = usize::try_from(address.checked_sub(self.address)?).ok()?;
        (offset < self.length).then(|| self.begin + offset..self.begin + self.length)
    }
}

fn pieces<'a>(
    parts: &'a [BesideBytes],
    mut bytes: &'a mut [u8],
) -> impl Iterator<Item = Piece<'a>> {
    parts.iter().filter_map(move |part| {
        let (own, rest) = std::mem::take(&mut bytes).split_at_mut_checked(part.length)?;
        bytes = rest;
        Some(Piece {
            address: part.address,
            bytes: own,
        })
    })
}
