//! Whether a worker ran while its heap was read, by the kernel's counts of switches.
//!
//! A thread is on a CPU if and only if it was put on one once more often than it has left one
//! (`read/on_cpu.rs`). Invariant: a worker stayed off its CPU only if it was off before, and the
//! kernel has put it on none since.

use crate::read::departures::Departures;
use crate::target::process::stat::Watch;
use crate::target::process::{bytes, proc_path};

/// A worker that was on no CPU.
pub struct OffCpu {
    watch: Watch,
    /// How often it had been put on one.
    slices: u64,
}

impl OffCpu {
    /// A worker that is on no CPU now; `None` if it is, or the kernel does not say.
    pub fn begin(pid: i32, tid: i32) -> Option<Self> {
        let watch = Watch::open(pid, tid)?;
        let before = watch.timeslices()?;
        let status = bytes(proc_path(format_args!("{pid}/task/{tid}/status")).as_str())?;
        let departures = Departures::parse(&status)?;
        let slices = watch.timeslices()?;
        is_off(before, departures, slices).then_some(Self { watch, slices })
    }

    /// Whether it has not been put on a CPU since.
    pub fn stayed(&self) -> bool {
        self.watch.timeslices() == Some(self.slices)
    }
}

/// By its arrivals before and after its departures were counted.
fn is_off(before: u64, departures: Departures, after: u64) -> bool {
    before == after && departures.all() == after
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use phpprof_testing::Running;

    use super::*;

    #[test]
    fn is_off_after_as_many_departures_as_arrivals() {
        let departures = Departures {
            voluntary: 4,
            involuntary: 1,
        };
        assert!(is_off(5, departures, 5));
        assert!(!is_off(6, departures, 6));
        assert!(!is_off(5, departures, 6));
        assert!(!is_off(4, departures, 4));
    }

    #[test]
    fn sleeper_stays_off_and_busy_process_does_not() {
        let sleeper = Running::start(Command::new("sleep").arg("60")).unwrap();
        let mut busy = Command::new("sh");
        let busy = Running::start(busy.args(["-c", "while :; do :; done"])).unwrap();
        let pids = [&sleeper, &busy].map(Running::pid);
        std::thread::sleep(Duration::from_millis(200));
        let off = OffCpu::begin(pids[0], pids[0]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(off.stayed());
        let off = OffCpu::begin(pids[1], pids[1]);
        // It may wait for a CPU at first.
        std::thread::sleep(Duration::from_millis(500));
        assert!(off.is_none_or(|off| !off.stayed()));
    }
}
