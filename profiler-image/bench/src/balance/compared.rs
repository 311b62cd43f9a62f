//! Compares the shares that a profiler found in a program with the true ones: pure.

use std::collections::{BTreeMap, BTreeSet};

use super::chance::{Chance, chance, deviation, independent, quantile};
use super::profile::{Share, ShareProfile};
use super::program::ProgramFunction;

/// The ends of the classes of functions by what a call takes, in nanoseconds.
pub const CLASS_ENDS: [f64; 5] = [100.0, 300.0, 1000.0, 3000.0, 10_000.0];
pub const CLASSES: usize = CLASS_ENDS.len() + 1;
/// Functions with a smaller share, in percent, are only counted.
pub const COMPARED_FROM: f64 = 1.0;

/// A function of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedFunction {
    pub name: String,
    pub kind: &'static str,
    /// Nanoseconds that a call takes with its callees.
    pub taken: Option<f64>,
    /// The same by the program's clock, when the call is repeated alone.
    pub alone: Option<f64>,
    pub truth: Share,
    pub ours: Share,
    /// Standard deviations of the differences.
    pub spread: Share,
}

/// A program, or another target.
#[derive(Debug, Clone)]
pub struct Comparison {
    pub label: String,
    pub stops: u64,
    pub samples: u64,
    /// How many independent samples one stands for.
    pub worth: f64,
    pub functions: Vec<ComparedFunction>,
    pub chance: Chance,
}

impl Comparison {
    /// `round` is what a round takes, in nanoseconds.
    pub fn of(
        label: String,
        truth: &ShareProfile,
        ours: &ShareProfile,
        worth: f64,
        known: &BTreeMap<String, ProgramFunction>,
        round: f64,
    ) -> Self {
        let [true_shares, our_shares] = [truth, ours].map(ShareProfile::shares);
        let [stops, samples] = [truth.count(), ours.count()];
        let told = independent(samples, worth);
        let names: BTreeSet<&str> = true_shares
            .keys()
            .chain(our_shares.keys())
            .copied()
            .collect();
        let function = |&name: &&str| {
            let share =
                |shares: &BTreeMap<&str, Share>| shares.get(name).copied().unwrap_or_default();
            let (truth, ours) = (share(&true_shares), share(&our_shares));
            let known = known.get(name);
            let calls = known.and_then(|known| known.calls);
            ComparedFunction {
                name: name.to_owned(),
                kind: known.map_or("unknown", |known| known.kind),
                taken: calls.map(|calls| truth.total / 100.0 * round / calls.max(1) as f64),
                alone: None,
                truth,
                ours,
                spread: Share {
                    own: deviation((truth.own + ours.own) / 2.0, stops, told),
                    total: deviation((truth.total + ours.total) / 2.0, stops, told),
                },
            }
        };
        let functions: Vec<ComparedFunction> = names.iter().map(function).collect();
        let counted: Vec<&str> = functions
            .iter()
            .filter(|function| function.is_counted())
            .map(|function| function.name.as_str())
            .collect();
        Self {
            chance: chance(truth, ours, worth, &counted, 1),
            label,
            stops,
            samples,
            worth,
            functions,
        }
    }

    /// The total variation distance of the self shares, in percentage points.
    pub fn distance(&self) -> f64 {
        let differences = self
            .functions
            .iter()
            .map(|one| (one.ours.own - one.truth.own).abs());
        differences.sum::<f64>() / 2.0
    }

    /// The distance that chance alone makes: the middle, and the bound of 99 %.
    pub fn distance_by_chance(&self) -> [f64; 2] {
        [0.5, 0.99].map(|part| quantile(&self.chance.distances, part))
    }

    /// True and sampled self shares by class of duration. `[unstable]` and what the program does
    /// not have are in none.
    pub fn classes(&self) -> [[f64; 2]; CLASSES] {
        let mut classes = [[0.0; 2]; CLASSES];
        for function in self
            .functions
            .iter()
            .filter(|function| function.kind != "unknown")
        {
            let class = class(function.taken);
            classes[class][0] += function.truth.own;
            classes[class][1] += function.ours.own;
        }
        classes
    }
}

impl ComparedFunction {
    /// Whether its share is large enough to be compared.
    pub fn is_counted(&self) -> bool {
        self.truth.total.max(self.ours.total) >= COMPARED_FROM
    }

    /// How many percentage points a share is beyond what it may be off, and beyond what chance does
    /// with so many deviations; the worse of self and total.
    pub fn beyond(&self, deviations: f64) -> f64 {
        let beyond = |of: fn(&Share) -> f64| {
            let [truth, ours, spread] = [&self.truth, &self.ours, &self.spread].map(of);
            if truth.max(ours) < COMPARED_FROM {
                return f64::NEG_INFINITY;
            }
            (ours - truth).abs() - (0.1 * truth).max(0.3) - deviations * spread
        };
        beyond(|share| share.own).max(beyond(|share| share.total))
    }
}

/// The class of a function by what a call takes; what does not end is in the last one.
pub fn class(taken: Option<f64>) -> usize {
    taken.map_or(CLASSES - 1, |taken| {
        CLASS_ENDS.iter().filter(|&&end| taken >= end).count()
    })
}

/// The slope of our self shares on the true ones, through the origin.
pub fn slope<'all>(functions: impl Iterator<Item = &'all ComparedFunction>) -> f64 {
    let (mut product, mut square) = (0.0, 0.0);
    for function in functions {
        product += function.ours.own * function.truth.own;
        square += function.truth.own.powi(2);
    }
    product / f64::max(square, f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stacks: &[(&str, u64)]) -> ShareProfile {
        let mut profile = ShareProfile::default();
        for &(leaf, count) in stacks {
            profile.add(
                vec!["{main}".to_owned(), leaf.to_owned()],
                count,
                count as f64,
            );
        }
        profile
    }

    fn comparison() -> Comparison {
        let known = |calls| ProgramFunction {
            kind: "function",
            calls: Some(calls),
        };
        let known =
            [("f", known(1)), ("g", known(500))].map(|(name, known)| (name.to_owned(), known));
        let truth = profile(&[("f", 5000), ("g", 5000)]);
        let ours = profile(&[("f", 7000), ("g", 2500), ("[unstable]", 500)]);
        Comparison::of("p".to_owned(), &truth, &ours, 1.0, &known.into(), 100_000.0)
    }

    #[test]
    fn shares_are_compared_by_function_and_class() {
        let comparison = comparison();
        assert!((comparison.distance() - 25.0).abs() < 1e-9);
        // A call of f takes 50 µs, one of g 100 ns.
        let classes = comparison.classes();
        assert_eq!(classes[1], [50.0, 25.0]);
        assert_eq!(classes[5], [50.0, 70.0]);
        let slope = slope(comparison.functions.iter());
        assert!((slope - 0.95).abs() < 1e-9, "{slope}");
    }

    #[test]
    fn only_what_is_beyond_chance_breaks() {
        let functions = comparison().functions;
        let g = functions
            .iter()
            .find(|function| function.name == "g")
            .unwrap();
        // 25 points off, 5 allowed, a deviation of 0.68.
        let beyond = g.beyond(4.0);
        assert!(
            (beyond - (20.0 - 4.0 * g.spread.own)).abs() < 1e-9 && beyond > 16.0,
            "{beyond}"
        );
        let main = functions
            .iter()
            .find(|function| function.name == "{main}")
            .unwrap();
        assert!(main.beyond(4.0) < 0.0);
    }

    #[test]
    fn classes_end_where_they_say() {
        let check = |taken, expected| assert_eq!(class(taken), expected, "{taken:?}");
        check(Some(99.0), 0);
        check(Some(100.0), 1);
        check(Some(2999.0), 3);
        check(Some(20_000.0), 5);
        check(None, 5);
    }
}
