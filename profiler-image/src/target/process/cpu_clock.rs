//! The CPU clock of a process: it moves if and only if one of its threads runs.
//!
//! A read takes a quarter of a microsecond and no file, also for another user's process
//! (`posix_cpu_clock_get`, kernel/time/posix-cpu-timers.c). The kernel has no such clock for
//! threads of other processes. Invariant: two equal times mean that nothing in the process has run
//! in between; another process with the same PID does not have the time of the earlier one.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;

use super::calls;

/// The clock of a process, by its PID.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock(ClockId);

impl CpuClock {
    /// The clock, if the kernel has one.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        clock_getcpuclockid(Pid::from_raw(pid)).ok().map(Self)
    }

    /// The CPU time of all threads; `None` once the process has ended.
    #[must_use]
    pub fn now(self) -> Option<TimeSpec> {
        calls::cpu_time(self.0)
    }
}
