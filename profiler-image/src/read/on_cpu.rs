//! Decides whether a worker was on a CPU when it was read: pure.
//!
//! The kernel counts how often a thread was put on a CPU (`schedstat`, third number) and how often
//! it was taken off (`status`, voluntary and involuntary switches). It counts both while it holds
//! the CPU's run queue, so the thread is on a CPU if and only if the first is the second plus one
//! (`__schedule`, kernel/sched/core.c; `sched_info_arrive`, kernel/sched/stats.h). Both begin at 0
//! with the thread (`copy_process`, kernel/fork.c).
//!
//! Invariant: [`Presence::On`] and [`Presence::Off`] hold for the whole time of the stack's read.

use super::clocks::SchedStat;
use super::departures::Departures;

/// Nanoseconds for which waits are watched after each nanosecond of a wait.
const WATCHED_PER_WAIT: u64 = 128;
/// The longest time for which they are watched after the last wait, in nanoseconds.
const MOST_WATCHED: u64 = 8_000_000_000;
/// How long waits of a worker are watched that has just been found, in nanoseconds.
const WATCHED_AT_FIRST: u64 = 200_000_000;

/// The counts around a read of a worker's stack, in the order in which they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountsOfRead {
    /// Before the stack.
    pub before: SchedStat,
    /// After the stack.
    pub after: SchedStat,
    /// After that.
    pub departures: Departures,
    /// After the departures.
    pub last: SchedStat,
}

/// Whether a worker was on a CPU while its stack was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// For the whole time.
    On,
    /// It slept, or waited for a CPU, for the whole time.
    Off,
    /// It was put on a CPU or taken off one meanwhile.
    Changed,
    /// The counts do not belong together: this kernel counts in another way.
    Uncounted,
}

impl CountsOfRead {
    /// Decides from the counts. The clock moves whenever the thread leaves its CPU (`put_prev_task`
    /// and `dequeue_task` update it).
    #[must_use]
    pub fn presence(&self) -> Presence {
        let Self {
            before,
            after,
            departures,
            last,
        } = self;
        let left = departures.all();
        if left > last.slices || left.saturating_add(1) < before.slices {
            return Presence::Uncounted;
        }
        if before.slices != after.slices {
            return Presence::Changed;
        }
        // It was put on a CPU `slices` times by the time of the stack, and had not left that often.
        if left < after.slices {
            return Presence::On;
        }
        // It had left by then, which would have moved its clock.
        if before.run_nanoseconds == last.run_nanoseconds {
            return Presence::Off;
        }
        // If it ran after the stack was read and was not put on a CPU again, it left after that.
        let left_later = after.run_nanoseconds != last.run_nanoseconds;
        if after.slices == last.slices && left_later {
            Presence::On
        } else {
            Presence::Changed
        }
    }
}

/// What a worker did in a sample, as far as its CPU time is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It was on a CPU.
    Ran,
    /// It did not sleep. Nothing tells whether it was on a CPU.
    Runnable,
    /// It came to a CPU or left it while it was read.
    Changed,
    /// It waited for a CPU.
    Queued {
        /// For the one on which the sampler runs now, and it has run since the sample before: the
        /// sampler may have displaced it.
        displaced: bool,
    },
    /// It slept.
    Slept,
}

/// How often the counts of switches did not prove whether a worker was on a CPU, where it had
/// waited for one lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuProofs {
    /// Samples in which it came to a CPU or left it while it was read.
    pub changed: u64,
    /// Samples without such counts: the kernel has none, or they do not belong together.
    pub uncounted: u64,
}

/// Whether a worker has waited for a CPU lately: only then is a read of its departures worth its
/// price. The answer does not depend on the stack.
#[derive(Debug, Clone, Copy)]
pub struct Contention {
    last: Option<(u64, u64)>,
    /// For how many more nanoseconds waits are watched.
    left: u64,
}

impl Default for Contention {
    fn default() -> Self {
        Self {
            last: None,
            left: WATCHED_AT_FIRST,
        }
    }
}

impl Contention {
    /// Takes the scheduler's numbers at a time, in nanoseconds.
    pub fn add(&mut self, now: u64, look: SchedStat) {
        let numbers = (now, look.delay_nanoseconds);
        let (before, delay) = self.last.replace(numbers).unwrap_or(numbers);
        let waited = look.delay_nanoseconds.saturating_sub(delay);
        let more = waited.saturating_mul(WATCHED_PER_WAIT);
        let left = self.left.saturating_sub(now.saturating_sub(before));
        self.left = left.saturating_add(more).min(MOST_WATCHED);
    }

    /// Whether to watch the worker in its next sample.
    #[must_use]
    pub fn is_likely(&self) -> bool {
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(numbers: [u64; 2]) -> SchedStat {
        let [slices, run_nanoseconds] = numbers;
        SchedStat {
            run_nanoseconds,
            delay_nanoseconds: 0,
            slices,
        }
    }

    fn departures(voluntary: u64, involuntary: u64) -> Departures {
        Departures {
            voluntary,
            involuntary,
        }
    }

    #[test]
    fn presence_is_proven_by_counts() {
        // Slices and clock before and after the stack, departures, slices and clock at the end.
        let rows = [
            ("on all the time", (5, 9), (5, 9), 4, (5, 9), Presence::On),
            ("a tick", (5, 9), (5, 12), 4, (5, 14), Presence::On),
            (
                "first slice of a thread",
                (1, 0),
                (1, 0),
                0,
                (1, 0),
                Presence::On,
            ),
            (
                "leaves after its departures are read",
                (5, 9),
                (5, 9),
                4,
                (5, 10),
                Presence::On,
            ),
            (
                "comes back after that",
                (5, 9),
                (5, 9),
                4,
                (6, 10),
                Presence::On,
            ),
            (
                "leaves after the stack",
                (5, 9),
                (5, 9),
                5,
                (5, 10),
                Presence::On,
            ),
            (
                "leaves, and comes back later",
                (5, 9),
                (5, 9),
                5,
                (6, 10),
                Presence::Changed,
            ),
            ("off all the time", (5, 9), (5, 9), 5, (5, 9), Presence::Off),
            (
                "leaves during the stack",
                (5, 9),
                (5, 10),
                5,
                (5, 10),
                Presence::Changed,
            ),
            (
                "comes during the stack",
                (4, 9),
                (5, 9),
                4,
                (5, 9),
                Presence::Changed,
            ),
            (
                "comes, and leaves",
                (4, 9),
                (5, 9),
                5,
                (5, 10),
                Presence::Changed,
            ),
            (
                "leaves, and comes",
                (4, 9),
                (5, 10),
                4,
                (5, 10),
                Presence::Changed,
            ),
            (
                "leaves twice",
                (4, 9),
                (5, 10),
                6,
                (6, 11),
                Presence::Changed,
            ),
            (
                "comes after its departures are read",
                (5, 9),
                (5, 9),
                5,
                (6, 9),
                Presence::Off,
            ),
            (
                "more departures than arrivals",
                (5, 9),
                (5, 9),
                6,
                (5, 9),
                Presence::Uncounted,
            ),
            (
                "fewer departures by two",
                (5, 9),
                (5, 9),
                3,
                (5, 9),
                Presence::Uncounted,
            ),
            ("no slices", (0, 9), (0, 9), 5, (0, 9), Presence::Uncounted),
        ];
        for (case, before, after, left, last, expected) in rows {
            for departures in [departures(0, left), departures(left, 0)] {
                let counts = CountsOfRead {
                    before: look([before.0, before.1]),
                    after: look([after.0, after.1]),
                    departures,
                    last: look([last.0, last.1]),
                };
                assert_eq!(counts.presence(), expected, "{case}");
            }
        }
    }

    #[test]
    fn waits_are_watched_as_long_as_they_matter() {
        let waited = |delay_nanoseconds| SchedStat {
            run_nanoseconds: 0,
            delay_nanoseconds,
            slices: 1,
        };
        let mut contention = Contention::default();
        contention.add(0, waited(7));
        assert!(contention.is_likely());
        contention.add(WATCHED_AT_FIRST, waited(7));
        assert!(!contention.is_likely());
        contention.add(WATCHED_AT_FIRST + 1, waited(17));
        contention.add(WATCHED_AT_FIRST + 1280, waited(17));
        assert!(contention.is_likely());
        contention.add(WATCHED_AT_FIRST + 1281, waited(17));
        assert!(!contention.is_likely());
        contention.add(WATCHED_AT_FIRST + 1282, waited(u64::MAX));
        contention.add(WATCHED_AT_FIRST + 1282 + MOST_WATCHED, waited(u64::MAX));
        assert!(!contention.is_likely());
    }
}
