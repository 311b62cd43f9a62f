//! Compares two profiles: which functions have a larger or a smaller share than before.
//!
//! It does not draw: [`crate::svg`] and [`crate::page`] do.
//!
//! Invariant: functions are the same if name and file are equal, after [`name_alike`]. Start lines
//! do not count, because they move with every edit above them.

use std::collections::BTreeMap;

use crate::noise::{self, Errors, NoisePart, NoiseScale};
use crate::proto::Profile;
use crate::same_names::name_alike;
use crate::stacks::{View, ViewError};
use crate::text::Amount;
use crate::top::{TopRow, top, total};
use crate::top_levels::plain;

/// A function in both profiles. Values are 0 if a profile does not have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionChange {
    /// The function's name.
    pub name: String,
    /// The file of its declaration.
    pub file: String,
    /// Its flat value, in the unit of the sample type. The next three have the same unit.
    pub flat_before: i64,
    /// The same in the later profile.
    pub flat_after: i64,
    /// Its cumulative value.
    pub cum_before: i64,
    /// The same in the later profile.
    pub cum_after: i64,
    /// Squared errors of the flat values, before and after.
    errors: [f64; 2],
}

/// The changes from one profile to another, in one sample type.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// The compared sample type.
    pub sample_type: String,
    /// The unit of its values.
    pub unit: String,
    /// The total of all samples in the view.
    pub total_before: i64,
    /// The same in the later profile.
    pub total_after: i64,
    /// The largest change of the flat share comes first.
    pub changes: Vec<FunctionChange>,
    /// Squared errors of the totals, before and after.
    errors: [f64; 2],
}

/// Compares the samples in the view.
///
/// # Errors
/// A [`ViewError`] if one of the profiles has no such sample type.
pub fn diff(before: &Profile, after: &Profile, view: &View) -> Result<Diff, ViewError> {
    let chosen = view.index(after)?;
    let (name, unit) = after.sample_types().nth(chosen).unwrap_or_default();
    let same = view.of_same_type(after)?;
    same.index(before)?;
    let (mut before, mut after_kept) = (same.filtered(before), same.filtered(after));
    name_alike(&mut before, &mut after_kept);
    let mut changes: BTreeMap<(String, String), FunctionChange> = BTreeMap::new();
    let mut entry = |row: TopRow, set: fn(&mut FunctionChange, &TopRow)| {
        let change = changes
            .entry((plain(&row.name, &row.file).into_owned(), row.file.clone()))
            .or_insert_with(|| FunctionChange {
                name: row.name.clone(),
                file: row.file.clone(),
                ..FunctionChange::default()
            });
        set(change, &row);
    };
    for row in top(&before, name) {
        entry(row, |change, row| {
            (change.flat_before, change.cum_before) = (row.flat, row.cum);
        });
    }
    for row in top(&after_kept, name) {
        entry(row, |change, row| {
            (change.flat_after, change.cum_after) = (row.flat, row.cum);
        });
    }
    let [before_errors, after_errors] =
        [&before, &after_kept].map(|profile| Errors::of(profile, name));
    for ((function, file), change) in &mut changes {
        change.errors = [&before_errors, &after_errors].map(|errors| errors.flat(function, file));
    }
    let mut diff = Diff {
        errors: [before_errors.all, after_errors.all],
        sample_type: name.to_owned(),
        unit: unit.to_owned(),
        total_before: total(&before, name),
        total_after: total(&after_kept, name),
        changes: changes.into_values().collect(),
    };
    diff.sort();
    Ok(diff)
}

impl Diff {
    /// By how many percentage points the function's flat share has grown; negative if it shrank.
    pub fn flat_points(&self, change: &FunctionChange) -> f64 {
        self.points(change.flat_before, change.flat_after)
    }

    /// The difference of the flat share that chance can cause, in percentage points: three standard
    /// errors.
    pub fn flat_noise(&self, change: &FunctionChange) -> f64 {
        self.noise(change, self.errors.map(Some))
    }

    /// The same for fixed totals, such as those of a number of requests.
    pub fn flat_noise_of_fixed(&self, change: &FunctionChange) -> f64 {
        self.noise(change, [None; 2])
    }

    fn noise(&self, change: &FunctionChange, [all_before, all_after]: [Option<f64>; 2]) -> f64 {
        let [error_before, error_after] = change.errors;
        let before = NoisePart {
            value: change.flat_before,
            total: self.total_before,
            error: error_before,
            error_of_all: all_before,
        };
        let after = NoisePart {
            value: change.flat_after,
            total: self.total_after,
            error: error_after,
            error_of_all: all_after,
        };
        noise::points(before, after, NoiseScale::BY_SAMPLES)
    }

    /// The same for the cumulative share.
    pub fn cum_points(&self, change: &FunctionChange) -> f64 {
        self.points(change.cum_before, change.cum_after)
    }

    /// A value's share of the total, in percent.
    pub fn share_before(&self, value: i64) -> f64 {
        share(value, self.total_before)
    }

    /// The same of the later profile.
    pub fn share_after(&self, value: i64) -> f64 {
        share(value, self.total_after)
    }

    /// The unit in which both totals are shown.
    pub fn amount(&self) -> Amount {
        Amount::of(&self.unit, self.total_before.max(self.total_after))
    }

    fn points(&self, before: i64, after: i64) -> f64 {
        self.share_after(after) - self.share_before(before)
    }

    fn sort(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        let size = |change: &FunctionChange| {
            (
                self.flat_points(change).abs(),
                self.cum_points(change).abs(),
            )
        };
        changes.sort_by(|one, other| {
            let ((flat, cum), (other_flat, other_cum)) = (size(one), size(other));
            other_flat
                .total_cmp(&flat)
                .then(other_cum.total_cmp(&cum))
                .then_with(|| (&one.name, &one.file).cmp(&(&other.name, &other.file)))
        });
        self.changes = changes;
    }
}

/// In percent.
fn share(value: i64, total: i64) -> f64 {
    if total == 0 {
        0.0
    } else {
        100.0 * value as f64 / total as f64
    }
}
