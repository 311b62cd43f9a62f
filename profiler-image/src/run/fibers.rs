//! Visits the suspended fibers of workers, now and then: what do the tasks of an event loop wait
//! for?
//!
//! A visit is not a sample: its fibers count for the sample types `fibers` and `suspended`, and for
//! nothing else. A fiber that a visit shows stands for the time since the visit before it.
//! Invariant: at most one worker is visited in a turn of the loop, each about once a second at
//! random moments, and all visits together take about one in [`PAUSE`] of the time.

use phpprof_zend::heap::account::read_blocks;
use phpprof_zend::heap::blocks::HeapBlocks;
use phpprof_zend::heap::find;
use phpprof_zend::heap::objects::{FibersWalk, FoundFibers, SuspendedFiber};
use phpprof_zend::memory::{Memory as _, Piece};

use super::aggregate::{Labelled, StackSum};
use super::member::Member;
use super::time::{SECOND, own_cpu, seed};
use super::{Begun, RunLoop};
use crate::sample::suspended::{FiberBuffers, FiberStack};
use crate::target::process::Process;

/// After a visit, none follows for this many times as long as the CPU time that it took.
const PAUSE: u64 = 50;
/// How many stacks a visit reads. If more fibers are suspended, each stands for several.
const STACKS: usize = 128;
/// The same for a snapshot, which has one.
const STACKS_OF_SNAPSHOT: usize = 4096;
/// The CPU time that a visit may take, and all those at the end of a run. On a machine without a
/// free CPU, it takes longer.
const VISIT_TAKES: u64 = SECOND / 50;
const END_TAKES: u64 = SECOND * 2 / 5;
/// The CPU time that a visit of a snapshot may take, and all of them.
const SNAPSHOT_TAKES: u64 = 2 * SECOND;
/// Readers of profiles take no larger sum of nanoseconds: all JSON numbers up to 2^53 are exact.
const MOST_TIME: u64 = 1 << 52;

/// When a run visits fibers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FiberSchedule {
    /// About once a second, and at its end.
    Spread,
    /// Once, at its end.
    AtEnd,
}

/// What a run counts of its visits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FibersTold {
    /// Visits of a worker in a request.
    pub visits: u64,
    /// Visits whose worker has no heap, or no table of objects, that can be read.
    pub refused: u64,
    /// The most fibers of a worker that were suspended at once.
    pub most: u64,
    /// Fibers that are shown without a part of their stack, which is not proven.
    pub unproven: u64,
    /// Places of the workers' tables that could not be read, and fibers without time.
    pub lost: u64,
    /// Workers whose PHP has no fibers.
    pub without: u64,
}

/// The visits of a run.
#[derive(Debug, Default)]
pub(super) struct FiberVisits {
    pub told: FibersTold,
    buffers: FiberBuffers,
    /// No visit before this time.
    next: u64,
    /// The sum of all suspended times.
    time: u64,
}

/// The bounds of a visit.
#[derive(Clone, Copy)]
struct VisitBounds {
    stacks: usize,
    /// By [`own_cpu`].
    until: u64,
}

impl RunLoop<'_> {
    /// Visits the fibers of the worker that has waited longest for it, if one is due.
    pub(super) fn visit_fibers(&mut self, begun: &Begun, current: u64) {
        if self.options.fibers != Some(FiberSchedule::Spread) || current < self.fibers.next {
            return;
        }
        let due = |(index, member): (usize, &Member)| {
            let is_due = member.fibers.due <= current && member.has_fibers();
            is_due.then_some((member.fibers.due, index))
        };
        let due = self.members.iter().enumerate().filter_map(due).min();
        let Some((_, index)) = due else {
            return;
        };
        let begin = own_cpu();
        let bounds = VisitBounds {
            stacks: STACKS,
            until: begin + VISIT_TAKES,
        };
        self.visit(index, begun, current, bounds);
        let took = own_cpu().saturating_sub(begin);
        self.fibers.next = current.saturating_add(took.saturating_mul(PAUSE));
    }

    /// Visits the fibers of all workers once more: `end` is the end of the run.
    pub(super) fn visit_fibers_at_the_end(&mut self, begun: &Begun, end: u64) {
        let Some(schedule) = self.options.fibers else {
            return;
        };
        let (stacks, takes, all) = match schedule {
            FiberSchedule::Spread => (STACKS, VISIT_TAKES, END_TAKES),
            FiberSchedule::AtEnd => (STACKS_OF_SNAPSHOT, SNAPSHOT_TAKES, SNAPSHOT_TAKES),
        };
        let until = own_cpu().saturating_add(all);
        for index in 0..self.members.len() {
            let has_fibers = self.members.get(index).is_some_and(Member::has_fibers);
            self.fibers.told.without += u64::from(!has_fibers);
            let now = own_cpu();
            if has_fibers && now < until {
                let until = until.min(now + takes);
                self.visit(index, begun, end, VisitBounds { stacks, until });
            } else if has_fibers {
                self.fibers.told.lost += 1;
            }
        }
    }

    fn visit(&mut self, index: usize, begun: &Begun, current: u64, bounds: VisitBounds) {
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        // Another program has something else there, and functions of another request are not known.
        if !member.runs_the_same_program(current) || !is_in_known_request(member) {
            member.fibers.plan(current, 0);
            return;
        }
        member.fibers.since = member.fibers.since.max(begun.at);
        member.fibers.plan(current, seed());
        let visits = &mut self.fibers;
        let (found, blocks) = match find_fibers(&member.worker.process, bounds) {
            FiberVisit::Found(found, blocks) => (found, blocks),
            FiberVisit::NoRequest => {
                member.fibers.take(current);
                return;
            }
            FiberVisit::Refused => {
                visits.told.refused += 1;
                return;
            }
        };
        let stands_for = member.fibers.take(current);
        visits.told.visits += 1;
        let lost = found.losses.unreadable + found.losses.late;
        visits.told.lost += lost.saturating_mul(found.one_of);
        let all = found.seen.saturating_mul(found.one_of);
        visits.told.most = visits.told.most.max(all);
        let mut kept = found.kept;
        shuffle(&mut kept);
        let mut shown = Vec::with_capacity(kept.len());
        for fiber in &kept {
            if own_cpu() >= bounds.until {
                break;
            }
            let (worker, buffers) = (&mut member.worker, &mut visits.buffers);
            let sampler = &mut self.sampler;
            shown.push(sampler.suspended(worker, fiber, &blocks, buffers, current));
        }
        let summed_as = member.summed_as;
        self.sum_fibers(&shown, all, stands_for, summed_as);
    }

    /// Adds the fibers that there was time for, each for its part of all: `None` was resumed
    /// meanwhile.
    fn sum_fibers(
        &mut self,
        shown: &[Option<FiberStack>],
        all: u64,
        stands_for: u64,
        summed_as: i32,
    ) {
        let visits = &mut self.fibers;
        if shown.is_empty() {
            visits.told.lost = visits.told.lost.saturating_add(all);
        }
        for (shown, fibers) in shown.iter().zip(parts(all, shown.len())) {
            let Some(shown) = shown else { continue };
            let time = stands_for.saturating_mul(fibers);
            if visits.time.saturating_add(time) > MOST_TIME {
                visits.told.lost = visits.told.lost.saturating_add(fibers);
                continue;
            }
            visits.time += time;
            visits.told.unproven += if shown.is_proven { 0 } else { fibers };
            let sum = StackSum {
                fibers: i64::try_from(fibers).unwrap_or(i64::MAX),
                suspended_nanoseconds: i64::try_from(time).unwrap_or(i64::MAX),
                ..StackSum::default()
            };
            let stack = Labelled::from(shown.stack);
            self.aggregate.merge(stack, summed_as, sum);
        }
    }
}

/// Brings fibers into a random order, so that time has no preference for some places of the table.
fn shuffle(fibers: &mut [SuspendedFiber]) {
    for place in 1..fibers.len() {
        let other = (u64::from(seed()) * (place as u64 + 1)) >> 32;
        fibers.swap(place, usize::try_from(other).unwrap_or(place));
    }
}

/// So many parts of a number, as equal as whole numbers can be.
fn parts(all: u64, count: usize) -> impl Iterator<Item = u64> {
    let count = count as u64;
    let sum = move |number: u64| u128::from(all) * u128::from(number) / u128::from(count.max(1));
    (0..count).map(move |number| u64::try_from(sum(number + 1) - sum(number)).unwrap_or(0))
}

/// Whether the request that a worker serves is the one that its functions are known of.
fn is_in_known_request(member: &Member) -> bool {
    let worker = &member.worker;
    let time = worker.process.engine.request_time;
    let now = time.map(|at| worker.process.memory.word(at));
    !member.is_unsampled() && now.is_none_or(|now| now == Ok(worker.reader.request_time))
}

enum FiberVisit {
    Found(FoundFibers, HeapBlocks),
    /// There is no request, so there are no objects.
    NoRequest,
    Refused,
}

fn find_fibers(process: &Process, bounds: VisitBounds) -> FiberVisit {
    let (memory, engine) = (&*process.memory, &process.engine);
    let (layout, globals) = (engine.layout, engine.executor_globals);
    let (mut active, mut page) = ([0], [0; 8]);
    let row = &layout.executor_globals;
    let read = memory.gather(&mut [
        Piece {
            address: globals + row.active as u64,
            bytes: &mut active,
        },
        Piece {
            address: globals + row.vm_stack as u64,
            bytes: &mut page,
        },
    ]);
    let page = u64::from_le_bytes(page);
    if read.is_ok() && (active == [0] || page == 0) {
        return FiberVisit::NoRequest;
    }
    let walk = FibersWalk {
        seed: seed().into(),
        most: bounds.stacks,
        is_over: &|| own_cpu() >= bounds.until,
    };
    let heap = read.ok().and_then(|()| find(memory, layout, page));
    let blocks = heap.and_then(|heap| read_blocks(memory, layout, heap).ok());
    let found = blocks.and_then(|blocks| {
        let found = walk.read(memory, layout, globals, &blocks).ok()?;
        Some(FiberVisit::Found(found, blocks))
    });
    found.unwrap_or(FiberVisit::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_number_add_up_to_it() {
        assert_eq!(parts(50, 50).collect::<Vec<_>>(), [1; 50]);
        for (all, count) in [(7, 3), (5000, 128), (u64::MAX, 7), (3, 0)] {
            let sum: u64 = parts(all, count).sum();
            assert_eq!(sum, if count == 0 { 0 } else { all });
        }
    }
}
