//! Cells: how the time of requests varies from one piece of a run to another. A verdict on two
//! profiles needs that, and a profile's sums do not have it.
//!
//! A cell has the requests of one route that one group of workers of one pod began in one slice of
//! time, and their time by the function that ran (self time). A request is in one cell, with all of
//! its time. Requests that ended count; those that a run saw only in part have time without a
//! count at its end, and a count without all of their time at its beginning, so that the mean over
//! a run is right.
//!
//! Invariant: a decoded table has no invalid index, and no list is longer than its bound here.

use serde::{Deserialize, Serialize};

use super::TreeFunction;
use super::bounded::{MAX_TIME, bounded};

/// The length of the shortest slice. Longer ones are this one doubled several times.
pub const FIRST_SLICE: i64 = 1_280_000_000;
/// The most pods of a table.
pub const MAX_CELL_PODS: usize = 256;
/// The most routes of a table, with `(other)`.
pub const MAX_CELL_ROUTES: usize = 64;
/// The most functions of a table, with `(other)`.
pub const MAX_CELL_FUNCTIONS: usize = 2_048;
/// The most bytes of a name in a table.
pub const MAX_CELL_STRING: usize = 512;
/// The most requests of a cell, and the most samples: sums of all cells are exact as [`f64`].
pub(super) const MAX_CELL_COUNT: u64 = 1 << 32;
/// The most cells of a table.
pub const MAX_CELLS: usize = 1 << 14;
/// The most times of all cells of a table together.
pub const MAX_CELL_TIMES: usize = 1 << 16;

/// The cells of a run, or of the runs of several pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CellTable {
    /// How long a slice is: [`FIRST_SLICE`], doubled several times.
    pub slice_nanoseconds: i64,
    /// Names of pods; the name is empty on a host.
    #[serde(deserialize_with = "bounded::<_, _, MAX_CELL_PODS>")]
    pub pods: Vec<String>,
    /// Templates such as `/users/{id}`, `(other)`, or empty for requests whose route is not known.
    #[serde(deserialize_with = "bounded::<_, _, MAX_CELL_ROUTES>")]
    pub routes: Vec<String>,
    /// Functions; that of time without room has the name `(other)` and no file.
    #[serde(deserialize_with = "bounded::<_, _, MAX_CELL_FUNCTIONS>")]
    pub functions: Vec<TreeFunction>,
    /// In the order of their pods, groups, slices and routes, each once.
    #[serde(deserialize_with = "bounded::<_, _, MAX_CELLS>")]
    pub cells: Vec<RouteCell>,
    /// The times of all cells, in the order of the cells.
    #[serde(deserialize_with = "bounded::<_, _, MAX_CELL_TIMES>")]
    pub times: Vec<CellTime>,
    /// Nanoseconds of wall time of functions and routes without a row of their own.
    pub other_nanoseconds: i64,
}

/// A cell. As JSON: `[pod, group, slice, route, requests, samples, times]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "(u32, u32, u32, u32, u64, u64, u32)",
    into = "(u32, u32, u32, u32, u64, u64, u32)"
)]
pub struct RouteCell {
    /// An index in [`CellTable::pods`].
    pub pod: u32,
    /// The number of a group of the pod's workers.
    pub group: u32,
    /// The number of the slice in which its requests began.
    pub slice: u32,
    /// An index in [`CellTable::routes`].
    pub route: u32,
    /// The number of its requests that were seen and ended.
    pub requests: u64,
    /// The number of their samples.
    pub samples: u64,
    /// How many of [`CellTable::times`] belong to it.
    pub times: u32,
}

/// The self time of a function. As JSON: `[function, wall, cpu]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, i64, i64)", into = "(u32, i64, i64)")]
pub struct CellTime {
    /// An index in [`CellTable::functions`].
    pub function: u32,
    /// Nanoseconds of wall time.
    pub wall: i64,
    /// Nanoseconds of CPU time.
    pub cpu: i64,
}

impl CellTable {
    /// The cells, each with its times.
    pub fn each(&self) -> impl Iterator<Item = (&RouteCell, &[CellTime])> {
        let mut rest = self.times.as_slice();
        self.cells.iter().map(move |cell| {
            let (own, others) = rest.split_at((cell.times as usize).min(rest.len()));
            rest = others;
            (cell, own)
        })
    }

    /// The requests that ended.
    #[must_use]
    pub fn requests(&self) -> u64 {
        let requests = self.cells.iter().map(|cell| cell.requests);
        requests.fold(0, u64::saturating_add)
    }

    /// Whether every index exists and every number has a value that a run can have.
    pub(super) fn is_whole(&self) -> bool {
        let slice = self.slice_nanoseconds;
        let has_slice = (FIRST_SLICE..=MAX_TIME).contains(&slice)
            && slice % FIRST_SLICE == 0
            && (slice / FIRST_SLICE).count_ones() == 1;
        let exists = |index: u32, count: usize| (index as usize) < count;
        let is_cell = |cell: &RouteCell| {
            exists(cell.pod, self.pods.len())
                && exists(cell.route, self.routes.len())
                && cell.requests.max(cell.samples) <= MAX_CELL_COUNT
        };
        let is_time = |time: &CellTime| {
            exists(time.function, self.functions.len())
                && (0..=MAX_TIME).contains(&time.wall)
                && (0..=MAX_TIME).contains(&time.cpu)
        };
        let key = |cell: &RouteCell| (cell.pod, cell.group, cell.slice, cell.route);
        let count: u64 = self.cells.iter().map(|cell| u64::from(cell.times)).sum();
        has_slice
            && (0..=MAX_TIME).contains(&self.other_nanoseconds)
            && self.cells.iter().all(is_cell)
            && self.cells.is_sorted_by(|one, next| key(one) < key(next))
            && self.times.iter().all(is_time)
            && count == self.times.len() as u64
    }

    /// Whether every text is short enough.
    pub(super) fn has_short_texts(&self) -> bool {
        let rows = self.pods.iter().chain(&self.routes);
        let functions = self.functions.iter();
        rows.chain(functions.flat_map(|it| [&it.name, &it.file]))
            .all(|text| text.len() <= MAX_CELL_STRING)
    }
}

/// A cell as it is written.
type CellTuple = (u32, u32, u32, u32, u64, u64, u32);

impl From<CellTuple> for RouteCell {
    fn from((pod, group, slice, route, requests, samples, times): CellTuple) -> Self {
        Self {
            pod,
            group,
            slice,
            route,
            requests,
            samples,
            times,
        }
    }
}

impl From<RouteCell> for CellTuple {
    fn from(cell: RouteCell) -> Self {
        let RouteCell {
            pod,
            group,
            slice,
            route,
            requests,
            samples,
            times,
        } = cell;
        (pod, group, slice, route, requests, samples, times)
    }
}

impl From<(u32, i64, i64)> for CellTime {
    fn from((function, wall, cpu): (u32, i64, i64)) -> Self {
        Self {
            function,
            wall,
            cpu,
        }
    }
}

impl From<CellTime> for (u32, i64, i64) {
    fn from(time: CellTime) -> Self {
        (time.function, time.wall, time.cpu)
    }
}
