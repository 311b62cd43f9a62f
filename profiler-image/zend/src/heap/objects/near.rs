//! Reads pieces at many addresses with few reads: those that are near each other are one.
//!
//! Invariant: at most [`GAP`] bytes are read for a piece in addition to its own, and there are at
//! most two reads for a piece.

use crate::memory::{Memory, Piece};

/// How many bytes between two pieces are read with them: that costs less than another piece of a
/// gather, for which the kernel looks up a page.
const GAP: u64 = 256;

/// Pieces of one length.
#[derive(Debug)]
pub struct NearReads {
    bytes: Vec<u8>,
    spans: Vec<NearSpan>,
    pieces: Vec<NearPiece>,
    length: usize,
}

/// Bytes in a row, which are read or not as a whole.
#[derive(Debug)]
struct NearSpan {
    start: u64,
    length: usize,
    is_read: bool,
}

/// The number of a piece's span, and where the piece begins in all bytes.
#[derive(Debug)]
struct NearPiece {
    span: usize,
    offset: usize,
}

impl NearReads {
    /// Reads pieces of this length at addresses that do not descend. One that cannot be read takes
    /// with it only those that are near it.
    pub fn of<M: Memory + ?Sized>(
        memory: &M,
        addresses: impl Iterator<Item = u64>,
        length: usize,
    ) -> Self {
        let mut reads = Self::planned(addresses, length);
        if !reads.gather(memory) {
            let mut rest = reads.bytes.as_mut_slice();
            for span in &mut reads.spans {
                let (bytes, after) = std::mem::take(&mut rest).split_at_mut(span.length);
                rest = after;
                span.is_read = memory.read(span.start, bytes).is_ok();
            }
        }
        reads
    }

    /// The same; `None` if any piece cannot be read.
    pub fn together<M: Memory + ?Sized>(
        memory: &M,
        addresses: impl Iterator<Item = u64>,
        length: usize,
    ) -> Option<Self> {
        let mut reads = Self::planned(addresses, length);
        reads.gather(memory).then_some(reads)
    }

    fn planned(addresses: impl Iterator<Item = u64>, length: usize) -> Self {
        let (mut spans, mut pieces): (Vec<NearSpan>, Vec<NearPiece>) = (Vec::new(), Vec::new());
        let mut total = 0;
        for address in addresses {
            let near = spans.last_mut().and_then(|span| {
                let offset = address.checked_sub(span.start)?;
                let is_near = offset <= span.length as u64 + GAP;
                is_near.then_some((span, offset as usize))
            });
            let mut offset = total;
            if let Some((span, within)) = near {
                offset = total - span.length + within;
                let grown = (within + length).saturating_sub(span.length);
                (span.length, total) = (span.length + grown, total + grown);
            } else {
                total += length;
                spans.push(NearSpan {
                    start: address,
                    length,
                    is_read: true,
                });
            }
            let span = spans.len() - 1;
            pieces.push(NearPiece { span, offset });
        }
        Self {
            bytes: vec![0; total],
            spans,
            pieces,
            length,
        }
    }

    fn gather<M: Memory + ?Sized>(&mut self, memory: &M) -> bool {
        let mut rest = self.bytes.as_mut_slice();
        let mut pieces = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let (bytes, after) = std::mem::take(&mut rest).split_at_mut(span.length);
            rest = after;
            let address = span.start;
            pieces.push(Piece { address, bytes });
        }
        memory.gather(&mut pieces).is_ok()
    }

    /// The pieces in the order of their addresses; `None` for one that could not be read.
    pub fn pieces(&self) -> impl Iterator<Item = Option<&[u8]>> {
        self.pieces.iter().map(|piece| {
            let is_read = self.spans.get(piece.span)?.is_read;
            let bytes = self.bytes.get(piece.offset..piece.offset + self.length);
            bytes.filter(|_| is_read)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Recorded;
    use crate::testing::Counted;

    const AT: u64 = 0x7f00_0000_0000;

    fn memory() -> Recorded {
        let mut memory = Recorded::default();
        let bytes: Vec<u8> = (0..4096).map(|at| (at % 251) as u8).collect();
        memory.put(AT, bytes);
        memory
    }

    /// Reads eight bytes at each of these offsets, and says how many bytes that took.
    #[track_caller]
    fn check(offsets: &[u64], expected: &[bool]) -> usize {
        let memory = memory();
        let counted = Counted::new(&memory);
        let addresses = offsets.iter().map(|offset| AT + offset);
        let read = NearReads::of(&counted, addresses, 8);
        let pieces: Vec<_> = read.pieces().collect();
        assert_eq!(pieces.len(), offsets.len());
        for ((piece, offset), is_read) in pieces.iter().zip(offsets).zip(expected) {
            assert_eq!(piece.is_some(), *is_read, "{offset}");
            if let Some(piece) = piece {
                let right = (*offset..).map(|at| (at % 251) as u8);
                assert!(piece.iter().copied().eq(right.take(8)), "{offset}");
            }
        }
        counted.bytes()
    }

    #[test]
    fn near_pieces_are_read_together() {
        assert_eq!(check(&[0, 56, 112], &[true; 3]), 120);
        // The same place twice, overlapping ones, and ones that are far.
        assert_eq!(check(&[8, 8, 12, 1000, 3000], &[true; 5]), 12 + 8 + 8);
        assert_eq!(check(&[0, 8 + GAP], &[true; 2]), 16 + GAP as usize);
        assert_eq!(check(&[0, 9 + GAP], &[true; 2]), 16);
        assert_eq!(check(&[], &[]), 0);
    }

    #[test]
    fn unreadable_piece_does_not_take_others_with_it() {
        check(
            &[0, 2000, 4092, 4100, 90_000],
            &[true, true, false, false, false],
        );
    }
}
