//! Which of many differences are more than chance (Benjamini-Hochberg), and the fewest that explain
//! most of them.
//!
//! Invariant: among differences that are all by chance, the probability of any selected one is at
//! most the level (Y. Benjamini and Y. Hochberg, *Controlling the False Discovery Rate*, 1995).

/// The part of the significant change that the named functions explain.
const EXPLAINED: f64 = 0.8;

/// The indexes of the p-values that are significant at this level, in their order.
pub(super) fn significant(p_values: &[f64], level: f64) -> Vec<usize> {
    let limit = limit(p_values, level);
    let all = p_values.iter().enumerate();
    let chosen = all.filter(|(_, p)| limit.is_some_and(|limit| **p <= limit));
    chosen.map(|(index, _)| index).collect()
}

/// The largest p-value that is significant; `None` if none is.
pub(super) fn limit(p_values: &[f64], level: f64) -> Option<f64> {
    let mut sorted = p_values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let ranked = (1..).map(f64::from).zip(sorted);
    let passing = ranked.filter(|(rank, p)| *p <= level * rank / count);
    passing.last().map(|(_, p)| p)
}

/// The largest changes, largest first, until they have four fifths of the sum of all: indexes.
pub(super) fn fewest(changes: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..changes.len()).collect();
    let size = |index: &usize| changes.get(*index).copied().unwrap_or(0.0).abs();
    order.sort_by(|one, other| size(other).total_cmp(&size(one)));
    let all: f64 = order.iter().map(size).sum();
    let mut sum = 0.0;
    let mut chosen = Vec::new();
    for index in order {
        if sum >= EXPLAINED * all {
            break;
        }
        sum += size(&index);
        chosen.push(index);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_ranks_p_values_against_level() {
        // The example of the paper's section 3.2: 15 tests, the first four are significant.
        let all = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        assert_eq!(significant(&all, 0.05), [0, 1, 2, 3]);
        assert_eq!(significant(&[0.3, 0.9], 0.05), [0; 0]);
        assert_eq!(significant(&[], 0.05), [0; 0]);
    }

    #[test]
    fn fewest_stop_at_four_fifths() {
        assert_eq!(fewest(&[1.0, -70.0, 15.0, 14.0]), [1, 2]);
        assert_eq!(fewest(&[]), [0; 0]);
    }
}
