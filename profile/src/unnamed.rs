//! Whether too much of a profile has no name, why, and where that is explained: pure, for the
//! sampler, the operator and the page.
//!
//! Invariant: nothing is said of a few samples, which every program has.

/// Above this share, a profile says so.
const MOST: f64 = 0.1;
/// Fewer samples tell nothing.
const LEAST_SAMPLES: i64 = 20;
/// The section that says what to do.
pub const DOCUMENT: &str =
    "docs/guides/troubleshooting.md#the-profile-is-there-and-much-of-it-is-unstable";

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All samples that are not idle.
    pub samples: i64,
    /// Those that end in `[unstable]`.
    pub unstable: i64,
    /// The part of these below which a name could not be checked.
    pub unnamed: i64,
    /// How often opcache has restarted.
    pub restarts: u64,
}

impl Counts {
    /// Both together, as of two pods.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Counts {
            samples: self.samples.saturating_add(other.samples),
            unstable: self.unstable.saturating_add(other.unstable),
            unnamed: self.unnamed.saturating_add(other.unnamed),
            restarts: self.restarts.saturating_add(other.restarts),
        }
    }

    /// Why samples have no name: what most of them lack.
    #[must_use]
    pub fn cause(&self) -> &'static str {
        match self {
            it if it.unnamed > it.unstable / 2 => "names that could not be checked",
            it if it.restarts > 0 => "calls without proof, and opcache has restarted",
            _ => "calls without proof",
        }
    }

    /// The share of samples without a name, if that is more than a tenth.
    #[must_use]
    pub fn too_many(&self) -> Option<f64> {
        let share = self.unstable as f64 / self.samples.max(1) as f64;
        (self.samples >= LEAST_SAMPLES && share > MOST).then_some(share.min(1.0))
    }

    /// The rest of a sentence about these samples.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("could not be named: {}; {DOCUMENT}", self.cause())
    }

    /// What to say of a profile of which more than a tenth has no name; `None` for another.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let (share, sentence) = (self.too_many()?, self.sentence());
        let percent = (100.0 * share).round();
        Some(format!("{percent} % of the samples {sentence}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(samples: i64, unstable: i64, unnamed: i64, restarts: u64) -> Option<String> {
        let counts = Counts {
            samples,
            unstable,
            unnamed,
            restarts,
        };
        counts.told()
    }

    #[test]
    fn told_names_share_cause_and_document() {
        let check = |told: Option<String>, expected: &str| {
            let expected = format!("{expected}; {DOCUMENT}");
            assert_eq!(told.as_deref(), Some(expected.as_str()));
        };
        check(
            told(1000, 1000, 990, 0),
            "100 % of the samples could not be named: names that could not be checked",
        );
        check(
            told(1000, 230, 115, 2),
            "23 % of the samples could not be named: calls without proof, and opcache has restarted",
        );
        check(
            told(1000, 101, 0, 0),
            "10 % of the samples could not be named: calls without proof",
        );
    }

    #[test]
    fn told_ignores_small_shares_and_few_samples() {
        for (samples, unstable) in [(1000, 100), (0, 0), (19, 19), (20, 2), (-1, 5)] {
            assert_eq!(told(samples, unstable, unstable, 1), None, "{samples}");
        }
        assert!(told(20, 3, 0, 0).is_some());
    }

    #[test]
    fn and_adds_up() {
        let one = Counts {
            samples: 30,
            unstable: 20,
            unnamed: 10,
            restarts: 1,
        };
        let both = one.and(Counts {
            samples: i64::MAX,
            ..one
        });
        let sums = (both.samples, both.unstable, both.unnamed, both.restarts);
        assert_eq!(sums, (i64::MAX, 40, 20, 2));
    }

    #[test]
    fn the_document_has_the_section() {
        let text = include_str!("../../docs/guides/troubleshooting.md");
        assert!(text.contains("\n## The profile is there, and much of it is `[unstable]`\n"));
    }
}
