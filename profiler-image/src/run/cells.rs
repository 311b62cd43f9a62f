//! The cells of a run: its requests by route, group of workers and slice of time, with their self
//! time by function. Pure.
//!
//! A request's time is kept with it until the next request of its worker has ended, or its worker,
//! because its route and its CPU time may only be known then.
//!
//! Invariant: stacks without room count by their function, and functions without room as `(other)`.
//! Only CPU time is lost that becomes known after 256 other workers have ended a request.
//! Memory: 16,384 times and 4,096 cells of about 60 bytes each. Stacks and functions take 56 bytes
//! each: those of all ended requests together 8,192 and those of one request; of `n` requests that
//! are served at once, 8,192 × (1 + ln n) stacks, or 32 each if that is more, and 256 functions
//! each. That is 3.3 MB for 64 such requests.

use phpprof_profile::timeline::{
    CellLimits, CellOwner, CellSums, CellTable, TreeFunction, WORKER_GROUPS,
};
use rustc_hash::FxHashMap;

use crate::stack::call_tree::{CallTree, PathId};
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::{Ending, SummedStack};

/// The most cells and times of a run.
const LIMITS: CellLimits = CellLimits {
    cells: 4_096,
    times: 16_384,
};
/// The most stacks of one request: if `n` are served when it meets another stack, it has an `n`th
/// of this. It is also the most stacks and functions of all ended requests together.
const MAX_STACKS: usize = 8_192;
/// Each has at least this many.
const FEWEST_STACKS: usize = 32;
/// The most functions of a request whose stacks have no room.
const MAX_LEAVES: usize = 256;
/// The most ended requests that wait for the rest of their CPU time, each of another worker.
const MAX_ENDED: usize = 256;

/// A stack with its [`leaf_of`].
#[derive(Debug, Clone, Copy)]
pub struct LeafStack {
    /// The stack.
    pub stack: SummedStack,
    /// The function of its leaf.
    pub leaf: NameId,
}

/// The function of a stack's leaf as far as it is known when the sample is taken.
#[must_use]
pub fn leaf_of(stack: SummedStack, tree: &CallTree) -> NameId {
    let path = if stack.candidate == PathId::NONE {
        stack.path
    } else {
        stack.candidate
    };
    match stack.ending {
        Ending::Cut => FunctionNames::UNSTABLE,
        Ending::Full => FunctionNames::OVERFLOW,
        Ending::Whole => {
            let name = stack.phase.or_else(|| tree.name(path));
            name.unwrap_or(FunctionNames::UNSTABLE)
        }
    }
}

/// Wall and CPU time, in nanoseconds.
type SelfTime = [i64; 2];

/// The time of one request.
#[derive(Debug, Default)]
pub struct RequestTimes {
    stacks: FxHashMap<SummedStack, (NameId, SelfTime)>,
    leaves: FxHashMap<NameId, SelfTime>,
    /// Of functions without room.
    other: SelfTime,
}

impl RequestTimes {
    /// Adds the time of a sample. `serving` is the number of requests that have such times.
    pub fn add(&mut self, sample: LeafStack, wall: i64, serving: usize) {
        let LeafStack { stack, leaf } = sample;
        let room = (MAX_STACKS / serving.max(1)).max(FEWEST_STACKS);
        let sum = if self.stacks.len() < room || self.stacks.contains_key(&stack) {
            &mut self.stacks.entry(stack).or_insert((leaf, [0; 2])).1
        } else if self.leaves.len() < MAX_LEAVES || self.leaves.contains_key(&leaf) {
            self.leaves.entry(leaf).or_default()
        } else {
            &mut self.other
        };
        sum[0] = sum[0].saturating_add(wall);
    }

    /// Adds CPU time of an earlier sample to where its wall time is.
    pub fn give_cpu(&mut self, sample: LeafStack, nanoseconds: u64) {
        let LeafStack { stack, leaf } = sample;
        let cpu = i64::try_from(nanoseconds).unwrap_or(i64::MAX);
        let sum = if let Some((_, sum)) = self.stacks.get_mut(&stack) {
            sum
        } else if self.leaves.len() < MAX_LEAVES || self.leaves.contains_key(&leaf) {
            self.leaves.entry(leaf).or_default()
        } else {
            &mut self.other
        };
        sum[1] = sum[1].saturating_add(cpu);
    }

    fn len(&self) -> usize {
        self.stacks.len() + self.leaves.len()
    }
}

/// A request that was seen to end, or that the run has outlived.
#[derive(Debug)]
pub struct EndedRequest {
    /// Its number in the run.
    pub number: u32,
    /// The number that its worker's samples are summed under.
    pub summed_as: i32,
    /// When it began, in nanoseconds since the run did.
    pub began: i64,
    /// The number of its route.
    pub route: u16,
    /// The number of its samples.
    pub samples: u64,
    /// Whether it is still to be counted: one that the run has outlived has time, but does not
    /// count.
    pub is_to_count: bool,
    /// Its time.
    pub times: RequestTimes,
}

/// The cells of a run so far.
#[derive(Debug)]
pub struct RunCells {
    sums: CellSums,
    names: FxHashMap<u32, NameId>,
    /// By thread id.
    ended: FxHashMap<i32, EndedRequest>,
    /// How many stacks and functions these have together.
    kept: usize,
}

impl Default for RunCells {
    fn default() -> Self {
        Self {
            sums: CellSums::new(LIMITS),
            names: FxHashMap::default(),
            ended: FxHashMap::default(),
            kept: 0,
        }
    }
}

impl RunCells {
    /// Takes a request of a worker that has ended.
    pub fn end(&mut self, tid: i32, ended: EndedRequest) {
        self.leave(tid);
        if self.ended.len() >= MAX_ENDED {
            self.settle();
            self.ended.clear();
        }
        self.kept += ended.times.len();
        self.ended.insert(tid, ended);
        self.make_room();
    }

    /// Adds the last request of a worker whose CPU time is settled.
    pub fn leave(&mut self, tid: i32) {
        if let Some(mut ended) = self.ended.remove(&tid) {
            self.add(&mut ended);
        }
    }

    /// Gives CPU time to the last request of a worker that has ended, if it has this number.
    pub fn give_cpu(&mut self, tid: i32, number: u32, sample: LeafStack, nanoseconds: u64) {
        let ended = self.ended.get_mut(&tid);
        if let Some(ended) = ended.filter(|ended| ended.number == number) {
            let before = ended.times.len();
            ended.times.give_cpu(sample, nanoseconds);
            self.kept += ended.times.len() - before;
            self.make_room();
        }
    }

    fn make_room(&mut self) {
        if self.kept > MAX_STACKS {
            self.settle();
        }
    }

    /// Adds the time so far of all ended requests. They stay, for what is known later.
    fn settle(&mut self) {
        let mut all = std::mem::take(&mut self.ended);
        all.values_mut().for_each(|ended| self.add(ended));
        self.ended = all;
    }

    fn add(&mut self, ended: &mut EndedRequest) {
        let owner = CellOwner {
            pod: 0,
            group: ended.summed_as.unsigned_abs() % WORKER_GROUPS,
        };
        let began = ended.began.max(0);
        let at = self.sums.place(owner, began, ended.route.into());
        if std::mem::take(&mut ended.is_to_count) {
            self.sums.add_requests(at, 1, ended.samples);
        }
        self.kept -= ended.times.len();
        let RequestTimes {
            stacks,
            leaves,
            other,
        } = std::mem::take(&mut ended.times);
        let stacks = stacks.into_values();
        for (name, [wall, cpu]) in stacks.chain(leaves) {
            let key = u32::try_from(name.index()).ok();
            self.names.extend(key.map(|key| (key, name)));
            self.sums.add_time(at, key, wall, cpu);
        }
        if other != [0; 2] {
            self.sums.add_time(at, None, other[0], other[1]);
        }
        self.sums.fit();
    }

    /// The table, with the names of routes and functions.
    #[must_use]
    pub fn finish<'a>(
        mut self,
        route: impl Fn(u16) -> &'a str,
        function: impl Fn(NameId) -> TreeFunction,
    ) -> CellTable {
        self.settle();
        let names = self.names;
        let route = |key: u32| route(u16::try_from(key).unwrap_or_default());
        let function = |key: u32| {
            let name = names.get(&key).copied();
            function(name.unwrap_or(FunctionNames::UNSTABLE))
        };
        self.sums.finish(&[String::new()], route, function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: LeafStack = LeafStack {
        stack: SummedStack::of_phase(FunctionNames::COMPILING),
        leaf: FunctionNames::COMPILING,
    };

    fn ended(number: u32, began: i64, times: RequestTimes) -> EndedRequest {
        EndedRequest {
            number,
            summed_as: 7,
            began,
            route: 1,
            samples: 3,
            is_to_count: number != 3,
            times,
        }
    }

    fn table(cells: RunCells) -> CellTable {
        let function = |name: NameId| TreeFunction {
            name: format!("f{}", name.index()),
            file: String::new(),
        };
        cells.finish(|route| ["", "/shop"][usize::from(route)], function)
    }

    #[test]
    fn request_is_in_the_slice_of_its_begin() {
        let mut cells = RunCells::default();
        for (number, began) in [(1, -5), (2, 1_300_000_000), (3, 1_400_000_000)] {
            let mut times = RequestTimes::default();
            times.add(STACK, 10, 1);
            cells.end(7, ended(number, began, times));
            // Of the last samples it is known later.
            cells.give_cpu(7, number, STACK, 4);
            cells.give_cpu(7, number + 1, STACK, 100);
        }
        let table = table(cells);
        let found = table.each().map(|(cell, times)| {
            let [time] = times else { panic!("{times:?}") };
            (cell.slice, cell.requests, cell.samples, time.wall, time.cpu)
        });
        // The run has outlived the third.
        assert_eq!(
            found.collect::<Vec<_>>(),
            [(0, 1, 3, 10, 4), (1, 1, 3, 20, 8)]
        );
        assert_eq!(table.routes, ["/shop"]);
    }

    #[test]
    fn stacks_without_room_count_by_function() {
        let mut times = RequestTimes::default();
        let sample = |path: u32| LeafStack {
            stack: SummedStack {
                path: PathId(path),
                ..STACK.stack
            },
            leaf: FunctionNames::LOADING,
        };
        for path in 0..100 {
            times.add(sample(path), 10, MAX_STACKS);
        }
        assert_eq!(times.stacks.len(), FEWEST_STACKS);
        // One has a stack of its own, the other has not.
        times.give_cpu(sample(0), 3);
        times.give_cpu(sample(99), 5);
        let mut cells = RunCells::default();
        cells.end(7, ended(1, 0, times));
        let table = table(cells);
        let found: Vec<_> = table.times.iter().map(|it| (it.wall, it.cpu)).collect();
        assert_eq!(found, [(1000, 8)]);
    }

    #[test]
    fn ended_requests_are_a_bounded_number() {
        let mut cells = RunCells::default();
        for tid in 0..2_000 {
            cells.end(tid, ended(1, 0, RequestTimes::default()));
            assert!(cells.ended.len() <= MAX_ENDED);
        }
        assert_eq!(table(cells).requests(), 2_000);
    }

    /// Each of them was served alone, so each has the stacks of all.
    #[test]
    fn ended_requests_keep_few_stacks_and_their_time() {
        let mut cells = RunCells::default();
        for tid in 0..20 {
            let mut times = RequestTimes::default();
            for path in 0..2_000 {
                let path = PathId(path);
                let stack = SummedStack {
                    path,
                    ..STACK.stack
                };
                times.add(LeafStack { stack, ..STACK }, 10, 1);
            }
            cells.end(tid, ended(1, 0, times));
            let kept = cells.ended.values().map(|it| it.times.len());
            assert_eq!(kept.sum::<usize>(), cells.kept);
            assert!(cells.kept <= MAX_STACKS);
        }
        for tid in 0..20 {
            cells.give_cpu(tid, 1, STACK, 4);
            // Nothing is known later of the first ones.
            if tid < 5 {
                cells.leave(tid);
            }
        }
        assert_eq!(cells.ended.len(), 15);
        let table = table(cells);
        let found = table.times.iter().map(|it| (it.wall, it.cpu));
        assert_eq!(found.collect::<Vec<_>>(), [(20 * 2_000 * 10, 20 * 4)]);
        assert_eq!((table.requests(), table.cells.len()), (20, 1));
    }
}
