//! The truth: stacks of the process when it is stopped at random times.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::unistd::Pid;

use super::draws::Draws;
use super::profile::ShareProfile;
use crate::sampled::short;
use crate::stopped::{ScheduleCounts, StoppedStack, Stopper};

/// The pauses between stops, in nanoseconds of the process's CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPauses {
    /// Never shorter than this: what follows a stop is slower, because caches have other contents
    /// then; code that runs once in a round has to run once.
    least: u64,
    /// An exponential time, with this mean, after that.
    mean: u64,
    /// Of wall time instead: the process waits for files, too.
    is_wall: bool,
}

impl StopPauses {
    /// For a program whose round takes so many nanoseconds.
    pub fn of_round(round: f64) -> Self {
        let round = (round as u64).clamp(300_000, 1_000_000);
        Self {
            least: round,
            mean: round,
            is_wall: false,
        }
    }

    /// For an application, whose requests take milliseconds.
    pub const OF_REQUESTS: Self = Self {
        least: 300_000,
        mean: 500_000,
        is_wall: true,
    };

    fn draw(self, draws: &mut Draws) -> u64 {
        self.least + draws.pause(self.mean as f64) as u64
    }
}

/// A process that gets no CPU is stopped so often in vain.
const MAX_VAIN: u64 = 100;
/// One of so many stops may be within the engine's way into a generator, where the stack does not
/// hold together.
const NOT_WHOLE: u64 = 50;

/// Stops a process so often, at times of this seed. Times of its CPU are better where it never
/// waits for anything else: while it waits for a CPU, it would be seen at one place again and
/// again.
pub fn stops(
    pid: Pid,
    count: u64,
    pauses: StopPauses,
    seed: u64,
    is_short: bool,
) -> Result<ShareProfile> {
    let mut draws = Draws::new(seed);
    let mut stopper = Stopper::of(pid)?;
    let mut profile = ShareProfile::default();
    let (mut whole, mut not_whole, mut vain) = (0, 0, 0);
    while whole + not_whole < count {
        let pause = Duration::from_nanos(pauses.draw(&mut draws));
        let stack = if pauses.is_wall {
            std::thread::sleep(pause);
            stopper.stack()?
        } else {
            stopper.stack_after(pause)?
        };
        match stack {
            StoppedStack::Names(mut names) => {
                if is_short {
                    names = names.iter().map(|name| short(name)).collect();
                }
                profile.add(names, 1, 1.0);
                whole += 1;
            }
            StoppedStack::Torn => not_whole += 1,
            StoppedStack::Moved => vain += 1,
        }
        ensure!(vain < MAX_VAIN * count, "the target gets no CPU");
    }
    ensure!(
        not_whole <= count / NOT_WHOLE,
        "{not_whole} of {count} stopped stacks do not hold together"
    );
    Ok(profile)
}

/// How much less samples of a process tell that has waited for a CPU meanwhile: as many independent
/// ones say as much as one of these. All samples of one wait are of one stack.
pub fn worth_of_a_sample(begin: ScheduleCounts, end: ScheduleCounts, samples: u64) -> f64 {
    let all = samples as f64;
    let ran = end.ran.saturating_sub(begin.ran) as f64;
    let waited = end.waited.saturating_sub(begin.waited) as f64;
    let waits = end.arrivals.saturating_sub(begin.arrivals) as f64;
    let in_waits = all * waited / (ran + waited).max(1.0);
    // The lengths of waits as of an exponential distribution: the mean square is twice the square.
    let squares = 2.0 * in_waits * in_waits / waits.max(1.0);
    all / (all - in_waits + squares.max(in_waits)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_wait_are_one() {
        let counts = |ran, waited, arrivals| ScheduleCounts {
            ran,
            waited,
            arrivals,
        };
        let worth = |end| worth_of_a_sample(counts(0, 0, 0), end, 1000);
        assert!((worth(counts(1_000_000, 0, 3)) - 1.0).abs() < 1e-9);
        // Half of the samples are in 50 waits of ten samples: 500 + 2 * 50 * 100.
        let half = worth(counts(1_000_000, 1_000_000, 50));
        assert!((half - 1000.0 / 10_500.0).abs() < 1e-9, "{half}");
        // Waits that are shorter than a sample's turn.
        assert!((worth(counts(1_000_000, 1_000_000, 50_000)) - 1.0).abs() < 1e-9);
    }
}
