//! Writes the bytes of a name or a path as a text for users: pure.
//!
//! PHP takes any byte from 0x80 on for a letter, and Linux any but NUL and `/` in a path. UTF-8 is
//! shown as it is. A byte that is none, each byte of a control character, and of a character that
//! reorders a line or ends it, is shown as `<hh>`, its two hexadecimal digits, as vim and less do.
//! A text that has such a mark itself has `<3c>` for its `<`.
//! Invariant: two different texts that are not cut are shown differently, and what is shown has no
//! control character. A longer text than the limit keeps both ends, and has its length and its hash
//! at its end.

use std::fmt::Write as _;

use crate::string_hash::hash_of;

/// The longest name of a class or a function that is shown whole, in bytes.
pub const MAX_NAME: usize = 512;
/// The longest path that is shown whole; it is `PATH_MAX` of Linux.
pub const MAX_PATH: usize = 4096;
/// How much of a longer text's limit is its end.
const END_PART: usize = 4;

/// Appends a text, of which `length` bytes exist, and these bytes are known: all, or both ends.
pub fn show(bytes: &[u8], length: u64, limit: usize, shown: &mut String) {
    if length <= limit as u64 {
        return show_whole(bytes, shown);
    }
    let end = limit / END_PART;
    let begin = bytes.get(..limit - end).unwrap_or(bytes);
    show_whole(without_cut_character(begin), shown);
    shown.push('…');
    let end = bytes.get(bytes.len().saturating_sub(end)..);
    let end = end.unwrap_or_default();
    let is_cut = |&byte: &u8| matches!(byte, 0x80..=0xbf);
    let cut = end.iter().take(3).take_while(|byte| is_cut(byte)).count();
    show_whole(end.get(cut..).unwrap_or_default(), shown);
    // Writing to a string cannot fail.
    let _ = write!(shown, "<{length} bytes, {:016x}>", hash_of(bytes));
}

/// Appends a whole text.
pub fn show_whole(bytes: &[u8], shown: &mut String) {
    for chunk in bytes.utf8_chunks() {
        let text = chunk.valid();
        let is_plain = |letter: char| letter != '<' && !is_special(letter);
        // Nearly every text.
        if text.chars().all(is_plain) {
            shown.push_str(text);
        } else {
            show_special(text, shown);
        }
        chunk.invalid().iter().for_each(|&byte| mark(byte, shown));
    }
}

fn show_special(text: &str, shown: &mut String) {
    for (at, letter) in text.char_indices() {
        let is_like_a_mark = letter == '<' && is_mark(&text.as_bytes()[at..]);
        if is_like_a_mark || is_special(letter) {
            let mut bytes = [0; 4];
            let bytes = letter.encode_utf8(&mut bytes);
            bytes.bytes().for_each(|byte| mark(byte, shown));
        } else {
            shown.push(letter);
        }
    }
}

fn mark(byte: u8, shown: &mut String) {
    let _ = write!(shown, "<{byte:02x}>");
}

/// Whether a text begins with what stands for a byte.
fn is_mark(text: &[u8]) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    matches!(text, [b'<', one, two, b'>', ..] if is_digit(*one) && is_digit(*two))
}

/// Whether a terminal or a page may take a character for something else than a letter: control
/// characters, both ends of lines, what reorders a line (Unicode's bidirectional controls), and
/// what XML does not have.
fn is_special(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// A text without the first bytes of a character whose rest was cut off.
pub(crate) fn without_cut_character(bytes: &[u8]) -> &[u8] {
    let rest = bytes.utf8_chunks().last().map_or(0, |chunk| {
        let invalid = chunk.invalid();
        // Only what more bytes could have completed.
        let may_go_on =
            std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
        if may_go_on { invalid.len() } else { 0 }
    });
    bytes.get(..bytes.len() - rest).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(bytes: &[u8]) -> String {
        let mut shown = String::new();
        show(bytes, bytes.len() as u64, MAX_NAME, &mut shown);
        shown
    }

    #[test]
    fn show_keeps_letters_and_marks_what_is_none() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(shown(bytes), expected);
        check("App\\Café::été".as_bytes(), "App\\Café::été");
        check("日本語😀a\u{a0}b".as_bytes(), "日本語😀a\u{a0}b");
        check(b"f\x80\xff\xfe", "f<80><ff><fe>");
        check(b"m\xfcller", "m<fc>ller");
        check(b"\x1b[31mred\x07", "<1b>[31mred<07>");
        check("\u{85}\u{202e}".as_bytes(), "<c2><85><e2><80><ae>");
        check(b"<80>", "<3c>80>");
        check(
            b"<internal:standard> a<b <8>",
            "<internal:standard> a<b <8>",
        );
    }

    #[test]
    fn show_cuts_a_long_name_and_marks_it() {
        let long = "f".repeat(4_990) + "_end";
        let text = shown(long.as_bytes());
        assert!(text.len() < MAX_NAME + 64, "{text}");
        assert!(text.starts_with("fff") && text.contains("f_end<4994 bytes, "));
        let mut other = long.into_bytes();
        other[2_000] = b'g';
        assert!(shown(&other) != text, "they differ where they are cut");
        // Characters are not cut in two.
        for prefix in ["", "a", "ab"] {
            let text = shown(format!("{prefix}{}", "語".repeat(500)).as_bytes());
            assert!(text.contains("語…語") && !text.contains("<8"), "{text}");
        }
        // Only the ends are known.
        let mut text = String::new();
        show(&[b'a'; 600], 1 << 20, MAX_NAME, &mut text);
        assert!(text.contains("a…a") && text.contains("<1048576 bytes, "));
    }

    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            "\\PC{0,3}".prop_map(String::into_bytes),
            "<[0-9a-f]{2}>".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..4),
            Just(b"<".to_vec()),
        ];
        proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
    }

    /// Reads the marks back.
    fn bytes_of(shown: &str) -> Vec<u8> {
        let (mut rest, mut bytes) = (shown.as_bytes(), Vec::new());
        while let [first, others @ ..] = rest {
            if is_mark(rest) {
                let digits = std::str::from_utf8(&rest[1..3]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &rest[4..];
            } else {
                bytes.push(*first);
                rest = others;
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn text_is_read_back_without_control_characters(bytes in texts()) {
            let text = shown(&bytes);
            prop_assert!(!text.chars().any(is_special));
            prop_assert_eq!(bytes_of(&text), bytes);
        }
    }
}
