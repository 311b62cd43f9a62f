//! Whether counted samples agree with a share that the target's own log states: by a binomial
//! bound, so that the number of samples decides how much chance may do, and nothing else.

use anyhow::{Result, ensure};

/// Beyond so many standard deviations is one run of a million by chance.
const DEVIATIONS: f64 = 5.0;

/// How far a counted share may be from the true one, by chance: `DEVIATIONS` of the binomial
/// distribution, and one sample, because a share of few samples is not continuous.
#[must_use]
pub fn bound(share: f64, samples: f64) -> f64 {
    let deviation = (share * (1.0 - share) / samples).max(0.0).sqrt();
    DEVIATIONS * deviation + 1.0 / samples
}

/// Checks that `part` of all `samples` is the `share` in the log, from 0 to 1. Nobody knows what
/// the turns would have shown that were missed: their share of all is `missed`.
///
/// # Errors
/// That it is another one, with both.
pub fn check(name: &str, part: f64, samples: f64, share: f64, missed: f64) -> Result<()> {
    ensure!(samples > 0.0, "there are no samples of {name} or others");
    let (found, most) = (part / samples, bound(share, samples) + missed);
    ensure!(
        (found - share).abs() <= most,
        "{name} has {found:.3} of {samples} samples, and {share:.3} ± {most:.3} of the time"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_falls_with_the_root_of_the_samples() {
        let [few, many] = [100.0, 10_000.0].map(|samples| bound(0.5, samples));
        assert!((few - 0.26).abs() < 1e-9 && (many - 0.0251).abs() < 1e-9);
    }

    #[test]
    fn bound_of_a_certain_share_is_one_sample() {
        for share in [0.0, 1.0] {
            assert!((bound(share, 400.0) - 1.0 / 400.0).abs() < 1e-12);
        }
    }

    /// Of a thousand drawn runs none is beyond it, and a wrong share of ten points is.
    #[test]
    fn check_holds_for_chance_alone() {
        let (mut state, samples) = (1_u64, 1000);
        let mut draw = || {
            // Numerical Recipes' LCG; the upper bits are good.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1_u32 << 31)
        };
        for _ in 0..1_000 {
            let part = (0..samples).filter(|_| draw() < 0.3).count() as f64;
            assert!(check("a", part, f64::from(samples), 0.3, 0.0).is_ok());
            assert!(check("a", part, f64::from(samples), 0.45, 0.0).is_err());
        }
    }

    #[test]
    fn check_allows_what_missed_turns_may_have_been() {
        assert!(check("a", 500.0, 1000.0, 0.7, 0.0).is_err());
        assert!(check("a", 500.0, 1000.0, 0.7, 0.2).is_ok());
        assert!(check("a", 0.0, 0.0, 0.5, 1.0).is_err());
    }
}
