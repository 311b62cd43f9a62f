//! The cells of a run: its requests by route, group of workers and slice of time, with their self
//! time by function. Pure.
//!
//! CPU time is divided among many samples at once ([`crate::read::cpu_shares`]), so most of it is
//! known long after its request has ended: until then, the cell of the request is.
//!
//! Invariant: functions without room count as `(other)`. Only CPU time is lost that becomes known
//! after 16,384 later requests have begun. Memory: 16,384 times and 4,096 cells of about 60 bytes
//! each, 12 bytes for each of the 16,384 requests, and 40 bytes for each function of the `n`
//! requests that are served at once: 8,192 × (1 + ln n), or 256 each if that is more. That is 2.9
//! MB for 64 such requests.

use phpprof_profile::timeline::{
    CellLimits, CellOwner, CellPlace, CellSums, CellTable, FIRST_SLICE, TreeFunction, WORKER_GROUPS,
};
use rustc_hash::FxHashMap;

use crate::stack::call_tree::{CallTree, PathId};
use crate::stack::names::{FunctionNames, NameId};
use crate::stack::trace::{Ending, SummedStack};

/// The most functions of one request: if `n` are served when it meets another function, it has an
/// `n`th of this.
const MAX_LEAVES: usize = 8_192;
/// Each has at least this many.
const FEWEST_LEAVES: usize = 256;
/// The most ended requests whose cells are known, for the rest of their CPU time. A worker has up
/// to 256 samples that wait for theirs, so it is enough for 64 workers.
const MAX_ENDED: usize = 16_384;

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

/// The time of one request, by function.
#[derive(Debug, Default)]
pub struct RequestTimes {
    leaves: FxHashMap<NameId, SelfTime>,
    /// Of functions without room.
    other: SelfTime,
}

impl RequestTimes {
    /// Adds the wall time of a sample. `serving` is the number of requests that have such times.
    pub fn add(&mut self, leaf: NameId, wall: i64, serving: usize) {
        let sum = &mut self.of(leaf, serving)[0];
        *sum = sum.saturating_add(wall);
    }

    /// Adds CPU time of an earlier sample.
    pub fn give_cpu(&mut self, leaf: NameId, nanoseconds: u64, serving: usize) {
        let sum = &mut self.of(leaf, serving)[1];
        *sum = sum.saturating_add(signed(nanoseconds));
    }

    fn of(&mut self, leaf: NameId, serving: usize) -> &mut SelfTime {
        let room = (MAX_LEAVES / serving.max(1)).max(FEWEST_LEAVES);
        if self.leaves.len() < room || self.leaves.contains_key(&leaf) {
            self.leaves.entry(leaf).or_default()
        } else {
            &mut self.other
        }
    }
}

fn signed(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
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
    /// Whether the run ended before it: then it has time, but does not count.
    pub is_unfinished: bool,
    /// Its time.
    pub times: RequestTimes,
}

/// Whose cell an ended request is in, however long slices become.
#[derive(Debug, Clone, Copy, Default)]
struct EndedPlace {
    /// The number of the request; 0 means none.
    number: u32,
    /// The number of the shortest slice in which it began.
    slice: u32,
    route: u16,
    group: u8,
}

/// The cells of a run so far.
#[derive(Debug)]
pub struct RunCells {
    sums: CellSums,
    names: FxHashMap<u32, NameId>,
    /// Of the newest requests that have ended, each at its number modulo [`MAX_ENDED`].
    ended: Vec<EndedPlace>,
}

impl Default for RunCells {
    fn default() -> Self {
        Self {
            sums: CellSums::new(CellLimits::RUN),
            names: FxHashMap::default(),
            ended: Vec::new(),
        }
    }
}

impl RunCells {
    /// Takes a request that has ended, with its time so far.
    pub fn end(&mut self, ended: EndedRequest) {
        let place = EndedPlace {
            number: ended.number,
            slice: u32::try_from(ended.began.max(0) / FIRST_SLICE).unwrap_or(u32::MAX),
            route: ended.route,
            group: (ended.summed_as.unsigned_abs() % WORKER_GROUPS) as u8,
        };
        let at = self.at(place);
        if !ended.is_unfinished {
            self.sums.add_requests(at, 1, ended.samples);
        }
        let RequestTimes { leaves, other } = ended.times;
        for (name, [wall, cpu]) in leaves {
            let key = self.key(name);
            self.sums.add_time(at, key, wall, cpu);
        }
        if other != [0; 2] {
            self.sums.add_time(at, None, other[0], other[1]);
        }
        self.sums.fit();
        self.keep(place);
    }

    fn keep(&mut self, place: EndedPlace) {
        let slot = place.number as usize % MAX_ENDED;
        if self.ended.len() <= slot {
            self.ended.resize(slot + 1, EndedPlace::default());
        }
        self.ended[slot] = place;
    }

    /// Gives CPU time to a request that has ended.
    pub fn give_cpu(&mut self, number: u32, leaf: NameId, nanoseconds: u64) {
        let place = self.ended.get(number as usize % MAX_ENDED).copied();
        let Some(place) = place.filter(|place| place.number == number) else {
            return;
        };
        let (at, key) = (self.at(place), self.key(leaf));
        self.sums.add_time(at, key, 0, signed(nanoseconds));
        self.sums.fit();
    }

    fn at(&self, place: EndedPlace) -> CellPlace {
        let owner = CellOwner {
            pod: 0,
            group: place.group.into(),
        };
        let began = i64::from(place.slice).saturating_mul(FIRST_SLICE);
        self.sums.place(owner, began, place.route.into())
    }

    /// The number of a function in the table, whose name is kept.
    fn key(&mut self, name: NameId) -> Option<u32> {
        let key = u32::try_from(name.index()).ok();
        self.names.extend(key.map(|key| (key, name)));
        key
    }

    /// The table, with the names of routes and functions.
    #[must_use]
    pub fn finish<'a>(
        self,
        route: impl Fn(u16) -> &'a str,
        function: impl Fn(NameId) -> TreeFunction,
    ) -> CellTable {
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
    use phpprof_profile::timeline::CellTime;

    use super::*;
    use crate::stack::names::FunctionName;

    const LEAF: NameId = FunctionNames::COMPILING;

    fn ended(number: u32, began: i64, times: RequestTimes) -> EndedRequest {
        EndedRequest {
            number,
            summed_as: 7,
            began,
            route: 1,
            samples: 3,
            is_unfinished: number == 3,
            times,
        }
    }

    fn times(wall: i64) -> RequestTimes {
        let mut times = RequestTimes::default();
        times.add(LEAF, wall, 1);
        times
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
            cells.end(ended(number, began, times(10)));
        }
        let table = table(cells);
        let found = table.each().map(|(cell, times)| {
            let [time] = times else { panic!("{times:?}") };
            (cell.slice, cell.requests, cell.samples, time.wall)
        });
        // The run has outlived the third.
        assert_eq!(found.collect::<Vec<_>>(), [(0, 1, 3, 10), (1, 1, 3, 20)]);
        assert_eq!(table.routes, ["/shop"]);
    }

    /// Of sixty-four samples at once, each of another request.
    #[test]
    fn cpu_time_known_later_is_in_its_cell() {
        let mut cells = RunCells::default();
        for number in 1..=64 {
            let began = i64::from(number) * 100_000_000;
            cells.end(ended(number + 3, began, times(10)));
        }
        for number in 1..=64 {
            cells.give_cpu(number + 3, LEAF, number.into());
        }
        cells.give_cpu(1_000, LEAF, 1_000_000);
        let table = table(cells);
        let found = table.each().map(|(cell, times)| (cell.slice, times[0].cpu));
        // Slices of 1.28 seconds.
        let expected = [
            (0, (1..=12).sum::<i64>()),
            (1, (13..=25).sum()),
            (2, (26..=38).sum()),
            (3, (39..=51).sum()),
            (4, (52..=63).sum()),
            (5, 64),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    /// Slices have become longer since the request ended.
    #[test]
    fn cpu_stays_in_its_cell_with_longer_slices() {
        let mut cells = RunCells::default();
        let slices = 2 * CellLimits::RUN.cells as u32;
        for number in 4..4 + slices {
            let began = i64::from(number - 4) * 1_280_000_000;
            cells.end(ended(number, began, times(10)));
        }
        cells.give_cpu(4, LEAF, 5);
        let table = table(cells);
        assert!(table.cells.len() <= CellLimits::RUN.cells);
        let cpu: Vec<i64> = table.times.iter().map(|time| time.cpu).collect();
        assert_eq!((cpu[0], cpu.iter().sum::<i64>()), (5, 5));
    }

    #[test]
    fn functions_without_room_are_other() {
        let mut times = RequestTimes::default();
        let mut names = FunctionNames::default();
        for index in 0..300 {
            let leaf = names.intern(FunctionName {
                name: &format!("f{index}"),
                file: "",
                start_line: 1,
            });
            times.add(leaf, 10, MAX_LEAVES);
            times.give_cpu(leaf, 3, MAX_LEAVES);
        }
        assert_eq!(times.leaves.len(), FEWEST_LEAVES);
        assert_eq!(times.other, [440, 132]);
        let mut cells = RunCells::default();
        cells.end(ended(1, 0, times));
        let table = table(cells);
        let sum = |of: fn(&CellTime) -> i64| table.times.iter().map(of).sum::<i64>();
        assert_eq!([sum(|it| it.wall), sum(|it| it.cpu)], [3_000, 900]);
    }

    #[test]
    fn ended_requests_are_a_bounded_number() {
        let mut cells = RunCells::default();
        for number in 4..20_000 {
            cells.end(ended(number, 0, RequestTimes::default()));
            assert!(cells.ended.len() <= MAX_ENDED);
        }
        assert_eq!(table(cells).requests(), 19_996);
    }
}
