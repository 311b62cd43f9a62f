//! How a worker's heap changed between two samples, and which stack the change counts for.
//!
//! Added memory counts for the stack that was running when the sampler saw it. Freed memory is
//! subtracted from the stacks that added last, because a function frees its memory when it returns,
//! and the next one is running by then. So each stack's change is the part of its added memory that
//! is still held. Only memory from before the first look counts as freed by the running stack. The
//! engine empties the heap when a request ends: that counts for no stack. A worker that serves
//! requests in its own loop keeps its heap, and with it its leaks. This module does not see memory
//! that was allocated and freed between two samples.
//! Invariant: while a heap lives, the changes of all stacks add up to the change of its size.

use std::collections::VecDeque;

use phpprof_zend::heap::Sizes;

use super::aggregate::{Labelled, StackSum};
use super::requests::Fate;
use crate::read::heap::{HeapSizes, HeapWatch};
use crate::read::reader::Reader;
use crate::target::process::Process;

/// SAPIs that keep their heap from one request to the next, by `sapi_module.name`: scripts, and
/// workers with a loop.
const KEEP_THEIR_HEAP: [&str; 5] = ["cli", "phpdbg", "micro", "embed", EITHER];
/// This SAPI keeps it in worker mode only. Its threads then wait in the script.
const EITHER: &str = "frankenphp";

/// How many additions of a worker can be subtracted again: the newest, merged by stack.
const MAX_ADDED: usize = 256;

/// The heap of one worker.
#[derive(Debug)]
pub struct HeapAccount {
    /// The engine empties it when a request ends.
    ends_with_request: bool,
    /// Whether the engine empties it follows from how the worker waits.
    is_either: bool,
    before: Option<SeenHeap>,
    /// The fate of the last sample with a stack.
    last: Option<Fate>,
    /// The added bytes that are still held, and the stacks that added them; the newest last.
    added: VecDeque<(Fate, i64)>,
    highest: Option<HeapPeak>,
}

/// A heap, and the time of its request; 0 if that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenHeap {
    heap: HeapSizes,
    request_time: u64,
}

/// The change of a heap since it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeapChange {
    growth: u64,
    net: i64,
    /// The heap belongs to another request.
    is_new: bool,
}

/// The worker's state when its heap was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    /// It ran code of a request.
    Runs,
    /// The engine began a request or ended it: memory that it frees then counts for no stack.
    BeginsOrEnds,
    /// It waited for a request in a loop of its own.
    Waits,
    /// It had no request.
    Idle,
}

/// A heap at its largest size in its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapPeak {
    /// The sizes at that time.
    pub sizes: Sizes,
    /// The stack at that time.
    pub sample: Labelled,
    /// The heap was about that large in this stack. Otherwise the peak came before.
    pub is_seen: bool,
}

/// A run's data about heaps in addition to its samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapTold {
    /// The largest heap of all workers.
    pub highest: Option<HeapPeak>,
    /// Reads with inconsistent numbers.
    pub refused: u64,
    /// Workers whose heap cannot be read.
    pub without_heap: u64,
}

impl HeapTold {
    /// Adds the data of a worker.
    pub fn add(&mut self, reader: &Reader) {
        if let Some(watch) = &reader.heap_watch {
            self.refused += watch.refused;
            self.without_heap += u64::from(watch.has_none());
        }
    }

    /// Keeps the larger one.
    pub fn offer(&mut self, highest: Option<HeapPeak>) {
        let peak = |highest: &HeapPeak| highest.sizes.peak;
        if highest.as_ref().map(peak) > self.highest.as_ref().map(peak) {
            self.highest = highest;
        }
    }
}

impl HeapAccount {
    /// The account of a worker that was just found.
    #[must_use]
    pub fn new(process: &Process) -> Self {
        let sapi = process.engine.sapi.as_str();
        Self {
            ends_with_request: !KEEP_THEIR_HEAP.contains(&sapi),
            is_either: sapi == EITHER,
            before: None,
            last: None,
            added: VecDeque::new(),
            highest: None,
        }
    }

    /// Takes the heap of the newest read. `fate` is that of the sample; it is `None` if the worker
    /// waits for a request: then the change counts for the last stack that was seen. Calls `give`
    /// with the part of each sample.
    pub fn take(&mut self, reader: &Reader, fate: Option<Fate>, give: impl FnMut(Fate, StackSum)) {
        self.last = fate.or(self.last);
        let worker = match (fate, reader.has_frame) {
            (Some(_), true) => WorkerState::Runs,
            (Some(_), false) => WorkerState::BeginsOrEnds,
            (None, true) => WorkerState::Waits,
            (None, false) => WorkerState::Idle,
        };
        let sizes = reader.heap_watch.as_ref().and_then(HeapWatch::sizes);
        if let (Some(heap), Some(sizes)) = (reader.heap, sizes) {
            let request_time = reader.request_time;
            self.add(SeenHeap { heap, request_time }, sizes, worker, give);
        }
    }

    /// Calls `change` for the fate of each sample that may be given more.
    pub fn each(&mut self, change: impl FnMut(&mut Fate)) {
        let added = self.added.iter_mut().map(|(fate, _)| fate);
        added.chain(&mut self.last).for_each(change);
    }

    /// The peak that can be reported with a sample of this fate.
    #[must_use]
    pub fn highest(&self, fate: Option<Fate>) -> Option<HeapPeak> {
        let is_summed = matches!(fate, Some(Fate::Summed(..)));
        self.highest.filter(|_| is_summed)
    }

    fn add(
        &mut self,
        now: SeenHeap,
        sizes: Sizes,
        worker: WorkerState,
        mut give: impl FnMut(Fate, StackSum),
    ) {
        match worker {
            WorkerState::Idle if self.is_either => self.ends_with_request = true,
            WorkerState::Waits if self.is_either => self.ends_with_request = false,
            _ => {}
        }
        let change = self
            .before
            .map(|before| between(before, now, self.ends_with_request));
        let is_new = change.is_some_and(|change| change.is_new);
        self.before = Some(SeenHeap {
            request_time: match (is_new, now.request_time, self.before) {
                (false, 0, Some(before)) => before.request_time,
                _ => now.request_time,
            },
            ..now
        });
        if is_new || worker == WorkerState::Idle {
            self.highest = None;
            self.added.clear();
        }
        let Some(fate) = self.last.filter(|_| worker != WorkerState::Idle) else {
            return;
        };
        let growth = change.map_or(0, |change| change.growth);
        if let Fate::Summed(_, sample) | Fate::Young(_, sample) = fate
            && self.tells_more(growth, &sizes)
        {
            self.highest = Some(HeapPeak {
                sizes,
                sample,
                is_seen: growth > 0 || is_at_peak(&sizes),
            });
        }
        let net = match (worker, change.map_or(0, |change| change.net)) {
            (WorkerState::BeginsOrEnds, net) => net.max(0),
            (_, net) => net,
        };
        if growth > 0 {
            let heap_growth = i64::try_from(growth).unwrap_or(i64::MAX);
            let sum = StackSum {
                heap_growth,
                ..StackSum::default()
            };
            give(fate, sum);
        }
        self.change(net, fate, give);
    }

    /// Whether this read tells more of the peak than those before.
    fn tells_more(&self, growth: u64, sizes: &Sizes) -> bool {
        let is_seen = self.highest.map(|highest| highest.is_seen);
        growth > 0 || is_seen.is_none() || (is_seen == Some(false) && is_at_peak(sizes))
    }

    /// Distributes a net change that was seen while this stack was running.
    fn change(&mut self, net: i64, fate: Fate, mut give: impl FnMut(Fate, StackSum)) {
        let mut change = |fate: Fate, heap_change: i64| {
            let sum = StackSum {
                heap_change,
                ..StackSum::default()
            };
            give(fate, sum);
        };
        if net > 0 {
            self.hold(fate, net);
            change(fate, net);
        }
        let mut freed = net.min(0).saturating_neg();
        while freed > 0 {
            let Some((whose, held)) = self.added.back_mut() else {
                change(fate, -freed);
                return;
            };
            let taken = freed.min(*held);
            change(*whose, -taken);
            (*held, freed) = (*held - taken, freed - taken);
            if *held == 0 {
                self.added.pop_back();
            }
        }
    }

    fn hold(&mut self, fate: Fate, bytes: i64) {
        match self.added.back_mut() {
            Some((whose, held)) if *whose == fate => *held = held.saturating_add(bytes),
            _ => self.added.push_back((fate, bytes)),
        }
        if self.added.len() > MAX_ADDED {
            self.added.pop_front();
        }
    }
}

/// Whether the heap is at its peak in its request, or less than a twentieth below.
fn is_at_peak(sizes: &Sizes) -> bool {
    sizes.size >= sizes.peak - sizes.peak / 20
}

fn between(before: SeenHeap, now: SeenHeap, ends_with_request: bool) -> HeapChange {
    let are_known = before.request_time != 0 && now.request_time != 0;
    let is_same_request = are_known && before.request_time == now.request_time;
    let is_other_request = are_known && before.request_time != now.request_time;
    // Within one request the peak only falls if the program resets it: `memory_reset_peak_usage`.
    let has_fallen = now.heap.peak < before.heap.peak && !is_same_request;
    let is_new = ends_with_request && (is_other_request || has_fallen);
    let base = if is_new {
        HeapSizes::default()
    } else {
        before.heap
    };
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    HeapChange {
        growth: now.heap.peak.saturating_sub(base.peak),
        net: signed(now.heap.size) - signed(base.size),
        is_new,
    }
}

#[cfg(test)]
mod tests;
