//! Draws the two sides of a comparison from the cells of many runs: pure.
//!
//! Invariant: no cluster, which is the cells of one group of workers in one slice, is on both
//! sides, and none is there twice.

use std::collections::BTreeMap;

use phpprof_profile::change::ChangeMeasure;
use phpprof_profile::timeline::{CellTable, CellTime, RouteCell, TreeFunction};

use crate::balance::draws::Draws;

/// A function that is made more expensive on the later side.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlantedCost {
    pub function: String,
    file: String,
    /// What its time is multiplied by.
    factor: f64,
    /// What a request takes longer.
    pub nanoseconds: f64,
    /// The same in percent of a request.
    pub percent: f64,
}

impl PlantedCost {
    pub fn is_none(&self) -> bool {
        self.function.is_empty()
    }
}

/// The cells of a cluster: of one group of workers of one run in one slice.
type PooledCells = Vec<(RouteCell, Vec<CellTime>)>;

/// The clusters of many runs of one application, with common numbers for routes and functions.
pub struct CellPool {
    slice_nanoseconds: i64,
    routes: Vec<String>,
    functions: Vec<TreeFunction>,
    clusters: Vec<PooledCells>,
    /// The seconds of all runs.
    seconds: f64,
    measure: ChangeMeasure,
}

impl CellPool {
    /// Pools tables of one pod with slices of one length.
    pub fn of(tables: &[CellTable], measure: ChangeMeasure) -> Self {
        let mut pool = Self {
            slice_nanoseconds: tables
                .iter()
                .map(|it| it.slice_nanoseconds)
                .max()
                .unwrap_or(1),
            routes: Vec::new(),
            functions: Vec::new(),
            clusters: Vec::new(),
            seconds: 0.0,
            measure,
        };
        for table in tables {
            pool.add(table);
        }
        pool
    }

    fn add(&mut self, table: &CellTable) {
        let mut clusters: BTreeMap<(u32, u32), PooledCells> = BTreeMap::new();
        for (cell, times) in table.each() {
            let route = number(&mut self.routes, &table.routes[cell.route as usize]);
            let renamed = times.iter().map(|time| CellTime {
                function: number(
                    &mut self.functions,
                    &table.functions[time.function as usize],
                ),
                ..*time
            });
            let renamed = renamed.collect();
            let own = clusters.entry((cell.group, cell.slice)).or_default();
            own.push((RouteCell { route, ..*cell }, renamed));
        }
        let slices = clusters
            .keys()
            .map(|(_, slice)| slice + 1)
            .max()
            .unwrap_or(0);
        self.seconds += f64::from(slices) * table.slice_nanoseconds as f64 / 1e9;
        self.clusters.extend(clusters.into_values());
    }

    /// Whether there are clusters enough for two sides of this length, and twice as many for other
    /// draws.
    pub fn has_room(&self, seconds: u64) -> bool {
        4 * self.count(seconds) <= self.clusters.len()
    }

    /// The clusters of a side of this length.
    fn count(&self, seconds: u64) -> usize {
        (self.clusters.len() as f64 * seconds as f64 / self.seconds.max(1.0)).round() as usize
    }

    /// The function whose share of all time is next to this one, made this many times as expensive.
    pub fn planted(&self, share: f64, factor: f64) -> PlantedCost {
        let (mut times, mut requests) = (vec![0.0; self.functions.len()], 0_u64);
        for (cell, own) in self.clusters.iter().flatten() {
            requests += cell.requests;
            for time in own {
                times[time.function as usize] += self.of_measure(time);
            }
        }
        let all: f64 = times.iter().sum();
        let is_off = |time: f64| (time / all.max(1.0) - share).abs();
        let nearest = (0..times.len()).min_by(|one, other| {
            let [one, other] = [*one, *other].map(|index| is_off(times[index]));
            one.total_cmp(&other)
        });
        nearest.map_or_else(PlantedCost::default, |index| PlantedCost {
            function: self.functions[index].name.clone(),
            file: self.functions[index].file.clone(),
            factor,
            nanoseconds: times[index] * (factor - 1.0) / (requests.max(1) as f64),
            percent: 100.0 * times[index] * (factor - 1.0) / all.max(1.0),
        })
    }

    /// Draws both sides, the later with the planted cost.
    pub fn sides(&self, seconds: u64, planted: &PlantedCost, draws: &mut Draws) -> [CellTable; 2] {
        let count = self.count(seconds);
        let mut order: Vec<usize> = (0..self.clusters.len()).collect();
        // The first part of a Fisher-Yates shuffle.
        for index in 0..(2 * count).min(order.len()) {
            let left = (order.len() - index) as u64;
            order.swap(index, index + draws.below(left) as usize);
        }
        let (before, rest) = order.split_at(count.min(order.len()));
        let after = &rest[..count.min(rest.len())];
        [
            self.table(before, &PlantedCost::default()),
            self.table(after, planted),
        ]
    }

    fn table(&self, chosen: &[usize], planted: &PlantedCost) -> CellTable {
        let mut table = CellTable {
            slice_nanoseconds: self.slice_nanoseconds,
            pods: vec![String::new()],
            routes: self.routes.clone(),
            functions: self.functions.clone(),
            ..CellTable::default()
        };
        let is_planted = |time: &CellTime| {
            let function = &self.functions[time.function as usize];
            !planted.is_none() && function.name == planted.function && function.file == planted.file
        };
        for (slice, &cluster) in (0..).zip(chosen) {
            for (cell, times) in &self.clusters[cluster] {
                table.cells.push(RouteCell {
                    group: 0,
                    slice,
                    ..*cell
                });
                let costly = |time: i64| (time as f64 * planted.factor) as i64;
                table.times.extend(times.iter().map(|time| match time {
                    time if is_planted(time) => CellTime {
                        wall: costly(time.wall),
                        cpu: costly(time.cpu),
                        ..*time
                    },
                    _ => *time,
                }));
            }
        }
        table
    }

    fn of_measure(&self, time: &CellTime) -> f64 {
        match self.measure {
            ChangeMeasure::Wall => time.wall as f64,
            ChangeMeasure::Cpu => time.cpu as f64,
        }
    }
}

/// The number of a value in a list, which gets it if it has not got it.
fn number<T: Clone + PartialEq>(list: &mut Vec<T>, value: &T) -> u32 {
    let found = list.iter().position(|other| other == value);
    let index = found.unwrap_or_else(|| {
        list.push(value.clone());
        list.len() - 1
    });
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_280_000_000;

    /// A run of this many slices, in each of which a request of a route has two functions.
    fn run(slices: u32, first: &str) -> CellTable {
        let function = |name: &str| TreeFunction {
            name: name.to_owned(),
            ..TreeFunction::default()
        };
        let time = |function, wall| CellTime {
            function,
            wall,
            cpu: wall / 2,
        };
        CellTable {
            slice_nanoseconds: SECOND,
            pods: vec![String::new()],
            routes: vec![first.to_owned()],
            functions: vec![function(first), function("shared")],
            cells: (0..slices)
                .map(|slice| RouteCell {
                    slice,
                    requests: 1,
                    samples: 10,
                    times: 2,
                    ..RouteCell::default()
                })
                .collect(),
            times: (0..slices)
                .flat_map(|slice| [time(0, 1_000 + i64::from(slice)), time(1, 49_000)])
                .collect(),
            ..CellTable::default()
        }
    }

    #[test]
    fn sides_share_no_cluster() {
        let pool = CellPool::of(&[run(50, "a"), run(50, "b")], ChangeMeasure::Wall);
        assert!(pool.has_room(32) && !pool.has_room(33));
        let [before, after] = pool.sides(32, &PlantedCost::default(), &mut Draws::new(1));
        assert_eq!([before.cells.len(), after.cells.len()], [25, 25]);
        let keys = |table: &CellTable| -> Vec<(u32, i64)> {
            let first = |times: &[CellTime]| (times[0].function, times[0].wall);
            table.each().map(|(_, times)| first(times)).collect()
        };
        let mut all = [keys(&before), keys(&after)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 50);
        // Both runs are on both sides, with their own routes and functions.
        for table in [&before, &after] {
            assert_eq!(table.routes, ["a", "b"]);
            let has = |route| table.cells.iter().any(|cell| cell.route == route);
            assert!(has(0) && has(1));
        }
    }

    #[test]
    fn planted_cost_is_on_one_side() {
        let pool = CellPool::of(&[run(100, "a")], ChangeMeasure::Wall);
        let planted = pool.planted(0.02, 1.5);
        assert_eq!(planted.function, "a");
        assert!((planted.percent - 1.0).abs() < 0.05, "{planted:?}");
        assert!((planted.nanoseconds - 524.75).abs() < 0.01, "{planted:?}");
        let [before, after] = pool.sides(32, &planted, &mut Draws::new(1));
        let sums = [before, after].map(|table| {
            let of = |function| {
                let own = table.times.iter().filter(|time| time.function == function);
                own.map(|time| time.wall).sum::<i64>()
            };
            [of(0), of(1)]
        });
        assert_eq!(sums[0][1], sums[1][1]);
        assert!(sums[1][0] > sums[0][0] * 4 / 3, "{sums:?}");
    }
}
