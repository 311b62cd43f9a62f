//! Shares of functions, true and sampled: pure.

/// The difference that chance explains in a short run, in standard deviations.
const CHANCE: f64 = 4.0;

/// The share of one function's time, with its callees.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionShare {
    pub name: String,
    /// Before the samples, and after them.
    pub true_percents: [f64; 2],
    pub sampled_percent: f64,
}

impl FunctionShare {
    /// The true share while the samples were taken: a machine that changes its speed steadily does
    /// not change it.
    fn true_percent(&self) -> f64 {
        self.true_percents.iter().sum::<f64>() / 2.0
    }

    /// The difference, in percentage points.
    pub fn off(&self) -> f64 {
        (self.sampled_percent - self.true_percent()).abs()
    }
}

/// How a row was measured, as far as the limits depend on it.
#[derive(Debug, Clone, Copy)]
pub struct ShareConditions {
    pub snapshots: usize,
    pub samples: i64,
    /// The largest difference of a sampled share, in percentage points.
    pub tolerance: f64,
    /// There are enough of both for the tolerance alone.
    pub full: bool,
}

/// The limits that shares break, in words; none if they hold.
pub fn broken(how: ShareConditions, shares: &[FunctionShare]) -> Vec<String> {
    let words = |share: &FunctionShare| {
        let FunctionShare {
            name,
            true_percents: [before, after],
            sampled_percent,
        } = share;
        format!(
            "{name} {sampled_percent:.2} % of the sampled time, {before:.2} and {after:.2} % of the true before and after"
        )
    };
    let mut broken: Vec<String> = shares
        .iter()
        .filter(|share| {
            share.off()
                > how.tolerance
                    + if how.full {
                        0.0
                    } else {
                        CHANCE * deviation(how, share)
                    }
        })
        .map(words)
        .collect();
    // A program that hardly runs the function proves nothing.
    if let Some(share) = shares.iter().find(|share| share.true_percent() < 1.0) {
        broken.push(format!("too little to be seen: {}", words(share)));
    }
    broken
}

/// The standard deviation of the difference, in percentage points.
fn deviation(how: ShareConditions, share: &FunctionShare) -> f64 {
    let part = share.true_percent() / 100.0;
    let once = |count: f64| 1.0 / count.max(1.0);
    100.0 * (part * (1.0 - part) * (once(how.snapshots as f64) + once(how.samples as f64))).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(full: bool, true_percent: f64, sampled_percent: f64) -> usize {
        let how = ShareConditions {
            snapshots: 2500,
            samples: 2500,
            tolerance: 1.0,
            full,
        };
        let share = FunctionShare {
            name: "f".to_owned(),
            true_percents: [1.5 * true_percent, 0.5 * true_percent],
            sampled_percent,
        };
        broken(how, &[share]).len()
    }

    #[test]
    fn a_share_that_is_off_is_seen() {
        assert_eq!(faults(true, 10.0, 10.9), 0);
        assert_eq!(faults(true, 10.0, 8.9), 1);
        assert_eq!(faults(true, 10.0, 11.1), 1);
    }

    #[test]
    fn short_run_may_be_off_by_chance() {
        // The deviation is 0.85 points.
        assert_eq!(faults(false, 10.0, 14.3), 0);
        assert_eq!(faults(false, 10.0, 14.5), 1);
    }

    #[test]
    fn what_does_not_run_is_no_truth() {
        assert_eq!(faults(true, 0.0, 0.0), 1);
    }
}
