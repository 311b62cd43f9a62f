//! Formats values and names for users, and escapes names for XML and HTML.
//!
//! It does not know profiles.
//!
//! Invariant: the result of [`xml`] cannot end the text or the attribute that contains it.

/// Text for XML and HTML, in an element or a quoted attribute. Control characters are not allowed in XML, so they are replaced.
pub(crate) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
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
