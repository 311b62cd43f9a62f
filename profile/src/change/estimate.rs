//! How far a difference may be from the truth: the jackknife over clusters.
//!
//! A mean per request is a ratio: time by requests, for each route, and then weighted. The
//! jackknife computes it again without each cluster in turn. How much these means differ gives the
//! error of the whole, however alike the samples and requests of a cluster are (B. Efron, *The
//! Jackknife, the Bootstrap and Other Resampling Plans*, 1982, chapter 3). The difference of two
//! sides has Student's t with Satterthwaite's degrees of freedom.
//!
//! Invariant: with fewer than two clusters on a side the error is not known, and its p-value is 1.

use statrs::distribution::{ContinuousCDF, FisherSnedecor, StudentsT};

/// A mean of one side, and how it varies.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClusterMean {
    /// The mean of all clusters.
    pub mean: f64,
    /// By how much each cluster moves it: the mean without it, less the mean of all such means.
    pub moves: Vec<f64>,
}

impl ClusterMean {
    /// Of the means without each cluster in turn.
    pub fn of(mean: f64, mut without: Vec<f64>) -> Self {
        let count = without.len() as f64;
        let middle = without.iter().sum::<f64>() / count.max(1.0);
        without.iter_mut().for_each(|it| *it -= middle);
        Self {
            mean,
            moves: without,
        }
    }

    /// The squared error of the mean.
    pub fn variance(&self) -> f64 {
        let count = self.moves.len() as f64;
        let squares: f64 = self.moves.iter().map(|it| it * it).sum();
        squares * (count - 1.0) / count.max(1.0)
    }

    /// The sum of two values of the same clusters.
    pub fn add(&mut self, other: &Self) {
        self.mean += other.mean;
        for (own, more) in self.moves.iter_mut().zip(&other.moves) {
            *own += more;
        }
    }
}

/// The change of a value, with what is known of its error. The unit is that of the value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ChangeEstimate {
    /// The value before.
    pub before: f64,
    /// The value after.
    pub after: f64,
    /// The standard error of the difference; infinite if it is not known.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl ChangeEstimate {
    pub(super) fn of(before: &ClusterMean, after: &ClusterMean) -> Self {
        let [first, second] = [before, after].map(ClusterMean::variance);
        let [few, many] = [before, after].map(|side| side.moves.len() as f64 - 1.0);
        let sum = first + second;
        let known = few >= 1.0 && many >= 1.0;
        let freedom = if sum > 0.0 {
            sum * sum / (first * first / few.max(1.0) + second * second / many.max(1.0))
        } else {
            few + many
        };
        Self {
            before: before.mean,
            after: after.mean,
            error: if known { sum.sqrt() } else { f64::INFINITY },
            freedom: freedom.max(1.0),
        }
    }

    /// Of values that are not known.
    pub(super) fn unknown() -> Self {
        Self {
            error: f64::INFINITY,
            freedom: 1.0,
            ..Self::default()
        }
    }

    /// After less before.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// The difference in percent of the value before; 0 if that is 0.
    #[must_use]
    pub fn percent(&self) -> f64 {
        percent(self.difference(), self.before)
    }

    /// The probability of a difference of at least this size, in either direction, by chance.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        let difference = self.difference().abs();
        if !self.error.is_finite() || difference == 0.0 {
            return 1.0;
        }
        if self.error == 0.0 {
            return 0.0;
        }
        let tail = student(self.freedom).map(|it| it.sf(difference / self.error));
        tail.map_or(1.0, |tail| (2.0 * tail).min(1.0))
    }

    /// Half of the width of the interval that has the true difference with this probability.
    #[must_use]
    pub fn margin(&self, confidence: f64) -> f64 {
        self.error * quantile(self.freedom, 0.5 + confidence / 2.0)
    }

    /// The interval that has the true difference with a probability of 95 %.
    #[must_use]
    pub fn interval(&self) -> [f64; 2] {
        let margin = self.margin(0.95);
        [self.difference() - margin, self.difference() + margin]
    }

    /// The smallest true difference that a test at this level finds in four of five cases.
    #[must_use]
    pub fn smallest_seen(&self, level: f64) -> f64 {
        let found = quantile(self.freedom, 1.0 - level / 2.0);
        self.error * (found + quantile(self.freedom, 0.8))
    }
}

/// A part in percent of a whole; 0 if the whole is not positive.
pub(super) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    }
}

/// Whether pods differ from each other by more than their clusters do: the p-value of Fisher's F.
/// `moves` of a side, with the pod of each cluster.
pub(super) fn pods_alike(side: &ClusterMean, pods: &[u32]) -> f64 {
    let mut sums: std::collections::BTreeMap<u32, (f64, f64)> = std::collections::BTreeMap::new();
    for (pod, moved) in pods.iter().zip(&side.moves) {
        let (sum, count) = sums.entry(*pod).or_default();
        *sum += moved;
        *count += 1.0;
    }
    let (groups, clusters) = (sums.len() as f64, side.moves.len() as f64);
    if groups < 2.0 || clusters <= groups {
        return 1.0;
    }
    let squares: f64 = side.moves.iter().map(|it| it * it).sum();
    let between: f64 = sums.values().map(|(sum, count)| sum * sum / count).sum();
    let within = (squares - between).max(0.0) / (clusters - groups);
    if within == 0.0 {
        return 1.0;
    }
    let ratio = between / (groups - 1.0) / within;
    let tail = FisherSnedecor::new(groups - 1.0, clusters - groups);
    tail.map_or(1.0, |it| it.sf(ratio))
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).ok()
}

/// The value below which Student's t is with this probability.
fn quantile(freedom: f64, probability: f64) -> f64 {
    student(freedom).map_or(f64::INFINITY, |it| it.inverse_cdf(probability))
}
