//! How late turns were: counts in classes that grow by a quarter, so a percentile is accurate to a
//! quarter.

/// Four classes for each doubling: up to 2^40 ns, about 18 minutes.
const CLASSES: usize = 160;

/// Lateness of turns, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lateness([u64; CLASSES]);

impl Default for Lateness {
    fn default() -> Self {
        Self([0; CLASSES])
    }
}

impl Lateness {
    /// Counts a turn.
    pub fn add(&mut self, nanoseconds: u64) {
        self.0[class(nanoseconds)] += 1;
    }

    /// The lateness that this share of the turns, from 0 to 1, did not exceed; nanoseconds.
    #[must_use]
    pub fn percentile(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.0.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end(class);
            }
        }
        end(CLASSES - 1)
    }
}

/// The class: the doubling, and its quarter.
fn class(nanoseconds: u64) -> usize {
    let doubling = nanoseconds.max(4).ilog2();
    let quarter = (nanoseconds.max(4) >> (doubling - 2)) & 3;
    (doubling as usize * 4 + quarter as usize).min(CLASSES - 1)
}

/// The first value beyond a class.
fn end(class: usize) -> u64 {
    let (doubling, quarter) = (class / 4, class as u64 % 4);
    (5 + quarter) << doubling.saturating_sub(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percentile_is_right_to_a_quarter() {
        let mut lateness = Lateness::default();
        (0..1000).for_each(|number| lateness.add(number * 1000));
        let p50 = lateness.percentile(0.5);
        assert!((500_000..=625_000).contains(&p50), "{p50}");
        let p99 = lateness.percentile(0.99);
        assert!((990_000..=1_238_000).contains(&p99), "{p99}");
    }

    proptest! {
        #[test]
        fn value_is_a_quarter_below_at_most(value in 4_u64..1 << 39) {
            let end = end(class(value));
            prop_assert!(value < end && end <= value + value / 4 + 1);
        }
    }
}
