//! A worker's CPU clock, as far as it can be seen from another process.

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::run::aggregate::StackId;
use crate::target::process::Process;
use crate::target::process::stat::Watch;

/// Samples that may wait for the CPU clock to move.
const MAX_PENDING: usize = 4096;

/// A worker's CPU clock. It moves at the kernel's ticks and when the worker stops running, so its advance is shared
/// by all samples since it last moved.
#[derive(Debug)]
pub struct CpuClock {
    source: Option<CpuSource>,
    last: Option<i64>,
    pending: Vec<Option<StackId>>,
}

/// The kernel has clocks for other processes, but none for their threads.
#[derive(Debug)]
enum CpuSource {
    Process(ClockId),
    Thread(Watch),
}

impl CpuClock {
    pub fn of(process: &Process) -> Self {
        let source = if process.engine.is_thread_safe() {
            Watch::open(process.pid, process.tid).map(CpuSource::Thread)
        } else {
            let clock = clock_getcpuclockid(Pid::from_raw(process.pid));
            clock.ok().map(CpuSource::Process)
        };
        let mut cpu = Self {
            source,
            last: None,
            pending: Vec::new(),
        };
        cpu.last = cpu.now();
        cpu
    }

    fn now(&self) -> Option<i64> {
        match self.source.as_ref()? {
            CpuSource::Process(clock) => Some(clock_gettime(*clock).ok()?.num_nanoseconds()),
            CpuSource::Thread(watch) => watch.cpu_nanoseconds(),
        }
    }

    pub fn note(&mut self, stack: Option<StackId>) {
        if self.pending.len() < MAX_PENDING {
            self.pending.push(stack);
        }
    }

    pub fn advance(&mut self) -> Vec<(StackId, i64)> {
        let (Some(now), Some(last)) = (self.now(), self.last) else {
            return Vec::new();
        };
        if now <= last {
            return Vec::new();
        }
        self.last = Some(now);
        share(now - last, std::mem::take(&mut self.pending))
    }
}

/// Shares nanoseconds among the samples; the remainder goes to the first, so that the sum is right. Time spent while
/// only idleness was seen belongs to no stack.
fn share(nanoseconds: i64, pending: Vec<Option<StackId>>) -> Vec<(StackId, i64)> {
    let busy: Vec<StackId> = pending.into_iter().flatten().collect();
    let Ok(count) = i64::try_from(busy.len()) else {
        return Vec::new();
    };
    if count == 0 {
        return Vec::new();
    }
    let (each, rest) = (nanoseconds / count, nanoseconds % count);
    busy.into_iter()
        .enumerate()
        .map(|(index, stack)| (stack, each + if index == 0 { rest } else { 0 }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::aggregate::Aggregate;
    use crate::stack::trace::Stack;

    #[test]
    fn cpu_time_is_shared_by_the_busy_samples_since_the_clock_moved() {
        let stack = Aggregate::default().add(&Stack::default(), 1, 0);
        assert_eq!(
            share(10, vec![Some(stack), None, Some(stack), Some(stack)]),
            [(stack, 4), (stack, 3), (stack, 3)]
        );
        assert_eq!(share(10, vec![None]), []);
    }
}
