//! What a run counts besides its samples.
//!
//! Invariant: each worker is counted once: when it ends, or at the end of the run. A checkpoint
//! counts those that live into a copy.

use phpprof_zend::extensions::Extensions;

use super::heap::HeapTold;
use super::member::Member;
use super::seen::Busy;
use crate::read::on_cpu::CpuProofs;
use crate::target::process::calls::SystemCallCounts;

/// The sums of the workers that were counted, and of all turns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunTotals {
    /// How busy they were.
    pub busy: Busy,
    /// The largest heap, and what was refused.
    pub heap: HeapTold,
    /// The JIT has compiled code for one of them.
    pub jit: bool,
    /// The extensions of a worker, when they were last read.
    pub extensions: Option<Extensions>,
    /// CPU time that no sample could be given, in nanoseconds.
    pub cpu_unattributed: u64,
    /// How long they waited for a CPU, in nanoseconds.
    pub cpu_waited: u64,
    /// How long they waited for the sampler, in nanoseconds.
    pub gave_way: u64,
    /// How often it was not proven whether a worker was on a CPU.
    pub cpu_proofs: CpuProofs,
    /// System calls of turns that found a worker between two requests.
    pub idle_calls: SystemCallCounts,
    /// Samples that were left out because the worker slept.
    pub not_running: u64,
}

impl RunTotals {
    /// Adds a worker, as it is now.
    pub fn count(&mut self, member: &Member) {
        self.heap.add(&member.worker.reader);
        self.jit |= member.worker.reader.has_jit_code == Some(true);
        if let Some(percent) = member.busy_percent() {
            self.busy.add(percent);
        }
        self.cpu_unattributed += member.cpu_unattributed();
        self.cpu_waited += member.waited();
        self.gave_way += member.worker.place.gave_way;
    }
}
