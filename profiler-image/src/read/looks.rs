//! The order of the looks within a read.
//!
//! Invariant: nothing is touched before the first read of the pointer to the top.

use phpprof_zend::memory::Piece;
use smallvec::SmallVec;

/// The pieces of one read, without an allocation.
pub(super) type Pieces<'a> = SmallVec<[Piece<'a>; 64]>;

/// How many looks of this number come before the read of the part below.
#[must_use]
pub fn looks_before_below(looks: usize) -> usize {
    looks.saturating_sub(1).min(2)
}

/// Adds the looks at the part at `hot`, the top's pointer, and the part below.
///
/// The frames around the top change fastest, so they are looked at several times, right before and
/// after each read of the pointer, except before the first one: nothing is touched before that. The
/// part below is read between two looks, which tell whether its calls stood. The frames beside the
/// page are read right before and after the first look, and after all looks.
pub(super) fn add_looks<'a>(
    pieces: &mut Pieces<'a>,
    mut tops: impl Iterator<Item = Piece<'a>>,
    hot: u64,
    looks: &'a mut [Vec<u8>],
    below: Option<Piece<'a>>,
    [beside, beside_again, beside_at_end]: [impl Iterator<Item = Piece<'a>>; 3],
) {
    let before = looks_before_below(looks.len());
    let (mut below, mut beside_again) = (below.into_iter(), Some(beside_again));
    pieces.extend(tops.next());
    pieces.extend(beside);
    for (index, bytes) in looks.iter_mut().enumerate() {
        if index == before {
            pieces.extend(below.next());
        }
        if index > 1 {
            pieces.extend(tops.next());
        }
        pieces.push(Piece {
            address: hot,
            bytes,
        });
        pieces.extend(beside_again.take().into_iter().flatten());
    }
    pieces.extend(beside_at_end);
}
