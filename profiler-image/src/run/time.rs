//! The clocks of a run, in nanoseconds.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use nix::sys::time::{TimeSpec, TimeValLike};
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

use crate::target::process::calls::cpu_time;

pub(super) const SECOND: u64 = 1_000_000_000;

/// What a run knows of time. A test gives its runs a clock of its own, whose time passes as the
/// test says.
pub(super) trait Clock {
    /// Nanoseconds of the monotonic clock.
    fn now(&self) -> u64;

    /// Unix time in nanoseconds; 0 if it is not known.
    fn unix_nanoseconds(&self) -> i64;

    /// The CPU time of this process, in nanoseconds.
    fn own_cpu(&self) -> u64;

    /// Sleeps until this time of the monotonic clock, or until a signal.
    fn sleep_until(&self, at: u64);
}

/// The kernel's clocks.
#[derive(Debug)]
pub(super) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        clock(ClockId::CLOCK_MONOTONIC)
    }

    fn unix_nanoseconds(&self) -> i64 {
        let time = clock_gettime(ClockId::CLOCK_REALTIME);
        time.map_or(0, |time| time.num_nanoseconds())
    }

    fn own_cpu(&self) -> u64 {
        own_cpu()
    }

    fn sleep_until(&self, at: u64) {
        let time = TimeSpec::nanoseconds(i64::try_from(at).unwrap_or(i64::MAX));
        // A signal ends the sleep early; the loop checks the time and the signals anyway.
        let _ = clock_nanosleep(
            ClockId::CLOCK_MONOTONIC,
            ClockNanosleepFlags::TIMER_ABSTIME,
            &time,
        );
    }
}

/// Unix time in seconds.
pub(super) fn unix_now() -> f64 {
    clock(ClockId::CLOCK_REALTIME) as f64 / SECOND as f64
}

/// The CPU time of this process, in nanoseconds.
#[must_use]
pub fn own_cpu() -> u64 {
    nanoseconds(cpu_time(ClockId::CLOCK_PROCESS_CPUTIME_ID))
}

fn clock(id: ClockId) -> u64 {
    nanoseconds(clock_gettime(id).ok())
}

fn nanoseconds(time: Option<TimeSpec>) -> u64 {
    time.and_then(|time| u64::try_from(time.num_nanoseconds()).ok())
        .unwrap_or(0)
}

/// A number that differs from one sampler to the next.
#[must_use]
pub fn seed() -> u32 {
    // The keys of the standard library's hash tables are random.
    (RandomState::new().build_hasher().finish() >> 32) as u32
}
