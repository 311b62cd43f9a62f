//! Generators that delegate, read later than the looks: their places in the tree of generators, and
//! a chain of their frames.
//!
//! Invariant: what runs and what has resumed it are read once more after a chain, in the same call;
//! a chain exists only if they are those of the look.

use super::Frame;
use crate::layouts::Layout;
use crate::memory::{Memory, Piece, word_at};

/// The bytes from `zend_generator.execute_data` up to `node.parent`.
const NODE: usize = 128;
/// The bytes of the largest `zend_execute_data`.
const HEADER: usize = 96;
/// Parts with so few bytes between them are read as one: less than a page of memory, so what is
/// between them can be read too.
const NEAR: u64 = 512;

/// The generators between one that runs and one that was resumed.
#[derive(Debug)]
pub(super) struct GeneratorChain {
    /// The frame of the generator that runs.
    pub(super) running: Frame,
    /// The generator that was resumed.
    pub(super) outermost: u64,
    /// The frame that has resumed it.
    pub(super) caller: Frame,
    /// The frames of those that delegate, the innermost first, and the bytes of their headers.
    pub(super) frames: Vec<Frame>,
    headers: Vec<Vec<u8>>,
    /// The addresses of these frames in order, each with its index.
    by_address: Vec<(u64, usize)>,
}

impl GeneratorChain {
    /// Reads the frames of generators, and then what runs, the placeholder, and what has resumed it
    /// again: nothing if these are not the same.
    pub(super) fn read<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        running: Frame,
        placeholder: &Frame,
        caller: Frame,
        outer_first: &[GeneratorNode],
    ) -> Option<Self> {
        let size = layout.execute_data.sizeof;
        let places = outer_first.iter().rev();
        let places: Vec<_> = places.map(|node| (node.execute_data, size)).collect();
        let ends = [running.address, placeholder.address, caller.address];
        let mut again = [[0; HEADER]; 3];
        let after = ends.iter().zip(&mut again).filter_map(|(&address, bytes)| {
            let bytes = bytes.get_mut(..size)?;
            Some(Piece { address, bytes })
        });
        let headers = gather_near(memory, &places, &mut after.collect::<Vec<_>>())?;
        let frame = |address: u64, bytes: &[u8]| Frame::parse(layout, address, bytes);
        let both = places.iter().zip(&headers);
        let mut frames: Vec<Frame> = both
            .map(|(&(address, _), bytes)| frame(address, bytes))
            .collect();
        let [running_again, placeholder_again, caller_again] =
            [0, 1, 2].map(|end| frame(ends[end], &again[end]));
        let is_placeholder = (placeholder_again.this, placeholder_again.prev)
            == (placeholder.this, placeholder.prev);
        if !running_again.is_same_call(&running) || !is_placeholder || caller_again != caller {
            return None;
        }
        let kind = layout.call_info.generator;
        for frame in &mut frames {
            let is_body = frame.call_info & kind == kind && frame.is_pushed() && frame.func != 0;
            if !is_body {
                return None;
            }
            frame.is_delegating = true;
        }
        let by_address = frames.iter().enumerate();
        let mut by_address: Vec<_> = by_address.map(|(at, frame)| (frame.address, at)).collect();
        by_address.sort_unstable();
        Some(Self {
            running,
            outermost: placeholder.this,
            caller,
            frames,
            headers,
            by_address,
        })
    }

    /// The index of the frame at an address.
    fn index_of(&self, address: u64) -> Option<usize> {
        let found = self.by_address.binary_search_by_key(&address, |it| it.0);
        Some(self.by_address.get(found.ok()?)?.1)
    }

    /// The bytes of the header of the frame at an address.
    pub(super) fn header(&self, address: u64) -> Option<&[u8]> {
        self.headers.get(self.index_of(address)?).map(Vec::as_slice)
    }

    /// Whether a frame is of a generator that delegates to the one with the other frame.
    pub(super) fn delegates(&self, caller: &Frame, callee: &Frame) -> bool {
        let Some(index) = self.index_of(caller.address) else {
            return false;
        };
        let inner = match index.checked_sub(1) {
            Some(inner) => self.frames.get(inner),
            None => Some(&self.running),
        };
        inner.is_some_and(|inner| inner.is_same_call(callee) && inner.address == callee.address)
    }
}

/// What unwinding needs of a `zend_generator`.
#[derive(Debug, Clone, Copy)]
pub(super) struct GeneratorNode {
    pub(super) address: u64,
    pub(super) execute_data: u64,
    pub(super) parent: u64,
}

impl GeneratorNode {
    /// Where the fields are, as an address and a length.
    fn place(layout: &Layout, address: u64) -> Option<(u64, usize)> {
        let row = &layout.generator;
        let length = (row.node_parent + 8).checked_sub(row.execute_data)?;
        let begin = address.checked_add(row.execute_data as u64)?;
        Some((begin, length.min(NODE)))
    }

    fn parse(layout: &Layout, address: u64, bytes: &[u8]) -> Self {
        let row = &layout.generator;
        Self {
            address,
            execute_data: word_at(bytes, 0),
            parent: word_at(bytes, row.node_parent - row.execute_data),
        }
    }

    pub(super) fn read<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        address: u64,
    ) -> Option<Self> {
        let (begin, length) = Self::place(layout, address)?;
        let mut bytes = [0; NODE];
        let bytes = bytes.get_mut(..length)?;
        memory.read(begin, bytes).ok()?;
        Some(Self::parse(layout, address, bytes))
    }

    /// The same for many, in one call of the kernel; none if one of them is gone.
    pub(super) fn read_all<M: Memory + ?Sized>(
        memory: &M,
        layout: &Layout,
        addresses: &[u64],
    ) -> Vec<Self> {
        let places: Option<Vec<_>> = addresses
            .iter()
            .map(|&address| Self::place(layout, address))
            .collect();
        let parts = places.and_then(|places| gather_near(memory, &places, &mut []));
        let nodes = parts.iter().flatten().zip(addresses);
        nodes
            .map(|(bytes, &address)| Self::parse(layout, address, bytes))
            .collect()
    }
}

/// Reads parts of memory, each an address and a length, and then some more, in one call of the
/// kernel. The engine's allocator puts what is of one size side by side, and a piece for each part
/// would take most of the time: so near parts are one piece.
fn gather_near<M: Memory + ?Sized>(
    memory: &M,
    places: &[(u64, usize)],
    after: &mut [Piece<'_>],
) -> Option<Vec<Vec<u8>>> {
    let end = |(address, length): (u64, usize)| address.checked_add(length as u64);
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for place in sorted {
        let (begin, end) = (place.0, end(place)?);
        match runs.last_mut() {
            Some((start, bytes)) if begin.saturating_sub(*start) <= bytes.len() as u64 + NEAR => {
                let length = usize::try_from(end - *start).ok()?;
                bytes.resize(length.max(bytes.len()), 0);
            }
            _ => runs.push((begin, vec![0; place.1])),
        }
    }
    let piece = |(address, bytes): (&u64, _)| Piece {
        address: *address,
        bytes,
    };
    let pieces = runs.iter_mut();
    let mut pieces: Vec<_> = pieces
        .map(|(at, bytes)| piece((at, &mut bytes[..])))
        .collect();
    pieces.extend(
        after
            .iter_mut()
            .map(|it| piece((&it.address, &mut *it.bytes))),
    );
    memory.gather(&mut pieces).ok()?;
    let part = |&(address, length): &(u64, usize)| {
        let run = runs.partition_point(|&(start, _)| start <= address);
        let (start, bytes) = runs.get(run.checked_sub(1)?)?;
        let begin = usize::try_from(address - start).ok()?;
        Some(bytes.get(begin..begin + length)?.to_vec())
    };
    places.iter().map(part).collect()
}
