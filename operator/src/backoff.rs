//! How long to wait before a retry: one rule for the API server, the store and the services that
//! get results.
//!
//! Invariant: a pause is at least half a second and at most half a minute, grows with the tries,
//! and differs from one operator to the next.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};

const FIRST: Duration = Duration::from_millis(500);
/// Jitter at most doubles it.
const LONGEST: Duration = Duration::from_secs(15);
/// Failed tries that count. More of them give the longest pause.
const COUNTED: u32 = 6;

/// The pause after this many failed tries, at least one.
#[must_use]
pub fn pause(tries: u32) -> Duration {
    let mut pauses = ExponentialBuilder::new()
        .with_min_delay(FIRST)
        .with_max_delay(LONGEST)
        .without_max_times()
        .with_jitter()
        .build();
    let nth = tries.saturating_sub(1).min(COUNTED);
    pauses.nth(nth as usize).unwrap_or(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_differ() {
        let seconds = |tries| pause(tries).as_secs_f64();
        for _ in 0..50 {
            assert!((0.5..=1.0).contains(&seconds(1)), "{}", seconds(1));
            assert!((4.0..=8.0).contains(&seconds(4)));
            assert!((15.0..=30.0).contains(&seconds(100)));
        }
        assert!((0..50).any(|_| pause(1) != pause(1)));
    }
}
