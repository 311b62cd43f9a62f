//! Time by function, as `go tool pprof -top` prints it.
//!
//! It does not filter and does not draw.
//!
//! Invariant: the flat values add up to the total of all samples with a frame. A function that is
//! on a stack several times (recursion) counts once in its cumulative value.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crate::builder::FIBERS;
use crate::lookup::Lookup;
use crate::proto::{Profile, Sample};
use crate::source::SampleSource;
use crate::text::printable;

/// A function with its values in one sample type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The name in the profile.
    pub name: String,
    /// The file of its declaration.
    pub file: String,
    /// In the function itself.
    pub flat: i64,
    /// In the function and its callees.
    pub cum: i64,
}

/// The sum of one value over all samples; 0 if the profile does not have the sample type.
pub fn total<S: SampleSource + ?Sized>(source: &S, sample_type: &str) -> i64 {
    let index = source.head().value_index(sample_type);
    let mut sum = 0i64;
    source.each(&mut |sample| {
        let value = index.and_then(|index| sample.value.get(index));
        sum = sum.saturating_add(value.copied().unwrap_or(0));
    });
    sum
}

/// Every function with its values, largest flat value first.
pub fn top(profile: &Profile, sample_type: &str) -> Vec<TopRow> {
    let lookup = Lookup::new(profile);
    let mut sums: HashMap<(&str, &str), (i64, i64)> = HashMap::new();
    for (sample, value) in values(profile, sample_type) {
        let mut seen = HashSet::new();
        for (depth, frame) in lookup.frames(sample).enumerate() {
            let function = (frame.name, frame.file);
            let (flat, cum) = sums.entry(function).or_default();
            if depth == 0 {
                *flat = flat.saturating_add(value);
            }
            if seen.insert(function) {
                *cum = cum.saturating_add(value);
            }
        }
    }
    let mut rows: Vec<_> = sums
        .into_iter()
        .map(|((name, file), (flat, cum))| TopRow {
            name: name.to_owned(),
            file: file.to_owned(),
            flat,
            cum,
        })
        .collect();
    rows.sort_by(|a, b| (b.flat, b.cum, &a.name, &a.file).cmp(&(a.flat, a.cum, &b.name, &b.file)));
    rows
}

/// The first `count` rows as text. `unit` is the unit of the sample type.
pub fn table(rows: &[TopRow], count: usize, total: i64, unit: &str) -> String {
    let shown = &rows[..count.min(rows.len())];
    let scale = Scale::of(shown, unit);
    let accounted = shown
        .iter()
        .fold(0i64, |sum, row| sum.saturating_add(row.flat));
    let mut text = format!(
        "Showing nodes accounting for {}, {} of {} total\n",
        scale.text(accounted),
        percent(accounted, total).trim_start(),
        scale.text(total)
    );
    if shown.len() < rows.len() {
        let _ = writeln!(
            text,
            "Showing top {} nodes out of {}",
            shown.len(),
            rows.len()
        );
    }
    text.push_str("      flat  flat%   sum%        cum   cum%\n");
    let mut sum = 0i64;
    for row in shown {
        sum = sum.saturating_add(row.flat);
        let _ = writeln!(
            text,
            "{:>10} {} {} {:>10} {}  {}",
            scale.text(row.flat),
            percent(row.flat, total),
            percent(sum, total),
            scale.text(row.cum),
            percent(row.cum, total),
            printable(&row.name)
        );
    }
    text
}

/// The samples that have this type: suspended fibers have only their own types, and no other sample
/// has these.
pub(crate) fn values<'a>(
    profile: &'a Profile,
    sample_type: &str,
) -> impl Iterator<Item = (&'a Sample, i64)> {
    let index = profile.value_index(sample_type);
    let fibers = profile.value_index(FIBERS[0].0);
    let is_of_fibers = FIBERS.iter().any(|(name, _)| *name == sample_type);
    let has_type = move |sample: &Sample| {
        let count = fibers.and_then(|index| sample.value.get(index));
        count.is_none_or(|&count| (count != 0) == is_of_fibers)
    };
    let samples = profile.sample.iter();
    let samples = samples.filter(move |sample| has_type(sample));
    samples.filter_map(move |sample| Some((sample, *sample.value.get(index?)?)))
}

fn percent(value: i64, total: i64) -> String {
    let share = if total == 0 {
        0.0
    } else {
        100.0 * value as f64 / total as f64
    };
    match share.abs() {
        0.0 => "    0%".to_owned(),
        share if share >= 99.995 => "  100%".to_owned(),
        _ => format!("{share:>5.2}%"),
    }
}

/// The unit for all values of a table.
struct Scale {
    divisor: f64,
    suffix: &'static str,
}

const NANOSECONDS: [(i64, &str); 5] = [
    (1, "ns"),
    (1_000, "us"),
    (1_000_000, "ms"),
    (1_000_000_000, "s"),
    (60_000_000_000, "mins"),
];
const BYTES: [(i64, &str); 4] = [(1, "B"), (1 << 10, "kB"), (1 << 20, "MB"), (1 << 30, "GB")];

impl Scale {
    /// As in pprof, the smallest value decides. It counts a hundredfold if it alone prevents a
    /// larger unit.
    fn of(rows: &[TopRow], unit: &str) -> Self {
        let units: &[(i64, &str)] = match unit {
            "nanoseconds" => &NANOSECONDS,
            "bytes" => &BYTES,
            _ => &[(1, "")],
        };
        let fitting = |value: i64| {
            units
                .iter()
                .rev()
                .find(|(size, _)| value >= *size)
                .or(units.first())
                .copied()
                .unwrap_or((1, ""))
        };
        let shown = || {
            rows.iter()
                .flat_map(|row| [row.flat, row.cum])
                .map(i64::saturating_abs)
                .filter(|value| *value > 0)
        };
        let (smallest, largest) = (shown().min().unwrap_or(0), shown().max().unwrap_or(0));
        let hundredfold = smallest.saturating_mul(100);
        let (size, suffix) = fitting(if hundredfold < largest {
            hundredfold
        } else {
            smallest
        });
        Scale {
            divisor: size as f64,
            suffix,
        }
    }

    fn text(&self, value: i64) -> String {
        if value == 0 {
            return "0".to_owned();
        }
        let number = format!("{:.2}", value as f64 / self.divisor);
        let number = number.trim_end_matches('0').trim_end_matches('.');
        format!("{number}{}", self.suffix)
    }
}
