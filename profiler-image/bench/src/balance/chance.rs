//! What chance alone changes in shares: pure.
//!
//! Stops and samples are drawn again from themselves, each stack's count by Poisson's distribution;
//! the greatest deviation of any function, in standard deviations, gives the bound that holds for
//! all functions of a table at once.

use std::collections::BTreeMap;

use super::draws::Draws;
use super::profile::ShareProfile;

/// How often a table is drawn again.
pub const REPLICATES: usize = 1000;
/// Above this mean Poisson's distribution is as good as a normal one.
const LARGE_MEAN: f64 = 30.0;

/// A profile whose functions have numbers.
struct Numbered {
    /// The functions of each stack, the leaf first, each once; count, and the weight of one.
    stacks: Vec<(Vec<usize>, f64, f64)>,
}

/// What was found by drawing again.
#[derive(Debug, Clone, PartialEq)]
pub struct Chance {
    /// The greatest deviation of any function in each replicate, in its standard deviations.
    pub greatest: Vec<f64>,
    /// The distance in percentage points that chance alone makes, in each replicate, ascending.
    pub distances: Vec<f64>,
}

/// The standard deviation of the difference of two shares, in percentage points.
pub fn deviation(percent: f64, stops: u64, samples: u64) -> f64 {
    let part = (percent / 100.0).clamp(0.0, 1.0);
    let once = |count: u64| 1.0 / count.max(1) as f64;
    100.0 * (part * (1.0 - part) * (once(stops) + once(samples))).sqrt()
}

/// Draws truth and samples again. `counted` are the functions that are compared; `worth` is how
/// many independent samples one stands for.
pub fn chance(
    truth: &ShareProfile,
    ours: &ShareProfile,
    worth: f64,
    counted: &[&str],
    seed: u64,
) -> Chance {
    let mut draws = Draws::new(seed);
    let numbers: BTreeMap<&str, usize> = counted
        .iter()
        .enumerate()
        .map(|(number, &name)| (name, number))
        .collect();
    let both = [truth, ours].map(|profile| Numbered::of(profile, &numbers));
    let none = vec![[0.0; 2]; counted.len() + 1];
    let found = both.each_ref().map(|one| one.shares(&none, |count| count));
    let [stops, samples] = [truth.count(), independent(ours.count(), worth)];
    let mut greatest = Vec::new();
    for _ in 0..REPLICATES {
        let [truth, ours] = &both;
        let again = [
            truth.shares(&none, |count| draws.poisson(count)),
            ours.shares(&none, |count| draws.poisson(count * worth) / worth),
        ];
        let mut most: f64 = 0.0;
        for number in 0..counted.len() {
            for which in 0..2 {
                let of = |shares: &[Vec<[f64; 2]>; 2]| {
                    shares[1][number][which] - shares[0][number][which]
                };
                let middle = (found[0][number][which] + found[1][number][which]) / 2.0;
                let spread = deviation(middle, stops, samples);
                // A share of 0 or 100 % does not change by chance.
                if spread > 1e-6 {
                    most = most.max((of(&again) - of(&found)).abs() / spread);
                }
            }
        }
        greatest.push(most);
    }
    Chance {
        greatest,
        distances: distances(truth, samples, &mut draws),
    }
}

/// How many independent samples there are.
pub fn independent(samples: u64, worth: f64) -> u64 {
    (samples as f64 * worth) as u64
}

/// The distances between two profiles that are both drawn from the truth.
fn distances(truth: &ShareProfile, samples: u64, draws: &mut Draws) -> Vec<f64> {
    let leaves: Vec<f64> = truth
        .shares()
        .values()
        .map(|share| share.own / 100.0)
        .collect();
    let drawn = |draws: &mut Draws, count: u64| {
        let counts: Vec<f64> = leaves
            .iter()
            .map(|part| draws.poisson(part * count as f64))
            .collect();
        let all: f64 = counts.iter().sum::<f64>().max(1.0);
        counts
            .into_iter()
            .map(|count| count / all)
            .collect::<Vec<_>>()
    };
    let mut distances: Vec<f64> = (0..REPLICATES)
        .map(|_| {
            let (one, other) = (drawn(draws, truth.count()), drawn(draws, samples));
            50.0 * one
                .iter()
                .zip(&other)
                .map(|(one, other)| (one - other).abs())
                .sum::<f64>()
        })
        .collect();
    distances.sort_by(f64::total_cmp);
    distances
}

/// The value that this part of them does not exceed; 0 of none.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = (part * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

impl Numbered {
    fn of(profile: &ShareProfile, numbers: &BTreeMap<&str, usize>) -> Self {
        let number = |name: &String| numbers.get(name.as_str()).copied().unwrap_or(numbers.len());
        let stack = |(names, seen): (&Vec<String>, &super::profile::SeenShares)| {
            let mut functions: Vec<usize> = Vec::new();
            for name in names.iter().rev() {
                let number = number(name);
                // The functions that are not compared have one number, and no share.
                if functions.is_empty() || !functions.contains(&number) {
                    functions.push(number);
                }
            }
            (
                functions,
                seen.count as f64,
                seen.weight / seen.count.max(1) as f64,
            )
        };
        Self {
            stacks: profile.stacks.iter().map(stack).collect(),
        }
    }

    /// Own and total shares by number, with counts by this function.
    fn shares(&self, none: &[[f64; 2]], mut count: impl FnMut(f64) -> f64) -> Vec<[f64; 2]> {
        let mut shares = none.to_vec();
        let mut all = 0.0;
        for (functions, mean, weight) in &self.stacks {
            let weight = count(*mean) * weight;
            all += weight;
            for (above, &number) in functions.iter().enumerate() {
                shares[number][1] += weight;
                if above == 0 {
                    shares[number][0] += weight;
                }
            }
        }
        for share in shares.iter_mut().flatten() {
            *share *= 100.0 / f64::max(all, f64::MIN_POSITIVE);
        }
        shares
    }
}

impl Draws {
    /// A count with this mean.
    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > LARGE_MEAN {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let end = (-mean).exp();
        let (mut count, mut product) = (0.0, self.fraction());
        while product > end {
            count += 1.0;
            product *= self.fraction();
        }
        count
    }

    /// A number of the standard normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let radius = self.pause(2.0).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(counts: [u64; 3]) -> ShareProfile {
        let mut profile = ShareProfile::default();
        for (name, count) in ["f", "g", "h"].into_iter().zip(counts) {
            profile.add(
                vec!["{main}".to_owned(), name.to_owned()],
                count,
                7.0 * count as f64,
            );
        }
        profile
    }

    #[test]
    fn the_greatest_of_three_is_within_four_deviations() {
        let truth = profile([7000, 2500, 500]);
        let chance = chance(
            &truth,
            &profile([6900, 2600, 500]),
            1.0,
            &["f", "g", "h"],
            1,
        );
        let bound = quantile(&chance.greatest, 0.99);
        // 2.58 for one function, 2.94 for three independent ones.
        assert!((2.5..3.5).contains(&bound), "{bound}");
        // A half of the summed mean differences of three binomial pairs.
        let middle = quantile(&chance.distances, 0.5);
        assert!((0.2..0.8).contains(&middle), "{middle}");
    }

    #[test]
    fn counts_have_poissons_mean_and_variance() {
        let mut draws = Draws::new(3);
        for mean in [0.5, 8.0, 400.0] {
            let counts: Vec<f64> = (0..20_000).map(|_| draws.poisson(mean)).collect();
            let average = counts.iter().sum::<f64>() / 20_000.0;
            let variance = counts
                .iter()
                .map(|count| (count - average).powi(2))
                .sum::<f64>()
                / 20_000.0;
            assert!((average / mean - 1.0).abs() < 0.05, "{average}");
            assert!((variance / mean - 1.0).abs() < 0.08, "{variance}");
        }
    }

    #[test]
    fn deviation_is_of_both_counts() {
        assert!((deviation(50.0, 10_000, 10_000) - 0.5_f64.sqrt()).abs() < 1e-3);
        assert!(deviation(0.0, 10, 10).abs() < 1e-12);
    }
}
