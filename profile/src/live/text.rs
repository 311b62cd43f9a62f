//! Formats times, shares and names for the table.
//!
//! Invariant: no text is wider than its room, and a long name keeps its end.

use ratatui::text::Span;

/// Only this many characters at the end of a name are used, because no terminal is wider.
const LONGEST: usize = 400;

/// As `0.42 s`, `12m05s`, `3h12m`; at most seven columns wide up to a thousand hours.
pub(super) fn time(nanoseconds: i64) -> String {
    let seconds = nanoseconds.max(0) / 1_000_000_000;
    match seconds {
        0..100 => format!("{:.2} s", nanoseconds.max(0) as f64 / 1e9),
        100..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// A share in percent with one decimal; empty if there is none.
pub(super) fn share(part: i64, of: i64) -> String {
    match percent(part, of) {
        Some(percent) if part > 0 => format!("{percent:.1}"),
        _ => "·".to_owned(),
    }
}

pub(super) fn percent(part: i64, of: i64) -> Option<f64> {
    (of > 0).then(|| 100.0 * part as f64 / of as f64)
}

/// A name in this many columns. A longer one loses its beginning.
pub(super) fn fitted(name: &str, columns: usize) -> String {
    let name = crate::text::printable(name).into_owned();
    if width(&name) <= columns {
        return name;
    }
    let skipped = name.chars().count().saturating_sub(LONGEST);
    let starts = name.char_indices().map(|(at, _)| at).skip(skipped.max(1));
    let mut ends = starts.filter_map(|at| name.get(at..));
    let room = columns.saturating_sub(1);
    let end = ends.find(|end| width(end) <= room).unwrap_or_default();
    match columns {
        0 => String::new(),
        _ => format!("…{end}"),
    }
}

/// The columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_name(name: &str, columns: usize, expected: &str) {
        let fitted = fitted(name, columns);
        assert!(width(&fitted) <= columns, "{fitted}");
        assert_eq!(fitted, expected);
    }

    #[test]
    fn of_a_long_name_the_end_is_kept() {
        check_name("Shop\\Cart::total", 20, "Shop\\Cart::total");
        check_name("Shop\\Cart::total", 12, "…Cart::total");
        check_name("a", 0, "");
        check_name("日本語の名前", 7, "…の名前");
        check_name("a\x1b[2Jb", 20, "a<1b>[2Jb");
        check_name(&"x".repeat(100_000), 4, "…xxx");
    }

    #[test]
    fn a_time_has_the_unit_that_people_read() {
        let second = 1_000_000_000;
        let words = [-1, 0, second / 3, 99 * second, 100 * second, 3599 * second];
        let words = words.map(time);
        let expected = ["0.00 s", "0.00 s", "0.33 s", "99.00 s", "1m40s", "59m59s"];
        assert_eq!(words, expected);
        assert_eq!(time(27 * 3600 * second), "27h00m");
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        let words = [share(1, 3), share(0, 3), share(1, 0), share(3, 3)];
        assert_eq!(words, ["33.3", "·", "·", "100.0"]);
    }
}
