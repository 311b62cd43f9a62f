//! When each stack ran, and what the slowest requests did: data that a profile does not have, from
//! the same samples. Pure.
//!
//! Invariant: the cells of the workers, those of the routes, and the parts of the run each add up
//! to the wall time of all summed samples; and memory is bounded, at about 16 MB when everything is
//! full and 64 requests are served at once: parts 1 MB (`phpprof_profile::timeline::Parts`), cells
//! 2 × 1.6 MB (`phpprof_profile::timeline::Rows`), 100,000 moments of 48 bytes of the 200 slowest
//! requests, half as many of those that are served now, 2,000 requests of 200 bytes, and cells 3
//! MB ([`super::cells`]). A run of some functions and routes takes a few hundred kilobytes.

use std::collections::BTreeSet;

use phpprof_profile::timeline::FIRST_STEP;
use phpprof_profile::timeline::{
    MAX_MOMENTS, MAX_RECORDED, MAX_REQUESTS, MAX_STEPS, Parts, Slot, TimelineRows,
};
use rustc_hash::FxHashMap;

use super::aggregate::ANY_WORKER;
use super::cells::{EndedRequest, RequestTimes, RunCells};
use super::moments::{Moments, TimedStack};
use crate::read::heap::HeapSizes;
use crate::request::asked::SampleLabel;
use crate::request::values::{OTHER_VALUE, Set};
use crate::stack::names::NameId;
use crate::stack::trace::SummedStack;

/// Moments of all current requests together: if many workers are busy at once, each has fewer.
const MAX_LIVE_MOMENTS: usize = 50_000;
/// Each has at least this many.
const FEWEST_MOMENTS: usize = 8;

/// A sample that is summed, or will be once its request is old enough.
#[derive(Debug, Clone, Copy)]
pub struct TakenSample {
    /// The worker's thread id.
    pub tid: i32,
    /// The number that the worker's samples are summed under.
    pub summed_as: i32,
    /// When it was taken, in nanoseconds of the monotonic clock.
    pub at: u64,
    /// The begin of the time that it represents.
    pub from: u64,
    /// The end of that time.
    pub to: u64,
    /// Whether the worker ran; otherwise it slept.
    pub ran: bool,
    /// The stack.
    pub stack: SummedStack,
    /// The function of its leaf.
    pub leaf: NameId,
    /// The heap, if it is requested.
    pub heap: Option<HeapSizes>,
}

/// The request of a sample.
#[derive(Debug, Clone, Copy)]
pub struct Of {
    /// Its number in the run.
    pub number: u32,
    /// When it began, if that is known.
    pub began: Option<u64>,
    /// The values of its labels.
    pub values: Set,
    /// Whether it may still be too young for the filter.
    pub is_young: bool,
}

/// A request that was seen.
#[derive(Debug)]
pub struct SeenRequest {
    /// The number that the worker's samples are summed under.
    pub summed_as: i32,
    /// The values of its labels.
    pub values: Set,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began: u64,
    /// When it was last seen, by the same clock.
    pub ended: u64,
    /// Whether the run ended before it.
    pub is_unfinished: bool,
    /// The number of its samples.
    pub samples: u64,
    /// The time that they represent, in nanoseconds.
    pub wall: u64,
    /// Their CPU time, in nanoseconds.
    pub cpu: u64,
    /// The size of its largest heap in bytes; 0 if that is not requested.
    pub peak_heap: u64,
    /// Empty if it was not among the slowest.
    pub moments: Vec<TimedStack>,
}

impl SeenRequest {
    fn duration(&self) -> u64 {
        self.ended.saturating_sub(self.began)
    }
}

/// A current request.
#[derive(Debug)]
struct LiveRequest {
    number: u32,
    seen: SeenRequest,
    /// The heap's peak when the request was first seen: only a larger one is its own.
    first_peak: u64,
    is_young: bool,
    moments: Moments,
    times: RequestTimes,
}

/// What a run has recorded so far.
#[derive(Debug)]
pub struct Recorder {
    /// When the first step begins, in nanoseconds.
    pub began: u64,
    /// How long each step is, in nanoseconds.
    pub step: u64,
    /// By the number that samples are summed under.
    pub workers: TimelineRows<i32>,
    /// By the number of the label's value.
    pub routes: TimelineRows<u16>,
    /// Its times are since the first step.
    pub parts: Parts<SummedStack>,
    live: FxHashMap<i32, LiveRequest>,
    /// How the time of requests varies.
    pub cells: RunCells,
    /// Requests that have ended.
    pub slowest: Slowest,
}

/// The slowest of the requests that have ended.
#[derive(Debug, Default)]
pub struct Slowest {
    listed: FxHashMap<u32, SeenRequest>,
    /// By duration and number: all listed ones, and those that still have their moments.
    order: BTreeSet<(u64, u32)>,
    recorded: BTreeSet<(u64, u32)>,
    /// The number of requests that are not listed.
    pub unlisted: u64,
}

impl Recorder {
    /// The recorder of a run that begins now.
    #[must_use]
    pub fn new(began: u64) -> Self {
        Self {
            began,
            step: FIRST_STEP.unsigned_abs(),
            workers: TimelineRows::default(),
            routes: TimelineRows::default(),
            parts: Parts::new(0),
            live: FxHashMap::default(),
            cells: RunCells::default(),
            slowest: Slowest::default(),
        }
    }

    /// Adds a sample, with its request if that is known.
    pub fn add(&mut self, taken: &TakenSample, of: Option<Of>) {
        let wall = taken.to.saturating_sub(taken.from);
        let (busy, waiting) = if taken.ran { (wall, 0) } else { (0, wall) };
        let moment = TimedStack {
            from: taken.from,
            busy,
            waiting,
            stack: taken.stack,
        };
        let heap = taken.heap.map_or(0, |heap| heap.size);
        let Some(of) = of else {
            self.spread(taken.summed_as, 0, &moment, heap);
            return;
        };
        self.serves(taken.tid, of.number);
        let route = of.values[SampleLabel::Route as usize];
        let serving = self.live.len() + 1;
        let room = MAX_LIVE_MOMENTS / serving;
        let live = self
            .live
            .entry(taken.tid)
            .or_insert_with(|| LiveRequest::new(taken, &of));
        live.add(taken, &of, wall);
        let signed = i64::try_from(wall).unwrap_or(i64::MAX);
        live.times.add(taken.leaf, signed, serving);
        live.moments
            .add(moment, room.clamp(FEWEST_MOMENTS, MAX_MOMENTS));
        match (
            of.is_young,
            std::mem::replace(&mut live.is_young, of.is_young),
        ) {
            (true, _) => {}
            (false, false) => self.spread(taken.summed_as, route, &moment, heap),
            // Its earlier samples are kept from now on.
            (false, true) => {
                for moment in live.moments.list().to_vec() {
                    self.spread(taken.summed_as, route, &moment, heap);
                }
            }
        }
    }

    /// Notes that a worker now serves the request of this number: an earlier one has ended.
    pub fn serves(&mut self, tid: i32, number: u32) {
        if self
            .live
            .get(&tid)
            .is_some_and(|live| live.number != number)
        {
            self.ends(tid, false);
        }
    }

    /// Notes that a worker waits for a request, or has ended.
    pub fn idle(&mut self, tid: i32) {
        self.ends(tid, false);
    }

    /// Gives CPU time, in nanoseconds, to the request of a worker's sample with this leaf.
    pub fn give_cpu(&mut self, tid: i32, number: u32, leaf: NameId, nanoseconds: u64) {
        let serving = self.live.len();
        let live = self.live.get_mut(&tid).filter(|live| live.number == number);
        let seen = match live {
            Some(live) => {
                live.times.give_cpu(leaf, nanoseconds, serving);
                Some(&mut live.seen)
            }
            None => {
                self.cells.give_cpu(number, leaf, nanoseconds);
                self.slowest.listed.get_mut(&number)
            }
        };
        if let Some(seen) = seen {
            seen.cpu += nanoseconds;
        }
    }

    /// Ends all current requests, at the end of the run.
    pub fn end(&mut self) {
        let tids: Vec<i32> = self.live.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.ends(tid, true));
    }

    fn ends(&mut self, tid: i32, is_unfinished: bool) {
        let Some(live) = self.live.remove(&tid).filter(|live| !live.is_young) else {
            return;
        };
        let seen = SeenRequest {
            is_unfinished,
            moments: live.moments.finish(),
            ..live.seen
        };
        let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
        let ended = EndedRequest {
            number: live.number,
            summed_as: seen.summed_as,
            began: signed(seen.began).saturating_sub(signed(self.began)),
            route: seen.values[SampleLabel::Route as usize],
            samples: seen.samples,
            is_unfinished,
            times: live.times,
        };
        self.cells.end(ended);
        self.slowest.add(live.number, seen);
    }

    /// Adds a moment to its steps, to each the part within it, and to the part of the run in which
    /// it began.
    fn spread(&mut self, worker: i32, route: u16, moment: &TimedStack, heap: u64) {
        // A worker may have been attached before the first step.
        let from = moment.from.saturating_sub(self.began);
        let to = moment.to().saturating_sub(self.began).max(from + 1);
        while (to - 1) / self.step >= MAX_STEPS as u64 {
            self.step *= 2;
            self.workers.double();
            self.routes.double();
        }
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let times = [moment.busy, moment.waiting].map(signed);
        self.parts.add(signed(from), moment.stack, times);
        let part = |all: u64, until: u64| {
            let part = u128::from(all) * u128::from(until - from) / u128::from(to - from);
            i64::try_from(part).unwrap_or(i64::MAX)
        };
        let (mut at, mut given) = (from, (0, 0));
        while at < to {
            let until = ((at / self.step + 1) * self.step).min(to);
            let so_far = (part(moment.busy, until), part(moment.waiting, until));
            let slot = Slot {
                at: i64::try_from(at / self.step).unwrap_or(i64::MAX),
                busy: so_far.0 - given.0,
                waiting: so_far.1 - given.1,
                heap,
            };
            self.workers
                .add(Some(&worker).filter(|it| **it != ANY_WORKER), slot);
            self.routes
                .add(Some(&route).filter(|it| **it != OTHER_VALUE), slot);
            (at, given) = (until, so_far);
        }
    }
}

impl LiveRequest {
    fn new(taken: &TakenSample, of: &Of) -> Self {
        Self {
            number: of.number,
            seen: SeenRequest {
                summed_as: taken.summed_as,
                values: of.values,
                began: of.began.unwrap_or(taken.from),
                ended: taken.at,
                is_unfinished: false,
                samples: 0,
                wall: 0,
                cpu: 0,
                peak_heap: 0,
                moments: Vec::new(),
            },
            first_peak: taken.heap.map_or(0, |heap| heap.peak),
            is_young: of.is_young,
            moments: Moments::default(),
            times: RequestTimes::default(),
        }
    }

    fn add(&mut self, taken: &TakenSample, of: &Of, wall: u64) {
        let seen = &mut self.seen;
        // Its time is only set when the program asks for it, and `$_SERVER` may be built late.
        seen.values = of.values;
        seen.began = of.began.unwrap_or(seen.began).min(seen.began);
        seen.ended = taken.at;
        seen.samples += 1;
        seen.wall += wall;
        if let Some(heap) = taken.heap {
            let peak = if heap.peak > self.first_peak {
                heap.peak
            } else {
                0
            };
            seen.peak_heap = seen.peak_heap.max(heap.size).max(peak);
        }
    }
}

impl Slowest {
    fn add(&mut self, number: u32, seen: SeenRequest) {
        let key = (seen.duration(), number);
        self.listed.insert(number, seen);
        self.order.insert(key);
        self.recorded.insert(key);
        if self.recorded.len() > MAX_RECORDED
            && let Some((_, number)) = self.recorded.pop_first()
            && let Some(seen) = self.listed.get_mut(&number)
        {
            seen.moments = Vec::new();
        }
        if self.order.len() > MAX_REQUESTS
            && let Some((_, number)) = self.order.pop_first()
        {
            self.listed.remove(&number);
            self.unlisted += 1;
        }
    }

    /// The slowest first.
    pub fn iter(&self) -> impl Iterator<Item = &SeenRequest> {
        let order = self.order.iter().rev();
        order.filter_map(|(_, number)| self.listed.get(number))
    }
}

#[cfg(test)]
mod tests;
