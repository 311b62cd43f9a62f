//! A worker in a run: when it was sampled last, whether it sleeps since, and which of its samples wait for their CPU time.

use std::sync::Arc;

use super::aggregate::Aggregate;
use crate::read::clocks::{Look, Mark};
use crate::read::cpu_shares::CpuShares;
use crate::read::worker::Worker;
use crate::stack::trace::Stack;
use crate::target::process::Process;

/// A worker in a run.
#[derive(Debug)]
pub struct Member {
    pub worker: Worker,
    /// The number that its samples are summed under: its thread's, or [`ANY_WORKER`](super::aggregate::ANY_WORKER).
    pub summed_as: i32,
    /// When it was sampled last, or attached; nanoseconds of the monotonic clock.
    pub sampled_at: u64,
    /// Since when it sleeps, and in which stack.
    pub asleep: Option<Asleep>,
    pub busy_samples: u64,
    pub idle_samples: u64,
    cpu: CpuShares<Stack>,
}

/// A sleep that was seen.
#[derive(Debug, Clone, Copy)]
pub struct Asleep {
    /// The worker's, for as long as it lasts.
    pub mark: Mark,
    /// `None` between requests.
    pub stack: Option<Stack>,
}

impl Member {
    /// A worker that begins now.
    #[must_use]
    pub fn new(process: Arc<Process>, summed_as: i32, now: u64) -> Self {
        Self {
            worker: Worker::new(process),
            summed_as,
            sampled_at: now,
            asleep: None,
            busy_samples: 0,
            idle_samples: 0,
            cpu: CpuShares::default(),
        }
    }

    /// The sleep that still lasts, by the worker's mark now.
    #[must_use]
    pub fn still_asleep(&self, mark: Option<Mark>) -> Option<Asleep> {
        self.asleep.filter(|asleep| Some(asleep.mark) == mark)
    }

    /// The share of its turns in which it was busy, if it ever was.
    #[must_use]
    pub fn busy_percent(&self) -> Option<u8> {
        let turns = self.busy_samples + self.idle_samples;
        let percent = (self.busy_samples * 100 + turns / 2).checked_div(turns)?;
        u8::try_from(percent).ok().filter(|_| self.busy_samples > 0)
    }

    /// Takes the CPU time that has become visible, which belongs to the samples in which the worker ran; `ran` is the newest, if
    /// it did.
    pub fn spend(&mut self, look: Option<Look>, ran: Option<Stack>, aggregate: &mut Aggregate) {
        let Some(look) = look else { return };
        let give = give_to(aggregate, self.summed_as);
        self.cpu.add(self.sampled_at, look, ran, give);
    }

    /// Gives the samples the CPU time that there is so far, before they are looked at.
    pub fn settle(&mut self, aggregate: &mut Aggregate) {
        self.cpu.settle(give_to(aggregate, self.summed_as));
    }

    /// Nanoseconds of CPU that no sample was given.
    #[must_use]
    pub fn cpu_unattributed(&self) -> u64 {
        self.cpu.waiting()
    }
}

fn give_to(aggregate: &mut Aggregate, tid: i32) -> impl FnMut(Stack, u64) {
    move |stack, nanoseconds| {
        let nanoseconds = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        aggregate.add_cpu(stack, tid, nanoseconds);
    }
}
