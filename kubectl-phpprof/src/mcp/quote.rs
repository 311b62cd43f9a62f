//! Names of a profiled program as data for an agent: functions, files, routes, pods.
//!
//! Whoever writes the program chooses them, so they may read like instructions, hide or reorder
//! text. They are shown in fields of their own and nowhere else (`answer`).
//!
//! Invariant: a shown name has at most [`LONGEST_NAME`] characters, and each of them can be seen.

use phpprof_profile::marked;
use unicode_general_category::{GeneralCategory, get_general_category};

/// The most characters of a name.
pub const LONGEST_NAME: usize = 200;
const CUT: char = '…';

/// The name, without its end if it is too long.
pub fn quoted(name: &str) -> String {
    let shown = marked(name, is_hidden);
    if shown.chars().count() <= LONGEST_NAME {
        return shown;
    }
    let mut short: String = shown.chars().take(LONGEST_NAME - 1).collect();
    short.push(CUT);
    short
}

/// The path of a file, without its beginning if it is too long.
pub fn quoted_path(path: &str) -> String {
    let shown = marked(path, is_hidden);
    match shown.chars().count().checked_sub(LONGEST_NAME) {
        None | Some(0) => shown,
        Some(over) => {
            let end = shown.chars().skip(over + 1);
            std::iter::once(CUT).chain(end).collect()
        }
    }
}

/// Whether a reader of the text would not see the character, or would see others differently:
/// controls, formats (bidirectional ones, zero widths, tags), ends of lines, what has no agreed
/// shape, and the letters and marks that Unicode's `Default_Ignorable_Code_Point` adds to these.
fn is_hidden(letter: char) -> bool {
    let is_of_a_kind = matches!(
        get_general_category(letter),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    );
    is_of_a_kind
        || matches!(
            letter,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_shows_what_would_be_hidden() {
        let check = |name: &str, expected: &str| assert_eq!(quoted(name), expected, "{name:?}");
        check("Café::日本語 😀", "Café::日本語 😀");
        check("a\u{1b}[2J\n", "a<1b>[2J<0a>");
        check("a\u{202e}b\u{2066}", "a<e2><80><ae>b<e2><81><a6>");
        check("zero\u{200b}\u{feff}", "zero<e2><80><8b><ef><bb><bf>");
        // Tags spell a text that no reader sees.
        check("\u{e0041}", "<f3><a0><81><81>");
        check("soft\u{ad}", "soft<c2><ad>");
        check("\u{3164}\u{fe0f}", "<e3><85><a4><ef><b8><8f>");
        check("\u{e000}", "<ee><80><80>");
        check("line\u{2028}", "line<e2><80><a8>");
    }

    #[test]
    fn quoted_cuts_at_two_hundred_characters() {
        let long = "é".repeat(300);
        assert_eq!(quoted(&long).chars().count(), LONGEST_NAME);
        assert!(quoted(&long).ends_with("é…"));
        let path = format!("/srv/{long}/index.php");
        assert_eq!(quoted_path(&path).chars().count(), LONGEST_NAME);
        assert!(quoted_path(&path).starts_with('…'));
        assert!(quoted_path(&path).ends_with("/index.php"));
        for fits in ["", "/srv/index.php", &"x".repeat(LONGEST_NAME)] {
            assert_eq!(
                (quoted(fits), quoted_path(fits)),
                (fits.to_owned(), fits.to_owned())
            );
        }
    }
}
