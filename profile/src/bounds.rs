//! The largest values that a profile of phpprof has, each once, for what writes and for what reads.
//!
//! Invariant: what is written is never above what every reader takes. Whatever a target has, its profile is cut and says so; it is not
//! refused.

use std::borrow::Cow;

/// Frames of one sample. A sampler reads half of that of a stack (`phpprof_zend::unwind::MAX_FRAMES`), and adds frames of its own.
pub const MAX_FRAMES: usize = 8192;
/// Labels of one sample.
pub const MAX_LABELS: usize = 64;
/// Bytes of one string. Many rows can share one, so readers that write it for each row would otherwise write far more than they read.
pub const MAX_STRING: usize = 16 << 10;
/// Bytes of one top-level field: any sample or string within the other bounds is smaller.
pub(crate) const MAX_RECORD: usize = 256 << 10;

/// The frame in the place of those that were left out.
pub const TRUNCATED: &str = "[truncated]";
/// The end of a text that was cut.
const CUT: &str = "…";

// An id or a number has at most ten bytes in protobuf, and a label has four numbers with tags in a message with tag and length.
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

/// How many frames stay at the leaf and at the root of a stack that has more than this many: the ends say what ran and for whom.
/// [`TRUNCATED`] takes the place of the frames between them.
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
    fn ends_leave_room_for_the_mark() {
        assert_eq!(ends(5, 5), None);
        assert_eq!(ends(6, 5), Some((2, 2)));
        assert_eq!(ends(6, 4), Some((2, 1)));
        assert_eq!(ends(1, 0), Some((0, 0)));
    }
}
