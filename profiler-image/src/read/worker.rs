//! One PHP worker, a process or a thread, as the sampler knows it.

use std::rc::Rc;

use super::clocks::CpuClock;
use super::reader::Reader;
use crate::run::aggregate::{Aggregate, StackId};
use crate::stack::functions::Map;
use crate::target::process::Process;

/// A worker as the sampler knows it.
#[derive(Debug)]
pub struct Worker {
    pub process: Rc<Process>,
    pub reader: Reader,
    /// Functions in the worker's own memory.
    pub local: Map,
    /// The request in which `local` was learned.
    pub generation: u64,
    /// When it was sampled last, or attached; nanoseconds of the monotonic clock.
    pub sampled_at: u64,
    pub busy_samples: u64,
    pub idle_samples: u64,
    cpu: CpuClock,
}

impl Worker {
    /// A worker that begins now.
    #[must_use]
    pub fn new(process: Rc<Process>, now: u64) -> Self {
        let reader = Reader::new(&process);
        let cpu = CpuClock::of(&process);
        Self {
            process,
            reader,
            local: Map::default(),
            generation: 0,
            sampled_at: now,
            busy_samples: 0,
            idle_samples: 0,
            cpu,
        }
    }

    /// The share of its turns in which it was busy, if it ever was.
    #[must_use]
    pub fn busy_percent(&self) -> Option<u8> {
        let turns = self.busy_samples + self.idle_samples;
        let percent = (self.busy_samples * 100 + turns / 2).checked_div(turns)?;
        u8::try_from(percent).ok().filter(|_| self.busy_samples > 0)
    }

    /// Notes which stack the newest sample had (`None` for idle), and shares out the CPU time that has become visible.
    pub fn spend(&mut self, stack: Option<StackId>, aggregate: &mut Aggregate) {
        let tid = self.process.tid;
        self.cpu.note(stack);
        for (stack, nanoseconds) in self.cpu.advance() {
            aggregate.add_cpu(stack, tid, nanoseconds);
        }
    }
}
