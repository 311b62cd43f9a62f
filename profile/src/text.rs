//! Formats values and names for users, and escapes names for XML and HTML.
//!
//! It does not know profiles.
//!
//! Invariant: the result of [`xml`] cannot end the text or the attribute that contains it.
//! [`printable`] has no character that moves a cursor, begins a line or reorders one.

use std::borrow::Cow;
use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A name for a terminal, or for a line of a file. Each byte of a character that is none for a
/// reader is shown as `<hh>`, as the sampler shows the bytes of names that are not UTF-8
/// (`zend/src/shown.rs`), so that two names stay two.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_special) {
        Cow::Owned(marked(text, is_special))
    } else {
        Cow::Borrowed(text)
    }
}

/// The text, with these characters shown as their bytes: `<e2><80><ae>`.
pub fn marked(text: &str, is_special: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if !is_special(letter) {
            shown.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "<{byte:02x}>");
        }
    }
    shown
}

/// Control characters, both ends of lines, what reorders a line, and what XML does not have.
pub(crate) fn is_special(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// How many columns of a terminal a printable text takes: letters of Chinese, Japanese and Korean,
/// and emoji, take two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The beginning of a text, in at most this many columns.
pub(crate) fn beginning(text: &str, columns: usize) -> &str {
    let mut left = columns;
    let end = text.char_indices().find(|(_, letter)| {
        let width = letter.width().unwrap_or(0);
        let is_over = width > left;
        left = left.saturating_sub(width);
        is_over
    });
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// The end of a text, in at most this many columns.
pub(crate) fn ending(text: &str, columns: usize) -> &str {
    let mut left = columns;
    let mut letters = text.char_indices().rev();
    let cut = letters.find(|(_, letter)| {
        let width = letter.width().unwrap_or(0);
        let is_over = width > left;
        left = left.saturating_sub(width);
        is_over
    });
    let begin = cut.map_or(0, |(at, letter)| at + letter.len_utf8());
    text.get(begin..).unwrap_or(text)
}

/// Text for XML and HTML, in an element or a quoted attribute. Control characters are not allowed
/// in XML, so they are marked.
pub(crate) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

pub(crate) fn percent(value: i64, total: i64) -> String {
    if total == 0 {
        return "0 %".to_owned();
    }
    format!("{:.2} %", 100.0 * value as f64 / total as f64)
}

/// Bytes of memory: whole kibibytes below one mebibyte.
pub(crate) fn mebibytes(bytes: u64) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes.div_ceil(1 << 10))
    } else {
        format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
    }
}

/// The unit for all values of one picture or table.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    divisor: f64,
    suffix: &'static str,
    decimals: usize,
}

impl Amount {
    /// The unit in which this value (usually the total) has at most four digits before the point.
    pub fn of(unit: &str, value: i64) -> Self {
        let units: &[(f64, &str)] = match unit {
            "nanoseconds" => &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")],
            "bytes" => &[
                (1_073_741_824.0, " GiB"),
                (1_048_576.0, " MiB"),
                (1024.0, " KiB"),
                (1.0, " B"),
            ],
            _ => &[(1.0, "")],
        };
        let size = (value as f64).abs();
        let (divisor, suffix) = units
            .iter()
            .find(|(divisor, _)| size >= *divisor)
            .or(units.last())
            .copied()
            .unwrap_or((1.0, ""));
        Amount {
            divisor,
            suffix,
            decimals: if divisor > 1.0 { 2 } else { 0 },
        }
    }

    /// The value in this unit.
    pub fn text(&self, value: i64) -> String {
        format!(
            "{:.*}{}",
            self.decimals,
            value as f64 / self.divisor,
            self.suffix
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printable_marks_control_characters_and_keeps_letters() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("Café::日本語\u{a0}😀", "Café::日本語\u{a0}😀");
        check("a\u{1b}[2J\nb", "a<1b>[2J<0a>b");
        check("a\u{85}\u{202e}", "a<c2><85><e2><80><ae>");
    }

    #[test]
    fn a_beginning_fits_into_its_columns() {
        let check = |columns: usize, expected: &str| {
            assert_eq!(beginning("a日本e\u{301}x", columns), expected);
        };
        check(0, "");
        check(2, "a");
        check(3, "a日");
        check(6, "a日本e\u{301}");
        check(7, "a日本e\u{301}x");
        assert_eq!(columns("a日本e\u{301}x"), 7);
    }

    #[test]
    fn xml_ends_no_element_and_no_attribute() {
        let escaped = xml("<a b='c' d=\"&\">\u{1b}");
        assert_eq!(
            escaped,
            "&lt;a b=&#39;c&#39; d=&quot;&amp;&quot;&gt;&lt;1b&gt;"
        );
    }
}
