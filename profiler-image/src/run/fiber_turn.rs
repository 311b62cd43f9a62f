//! When a worker's fibers are visited, and for which time a visit stands: pure.
//!
//! Invariant: the visits of a worker stand for all of its time up to the last one, once.

use super::time::SECOND;

/// The shortest time between two visits of a worker, and by how much more it varies at random.
const LEAST_PAUSE: u64 = SECOND / 2;
const MORE_PAUSE: u64 = SECOND;
/// When a worker's fibers are visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FiberTurn {
    /// The next visit.
    pub due: u64,
    /// The time that the visits represent ends here.
    pub since: u64,
}

impl FiberTurn {
    /// That of a worker that was just found.
    pub fn new(now: u64) -> Self {
        Self {
            due: now,
            since: now,
        }
    }

    /// Plans the visit after the one now. `random` is any number.
    pub fn plan(&mut self, now: u64, random: u32) {
        let more = (u64::from(random) * MORE_PAUSE) >> 32;
        self.due = now + LEAST_PAUSE + more;
    }

    /// Notes that what is suspended now is known; returns the time that it represents.
    pub fn take(&mut self, now: u64) -> u64 {
        let since = std::mem::replace(&mut self.since, now);
        now.saturating_sub(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_stand_for_the_time_between_them() {
        let mut turn = FiberTurn::new(5 * SECOND);
        let (mut now, mut represented) = (5 * SECOND, 0);
        for random in [0, u32::MAX, 7, 1 << 31] {
            assert!(turn.due <= now);
            represented += turn.take(now);
            turn.plan(now, random);
            let pause = turn.due - now;
            assert!((LEAST_PAUSE..=LEAST_PAUSE + MORE_PAUSE).contains(&pause));
            now = turn.due + SECOND / 7;
        }
        represented += turn.take(now);
        assert_eq!(represented, now - 5 * SECOND);
    }
}
