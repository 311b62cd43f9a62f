//! Cells while they grow: in a sampler, and where the tables of several pods become one.
//!
//! Without room, cells become coarser before anything is lost: slices get twice as long, or groups
//! of workers become one, and only when both are at their end do the functions with the least time
//! become `(other)`. A coarser cell is still a cell, so what is derived from cells stays right, and
//! tables with slices of different lengths can become one.
//!
//! Functions and routes are ranked by their shares of the time of each pod, so that a pod that
//! claims much time does not take all names.
//!
//! Invariant: no time and no request is lost, and [`CellSums`] never has more cells or times than
//! its limits. Memory: about 60 bytes for each of both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::bounded::MAX_TIME;
use super::cells::{
    CellTable, CellTime, FIRST_SLICE, MAX_CELL_COUNT, MAX_CELL_FUNCTIONS, MAX_CELL_PODS,
    MAX_CELL_ROUTES, MAX_CELL_STRING, MAX_CELL_TIMES, MAX_CELLS, RouteCell,
};
use super::{OTHER, TreeFunction};
use crate::bounds;

/// How many groups the workers of a pod are in.
pub const WORKER_GROUPS: u32 = 16;
/// The most names of one kind that a merger knows before it knows which will have the most time.
const MAX_NAMES: usize = 2 * MAX_CELL_FUNCTIONS;

/// Whose requests a cell has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellOwner {
    /// The number of a pod.
    pub pod: u32,
    /// The number of a group of its workers.
    pub group: u32,
}

/// The place of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellPlace {
    /// Whose requests.
    pub owner: CellOwner,
    /// The number of the slice, from any beginning.
    pub slice: i64,
    /// The number of the route.
    pub route: u32,
}

/// The most cells and times.
#[derive(Debug, Clone, Copy)]
pub struct CellLimits {
    /// Cells.
    pub cells: usize,
    /// Times of all cells together.
    pub times: usize,
}

impl CellLimits {
    /// Those of one run.
    pub const RUN: Self = Self {
        cells: MAX_CELLS / 4,
        times: MAX_CELL_TIMES / 4,
    };
    /// Those of a file.
    pub const FILE: Self = Self {
        cells: MAX_CELLS,
        times: MAX_CELL_TIMES,
    };
}

impl CellTable {
    /// What is in a table, but in none that a sampler writes of a run of this length. Where several
    /// tables become one, such a table would take the room of others.
    pub(super) fn fault_of_run(&self, duration: i64) -> Option<&'static str> {
        let longest = FIRST_SLICE.max(duration.saturating_mul(2));
        let begin = |cell: &RouteCell| i64::from(cell.slice).saturating_mul(self.slice_nanoseconds);
        let most = CellLimits::RUN;
        let checks = [
            (
                self.cells.len() <= most.cells && self.times.len() <= most.times,
                "it has more cells than a run",
            ),
            (
                self.cells.iter().all(|cell| cell.group < WORKER_GROUPS),
                "it has more groups of workers than a run",
            ),
            (
                self.slice_nanoseconds <= longest
                    && self.cells.iter().all(|cell| begin(cell) <= longest),
                "its slices are longer than the run",
            ),
        ];
        let mut checks = checks.into_iter();
        checks.find_map(|(is_right, what)| (!is_right).then_some(what))
    }
}

/// Cells by the numbers of their routes and functions; `None` is the function `(other)`.
#[derive(Debug)]
pub struct CellSums {
    limits: CellLimits,
    slice: i64,
    /// How often two groups have become one.
    halvings: u32,
    /// Requests and samples of each cell.
    cells: BTreeMap<CellPlace, [u64; 2]>,
    /// Wall and CPU time.
    times: BTreeMap<(CellPlace, Option<u32>), [i64; 2]>,
    /// Functions that are in `(other)` for good.
    folded: BTreeSet<u32>,
}

impl CellSums {
    /// Starts empty.
    #[must_use]
    pub fn new(limits: CellLimits) -> Self {
        Self {
            limits,
            slice: FIRST_SLICE,
            halvings: 0,
            cells: BTreeMap::new(),
            times: BTreeMap::new(),
            folded: BTreeSet::new(),
        }
    }

    /// The place of requests that began at this time, in nanoseconds from any beginning.
    #[must_use]
    pub fn place(&self, owner: CellOwner, began: i64, route: u32) -> CellPlace {
        CellPlace {
            owner: CellOwner {
                group: owner.group >> self.halvings,
                ..owner
            },
            slice: began.div_euclid(self.slice),
            route,
        }
    }

    /// Adds requests that ended, and their samples.
    pub fn add_requests(&mut self, at: CellPlace, requests: u64, samples: u64) {
        let [all_requests, all_samples] = self.cells.entry(at).or_default();
        let sum = |one: u64, other: u64| one.saturating_add(other).min(MAX_CELL_COUNT);
        *all_requests = sum(*all_requests, requests);
        *all_samples = sum(*all_samples, samples);
    }

    /// Adds the time of a function.
    pub fn add_time(&mut self, at: CellPlace, function: Option<u32>, wall: i64, cpu: i64) {
        let function = function.filter(|function| !self.folded.contains(function));
        self.cells.entry(at).or_default();
        add(
            self.times.entry((at, function)).or_default(),
            [wall, cpu].map(|time| time.clamp(0, MAX_TIME)),
        );
    }

    /// Makes room, if there are more cells or times than the limits allow. Places from before are
    /// wrong afterwards.
    pub fn fit(&mut self) {
        while self.cells.len() > self.limits.cells || self.times.len() > self.limits.times {
            let slices: BTreeSet<i64> = self.cells.keys().map(|at| at.slice).collect();
            let groups: BTreeSet<u32> = self.cells.keys().map(|at| at.owner.group).collect();
            match (slices.len(), groups.len()) {
                (0 | 1, 0 | 1) if self.times.len() <= self.limits.times => self.one_route(),
                (0 | 1, 0 | 1) => self.fold(),
                (slices, groups) if slices >= groups => self.double(),
                _ => self.halve(),
            }
        }
    }

    fn double(&mut self) {
        self.slice *= 2;
        self.moved(|at| CellPlace {
            slice: at.slice.div_euclid(2),
            ..at
        });
    }

    fn halve(&mut self) {
        self.halvings += 1;
        self.moved(|at| CellPlace {
            owner: CellOwner {
                group: at.owner.group / 2,
                ..at.owner
            },
            ..at
        });
    }

    /// All cells of a pod become one: there are more pods and routes than cells.
    fn one_route(&mut self) {
        let one = self.cells.keys().map(|at| at.route).min().unwrap_or(0);
        self.moved(|at| CellPlace { route: one, ..at });
        self.limits.cells = self.limits.cells.max(self.cells.len());
    }

    fn moved(&mut self, to: impl Fn(CellPlace) -> CellPlace) {
        for (at, [requests, samples]) in std::mem::take(&mut self.cells) {
            self.add_requests(to(at), requests, samples);
        }
        for ((at, function), time) in std::mem::take(&mut self.times) {
            add(self.times.entry((to(at), function)).or_default(), time);
        }
    }

    /// Moves the half of the functions with the least time to `(other)`.
    fn fold(&mut self) {
        let order = self.ranked(|_, function| function);
        if order.is_empty() {
            self.limits.times = self.times.len();
        }
        self.folded.extend(order.iter().skip(order.len() / 2));
        for ((at, function), time) in std::mem::take(&mut self.times) {
            let function = function.filter(|function| !self.folded.contains(function));
            add(self.times.entry((at, function)).or_default(), time);
        }
    }

    /// The keys of times by their shares of the wall time of each pod, added up; largest first.
    fn ranked(&self, key_of: impl Fn(CellPlace, Option<u32>) -> Option<u32>) -> Vec<u32> {
        let (mut all, mut own) = (HashMap::<u32, i64>::new(), BTreeMap::<_, i64>::new());
        for ((at, function), [wall, _]) in &self.times {
            let pod = at.owner.pod;
            let sums = [
                Some(all.entry(pod).or_default()),
                key_of(*at, *function).map(|key| own.entry((pod, key)).or_default()),
            ];
            for sum in sums.into_iter().flatten() {
                *sum = sum.saturating_add(*wall);
            }
        }
        let mut shares = HashMap::<u32, f64>::new();
        for ((pod, key), wall) in own {
            let all = all.get(&pod).copied().unwrap_or(0).max(1);
            *shares.entry(key).or_default() += wall as f64 / all as f64;
        }
        let mut order: Vec<(u32, f64)> = shares.into_iter().collect();
        order.sort_unstable_by(|(one, share), (other, others)| {
            others.total_cmp(share).then(one.cmp(other))
        });
        order.into_iter().map(|(key, _)| key).collect()
    }

    /// The table, with the names of pods, routes and functions by their numbers. Names that are
    /// equal become one row; of too many, those with the least time become `(other)`.
    #[must_use]
    pub fn finish<'a>(
        mut self,
        pods: &[String],
        route: impl Fn(u32) -> &'a str,
        function: impl Fn(u32) -> TreeFunction,
    ) -> CellTable {
        let (mut routes, mut functions) = (CellNames::default(), CellNames::default());
        let other = functions.number(other_function(), MAX_NAMES);
        let ranked = self.ranked(|_, function| function).into_iter();
        let numbers: HashMap<u32, u32> = ranked
            .filter_map(|key| {
                let name = cut(&function(key));
                Some((key, functions.number(name, MAX_CELL_FUNCTIONS)?))
            })
            .collect();
        let mut of_routes = self.ranked(|at, _| Some(at.route));
        let timed: BTreeSet<u32> = of_routes.iter().copied().collect();
        let all: BTreeSet<u32> = self.cells.keys().map(|at| at.route).collect();
        of_routes.extend(all.difference(&timed));
        let route_numbers: HashMap<u32, u32> = of_routes
            .into_iter()
            .map(|key| {
                let name = bounds::beginning(route(key), MAX_CELL_STRING).to_owned();
                let number = routes.number(name, MAX_CELL_ROUTES - 1);
                let number = number.or_else(|| routes.number(OTHER.to_owned(), MAX_CELL_ROUTES));
                (key, number.unwrap_or(0))
            })
            .collect();
        let first = self.cells.keys().map(|at| at.slice).min().unwrap_or(0);
        self.moved(|at| CellPlace {
            slice: at.slice.saturating_sub(first),
            route: route_numbers.get(&at.route).copied().unwrap_or(0),
            ..at
        });
        let mut times: BTreeMap<(CellPlace, u32), [i64; 2]> = BTreeMap::new();
        for ((at, key), time) in &self.times {
            let number = key.and_then(|key| numbers.get(&key).copied()).or(other);
            add(times.entry((*at, number.unwrap_or(0))).or_default(), *time);
        }
        let pods = pods.iter().take(MAX_CELL_PODS);
        CellTable {
            slice_nanoseconds: self.slice,
            pods: pods.cloned().collect(),
            routes: routes.list,
            functions: functions.list,
            ..table(&self.cells, &times)
        }
    }
}

/// The lists of cells and times.
fn table(
    cells: &BTreeMap<CellPlace, [u64; 2]>,
    times: &BTreeMap<(CellPlace, u32), [i64; 2]>,
) -> CellTable {
    let mut table = CellTable::default();
    for (at, [requests, samples]) in cells {
        let own = times.range((*at, 0)..=(*at, u32::MAX));
        let before = table.times.len();
        table
            .times
            .extend(own.map(|((_, function), [wall, cpu])| CellTime {
                function: *function,
                wall: *wall,
                cpu: *cpu,
            }));
        table.cells.push(RouteCell {
            pod: at.owner.pod,
            group: at.owner.group,
            slice: u32::try_from(at.slice).unwrap_or(u32::MAX),
            route: at.route,
            requests: *requests,
            samples: *samples,
            times: u32::try_from(table.times.len() - before).unwrap_or(u32::MAX),
        });
    }
    let other = table.times.iter().filter(|time| time.function == 0);
    let other = other.fold(0_i64, |sum, time| sum.saturating_add(time.wall));
    table.other_nanoseconds = other.min(MAX_TIME);
    table
}

fn cut(function: &TreeFunction) -> TreeFunction {
    let [name, file] = [&function.name, &function.file]
        .map(|text| bounds::beginning(text, MAX_CELL_STRING).to_owned());
    TreeFunction { name, file }
}

fn other_function() -> TreeFunction {
    TreeFunction {
        name: OTHER.to_owned(),
        file: String::new(),
    }
}

fn add(sum: &mut [i64; 2], more: [i64; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more).min(MAX_TIME);
    }
}

/// Names with their numbers.
#[derive(Debug)]
struct CellNames<N> {
    list: Vec<N>,
    numbers: HashMap<N, u32>,
}

impl<N> Default for CellNames<N> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<N: Clone + Eq + std::hash::Hash> CellNames<N> {
    /// The name's number; `None` if it is new and there is no room.
    fn number(&mut self, name: N, most: usize) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&name) {
            return Some(number);
        }
        let number = u32::try_from(self.list.len()).ok()?;
        if self.list.len() >= most {
            return None;
        }
        self.list.push(name.clone());
        self.numbers.insert(name, number);
        Some(number)
    }
}

/// Tables of several pods while they become one.
#[derive(Debug)]
pub struct CellMerger {
    sums: CellSums,
    /// If there are too many, the others count as the last one.
    pods: Vec<String>,
    routes: CellNames<String>,
    functions: CellNames<TreeFunction>,
    has_any: bool,
}

impl Default for CellMerger {
    fn default() -> Self {
        let mut routes = CellNames::default();
        routes.number(OTHER.to_owned(), 1);
        Self {
            sums: CellSums::new(CellLimits::FILE),
            pods: Vec::new(),
            routes,
            functions: CellNames::default(),
            has_any: false,
        }
    }
}

impl CellMerger {
    /// Adds the table of a pod whose run began at this Unix time. The pod's name comes from the
    /// caller, not from the table.
    pub fn add(&mut self, table: &CellTable, pod: &str, began: i64) {
        self.has_any = true;
        if self.pods.len() < MAX_CELL_PODS {
            let pod = bounds::beginning(pod, MAX_CELL_STRING);
            self.pods.push(pod.to_owned());
        }
        let pod = u32::try_from(self.pods.len().saturating_sub(1)).unwrap_or(0);
        let routes: Vec<u32> = table
            .routes
            .iter()
            .map(|route| self.routes.number(route.clone(), MAX_NAMES).unwrap_or(0))
            .collect();
        let other = other_function();
        let functions: Vec<Option<u32>> = table
            .functions
            .iter()
            .map(|function| {
                let known = Some(function).filter(|it| **it != other)?;
                self.functions.number(known.clone(), MAX_NAMES)
            })
            .collect();
        for (cell, times) in table.each() {
            let owner = CellOwner {
                pod,
                group: cell.group,
            };
            let slice = i64::from(cell.slice).saturating_mul(table.slice_nanoseconds);
            let route = routes.get(cell.route as usize).copied().unwrap_or(0);
            let at = self.sums.place(owner, began.saturating_add(slice), route);
            self.sums.add_requests(at, cell.requests, cell.samples);
            for time in times {
                let function = functions.get(time.function as usize).copied().flatten();
                self.sums.add_time(at, function, time.wall, time.cpu);
            }
            self.sums.fit();
        }
    }

    /// The merged table; `None` if there was none.
    #[must_use]
    pub fn finish(self) -> Option<CellTable> {
        let Self {
            sums,
            pods,
            routes,
            functions,
            has_any,
        } = self;
        let route = |key: u32| routes.list.get(key as usize).map_or(OTHER, String::as_str);
        let function = |key: u32| {
            let function = functions.list.get(key as usize);
            function.cloned().unwrap_or_else(other_function)
        };
        has_any.then(|| sums.finish(&pods, route, function))
    }
}

#[cfg(test)]
mod tests;
