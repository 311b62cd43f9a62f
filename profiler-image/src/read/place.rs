//! Where a worker is when a thread has come to its CPU, and what it did until then.
//!
//! Invariant: a worker whose CPU is not known stands nowhere.

use std::fs::File;

use nix::sys::time::TimeValLike as _;
use nix::time::{ClockId, clock_gettime};

use super::clocks::SchedStat;
use super::on_cpu::Activity;
use crate::target::process::calls;
use crate::target::process::stat::{Watch, counts_since, numbers};

/// A thread is on its CPU at most so long before it has asked for the time, in nanoseconds.
const SLACK: u64 = 3_000;

/// Where a worker is that does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// It is ready to run, on the CPU that this thread has.
    Displaced,
    /// It sleeps.
    Asleep,
}

/// The CPU that the reading thread has to itself while it is awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnCpu {
    /// Its number.
    pub number: usize,
    /// The CPU time of the thread when it came there for this turn, in nanoseconds.
    pub used: u64,
}

/// What is known of where a worker is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownPlace {
    /// The CPU on which it was last seen.
    pub cpu: Option<usize>,
    displaced: Option<Displaced>,
    /// How long it has waited for threads that read it, in nanoseconds.
    pub gave_way: u64,
    /// It has run since it was last displaced, without a sleep or a wait.
    pub is_steady: bool,
}

/// When a worker was last displaced from its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Displaced {
    /// Its numbers then.
    numbers: SchedStat,
    /// Nanoseconds of the monotonic clock.
    at: u64,
    /// By which thread.
    by: OwnCpu,
    /// How many more samples may take its CPU for granted.
    left: u32,
}

/// After this many samples a worker's CPU is asked for.
const TRUSTED: u32 = 16;
/// Of the time since it was displaced, a worker that has run all the time may lack this part, and
/// this many nanoseconds, beside what the reader has taken: interrupts.
const PART_LOST: u64 = 512;
const MOST_LOST: u64 = 16_000;

impl Displaced {
    /// Whether it has come back to a CPU once and run since, by its numbers now: all the time that
    /// the thread that displaced it has left.
    fn has_run_since(&self, numbers: SchedStat, now: u64, own: OwnCpu) -> bool {
        let Some(stayed) = self.stayed(own) else {
            return false;
        };
        let ran = numbers
            .run_nanoseconds
            .saturating_sub(self.numbers.run_nanoseconds);
        let time = now.saturating_sub(self.at);
        let lost = time.saturating_sub(ran).saturating_sub(stayed);
        self.numbers.slices + 1 == numbers.slices && lost <= time / PART_LOST + MOST_LOST
    }

    /// How long the thread that displaced it then had the CPU; `None` if it is another than now.
    fn stayed(&self, own: OwnCpu) -> Option<u64> {
        let is_same = own.number == self.by.number;
        is_same.then(|| own.used.saturating_sub(self.by.used))
    }

    /// How long it has waited for the thread that displaced it: as long as that stayed, and at most
    /// as long as the kernel says that it waited.
    fn gave_way(&self, numbers: SchedStat, own: OwnCpu) -> u64 {
        let delay = self.numbers.delay_nanoseconds;
        let waited = numbers.delay_nanoseconds.saturating_sub(delay);
        self.stayed(own).unwrap_or(0).min(waited)
    }
}

impl KnownPlace {
    /// Where the worker is, by its numbers now; `None` if it may run. `state` asks for its state
    /// and CPU.
    ///
    /// A worker that was put on a CPU once since it was displaced is on the one that it was
    /// displaced from, unless another CPU has taken it over meanwhile, which is rare: it has some
    /// microseconds for that.
    pub fn find(
        &mut self,
        own: OwnCpu,
        numbers: SchedStat,
        now: u64,
        state: impl FnOnce() -> Option<(char, usize)>,
    ) -> Option<Stands> {
        if numbers.slices == 0 {
            return None;
        }
        let before = self.displaced.take();
        self.gave_way += before.map_or(0, |before| before.gave_way(numbers, own));
        self.is_steady = before.is_some_and(|before| before.has_run_since(numbers, now, own));
        if let Some(before) = before.filter(|before| self.is_steady && before.left > 0) {
            self.displaced = Some(Displaced {
                numbers,
                at: now,
                by: own,
                left: before.left - 1,
            });
            return Some(Stands::Displaced);
        }
        let (state, cpu) = state()?;
        self.cpu = Some(cpu);
        match state {
            'S' | 'D' | 'T' | 't' => Some(Stands::Asleep),
            _ if cpu == own.number => {
                self.displaced = Some(Displaced {
                    numbers,
                    at: now,
                    by: own,
                    left: TRUSTED,
                });
                Some(Stands::Displaced)
            }
            _ => None,
        }
    }
}

/// Whether a worker was on the CPU when this thread came there, by when the kernel last began to
/// count the CPU time of both, in nanoseconds of one clock. This thread has stayed so long.
///
/// The kernel begins to count when a thread comes to a CPU, and again at its ticks and when it
/// leaves (`update_curr`, kernel/sched/fair.c). If it has switched from the worker to this thread,
/// both have the same time. If the worker slept or waited, it left its CPU before.
#[must_use]
pub fn was_on_cpu(worker: u64, own: u64, stayed: u64) -> bool {
    worker >= own.saturating_sub(stayed.saturating_add(SLACK))
}

/// What a worker did that was read on its own CPU.
#[must_use]
pub fn activity_here(stands: Stands, is_steady: bool, was_on_cpu: Option<bool>) -> Activity {
    match (stands, was_on_cpu) {
        (Stands::Asleep, _) => Activity::Slept,
        (Stands::Displaced, _) if is_steady => Activity::Ran,
        (Stands::Displaced, Some(true)) => Activity::Ran,
        (Stands::Displaced, Some(false)) => Activity::Queued { displaced: false },
        (Stands::Displaced, None) => Activity::Runnable,
    }
}

/// What the kernel counts of a reading thread.
#[derive(Debug)]
pub struct OwnTimes {
    schedstat: Option<File>,
    sched: Option<File>,
    /// How long it had waited for a CPU when it last came to one, in nanoseconds.
    waited: u64,
}

/// A thread's numbers when it has come to its CPU for a turn, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuArrival {
    /// Its CPU time so far.
    pub used: u64,
    /// How long it has waited for that CPU since it came before.
    pub waited: u64,
}

impl OwnTimes {
    /// Of the thread that calls.
    #[must_use]
    pub fn open() -> Self {
        let open = |name: &str| calls::open(format!("/proc/thread-self/{name}")).ok();
        Self {
            schedstat: open("schedstat"),
            sched: open("sched"),
            waited: 0,
        }
    }

    /// Notes that the thread has come to its CPU for a turn. The kernel counts both numbers at that
    /// moment (`sched_info_arrive`, kernel/sched/stats.h; `update_curr`, kernel/sched/fair.c).
    pub fn come(&mut self) -> CpuArrival {
        let [used, waited, _] = self
            .schedstat
            .as_ref()
            .and_then(numbers)
            .unwrap_or_default();
        let before = std::mem::replace(&mut self.waited, waited);
        CpuArrival {
            used,
            waited: waited.saturating_sub(before),
        }
    }

    /// Whether a worker was on this thread's CPU when the thread came there, at that time; `None`
    /// if the kernel does not tell.
    pub fn was_on_cpu(&self, worker: &Watch, came_at: u64) -> Option<bool> {
        let own = counts_since(self.sched.as_ref()?)?;
        let stayed = now().saturating_sub(came_at);
        Some(was_on_cpu(worker.counts_since()?, own, stayed))
    }
}

/// Nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| time.num_nanoseconds());
    u64::try_from(time).unwrap_or(0)
}

#[cfg(test)]
mod tests;
