//! The largest values that a profile of phpprof has, each once, for what writes and for what reads.
//!
//! Invariant: what is written is never above what every reader takes. Whatever a target has, its
//! profile is cut and says so; it is not refused.

use std::borrow::Cow;

/// Frames of one sample. A sampler reads half of that of a stack
/// (`phpprof_zend::unwind::MAX_FRAMES`), and adds frames of its own.
pub const MAX_FRAMES: usize = 8192;
/// Labels of one sample.
pub const MAX_LABELS: usize = 64;
/// Bytes of one string. Many rows can share one, so readers that write it for each row would
/// otherwise write far more than they read.
pub const MAX_STRING: usize = 16 << 10;
/// Bytes of one top-level field: any sample or string within the other bounds is smaller.
pub(crate) const MAX_RECORD: usize = 256 << 10;

/// Frames of all samples of a profile together: about 24 MiB of ids, and 64 MiB where a reader
/// holds them.
pub const MAX_FRAMES_OF_ALL: usize = 8 << 20;

/// The frame in the place of those that were left out.
pub const TRUNCATED: &str = "[truncated]";
/// The end of a text that was cut.
const CUT: &str = "…";

// An id or a number has at most ten bytes in protobuf, and a label has four numbers with tags in a
// message with tag and length.
const _: () = assert!(MAX_FRAMES * 10 + MAX_LABELS * 48 + MAX_STRING < MAX_RECORD);

/// A text within [`MAX_STRING`]. A longer one is cut, and its end says so.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_STRING {
        return Cow::Borrowed(text);
    }
    Cow::Owned([beginning(text, MAX_STRING - CUT.len()), CUT].concat())
}

/// As much of a text as this many bytes hold.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let mut ends = (0..=most.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// The most frames that each stack may keep, so that all together have at most
/// [`MAX_FRAMES_OF_ALL`]: only the deepest lose some.
pub fn depth_within(depths: impl Iterator<Item = usize>) -> usize {
    depth_of(depths, MAX_FRAMES_OF_ALL)
}

fn depth_of(depths: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut counts = vec![0_usize; MAX_FRAMES + 1];
    for depth in depths {
        if let Some(count) = counts.get_mut(depth.min(MAX_FRAMES)) {
            *count += 1;
        }
    }
    // How many stacks reach a depth, from the deepest on, is how many frames that depth costs.
    for depth in (0..MAX_FRAMES).rev() {
        let above = counts.get(depth + 1).copied().unwrap_or(0);
        if let Some(count) = counts.get_mut(depth) {
            *count = count.saturating_add(above);
        }
    }
    let mut all = 0_usize;
    let fits = |count: &&usize| {
        all = all.saturating_add(**count);
        all <= most
    };
    counts.iter().skip(1).take_while(fits).count()
}

/// How many frames stay at the leaf and at the root of a stack that has more than this many: the
/// ends say what ran and for whom. [`TRUNCATED`] takes the place of the frames between them.
pub(crate) fn ends(frames: usize, most: usize) -> Option<(usize, usize)> {
    let kept = most.saturating_sub(1);
    (frames > most).then_some((kept.div_ceil(2), kept / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_letter_and_marked() {
        let whole = "x".repeat(MAX_STRING);
        assert_eq!(text(&whole), whole);
        for letter in ["x", "é", "類", "🐘"] {
            let long = letter.repeat(MAX_STRING / letter.len() + 1);
            let cut = text(&long).into_owned();
            let kept = cut.strip_suffix(CUT).unwrap();
            assert!(long.starts_with(kept) && cut.len() <= MAX_STRING);
            assert!(cut.len() > MAX_STRING - CUT.len() - 4, "{letter}");
        }
    }

    #[test]
    fn depth_of_stacks_cuts_the_deepest_alone() {
        let check = |depths: &[usize], most: usize, expected: usize| {
            let depth = depth_of(depths.iter().copied(), most);
            assert_eq!(depth, expected, "{depths:?}");
            let kept: usize = depths.iter().map(|it| (*it).min(depth)).sum();
            assert!(kept <= most);
        };
        check(&[], 0, MAX_FRAMES);
        check(&[3, 4, 5], 12, MAX_FRAMES);
        check(&[3, 4, 5], 11, 4);
        check(&[3, 100, 100], 103, 50);
        check(&[3, 100, 100], 104, 50);
        check(&[1; 10], 9, 0);
        check(&[50_000], MAX_FRAMES, MAX_FRAMES);
    }

    #[test]
    fn ends_leave_room_for_the_mark() {
        assert_eq!(ends(5, 5), None);
        assert_eq!(ends(6, 5), Some((2, 2)));
        assert_eq!(ends(6, 4), Some((2, 1)));
        assert_eq!(ends(1, 0), Some((0, 0)));
    }
}
