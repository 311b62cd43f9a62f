//! How much the shares of two profiles can differ by chance.
//!
//! The rule is that of `assets/page/noise.js`: some standard errors. The sample type `samples`
//! gives the number of samples in a value, and a count varies by its square root (Poisson). That
//! ignores that the samples of one request are alike: three such errors are a bound by samples
//! alone. Where the cells of both runs are known ([`crate::change`]), they say how many it takes.
//!
//! Invariant: a profile that does not count its samples has no errors, so none of its differences
//! is attributed to chance.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::lookup::Lookup;
use crate::proto::{Profile, Sample};
use crate::top::values;
use crate::top_levels::plain;

/// How many standard errors by samples a difference by chance may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseScale(f64);

impl NoiseScale {
    /// By samples alone.
    pub const BY_SAMPLES: Self = Self(3.0);

    /// From cells: this many, but at least as many as by samples alone.
    #[must_use]
    pub fn by_cells(errors: f64) -> Self {
        Self(errors.clamp(Self::BY_SAMPLES.0, 100.0))
    }

    /// Their number.
    #[must_use]
    pub fn errors(self) -> f64 {
        self.0
    }
}

/// The squared errors of a profile's values in one sample type, in the square of its unit.
pub(crate) struct Errors<'a> {
    /// The error of each function's flat value, by name and file.
    flat: HashMap<(Cow<'a, str>, &'a str), f64>,
    /// The error of the total.
    pub(crate) all: f64,
}

impl<'a> Errors<'a> {
    pub(crate) fn of(profile: &'a Profile, sample_type: &'a str) -> Self {
        let lookup = Lookup::new(profile);
        let count = profile.value_index("samples");
        let mut errors = Errors {
            flat: HashMap::new(),
            all: 0.0,
        };
        for (sample, value) in values(profile, sample_type) {
            let error = squared_error(sample, value, count);
            errors.all += error;
            if let Some(leaf) = lookup.frames(sample).next() {
                *errors
                    .flat
                    .entry((plain(leaf.name, leaf.file), leaf.file))
                    .or_default() += error;
            }
        }
        errors
    }

    pub(crate) fn flat(&self, name: &str, file: &str) -> f64 {
        self.flat
            .get(&(Cow::Borrowed(name), file))
            .copied()
            .unwrap_or(0.0)
    }
}

/// The squared error of one value of a sample. `count` is the index of the number of samples, if
/// the profile counts them.
pub(crate) fn squared_error(sample: &Sample, value: i64, count: Option<usize>) -> f64 {
    let count = count.and_then(|index| sample.value.get(index));
    // If each value stands for one sample, the squared error is the sum of the squared values.
    count.map_or(0.0, |count| (value as f64).powi(2) / (*count).max(1) as f64)
}

/// A value with its squared error, and the total of its share.
#[derive(Clone, Copy)]
pub(crate) struct NoisePart {
    pub(crate) value: i64,
    pub(crate) total: i64,
    pub(crate) error: f64,
    /// The error of the total. If the total is fixed, only the value's error counts.
    pub(crate) error_of_all: Option<f64>,
}

impl NoisePart {
    /// The squared error of the share. The value and the rest of the total vary independently.
    fn variance(self) -> f64 {
        if self.total <= 0 {
            return 0.0;
        }
        let total = self.total as f64;
        let part = self.value as f64 / total;
        let squared = match self.error_of_all {
            None => self.error,
            Some(all) => {
                self.error * (1.0 - part).powi(2) + (all - self.error).max(0.0) * part.powi(2)
            }
        };
        squared / total.powi(2)
    }
}

/// By how many percentage points two shares can differ by chance.
pub(crate) fn points(before: NoisePart, after: NoisePart, scale: NoiseScale) -> f64 {
    100.0 * scale.errors() * (before.variance() + after.variance()).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(value: i64, total: i64, error_of_all: Option<f64>) -> NoisePart {
        NoisePart {
            value,
            total,
            error: value as f64,
            error_of_all,
        }
    }

    #[test]
    fn a_share_varies_like_one_in_a_poll() {
        // For a share of 50 % of 100 samples, sqrt(p (1 - p) / n) is 5 points.
        let half = part(50, 100, Some(100.0));
        assert!((points(half, half, NoiseScale::BY_SAMPLES) - 3.0 * 50.0_f64.sqrt()).abs() < 1e-9);
        let none = part(0, 0, Some(0.0));
        assert_eq!(points(none, none, NoiseScale::BY_SAMPLES), 0.0);
    }

    #[test]
    fn under_a_constant_total_the_value_varies_alone() {
        let (half, none) = (part(50, 100, None), part(0, 100, None));
        assert!((points(half, none, NoiseScale::BY_SAMPLES) - 3.0 * 50.0_f64.sqrt()).abs() < 1e-9);
    }
}
