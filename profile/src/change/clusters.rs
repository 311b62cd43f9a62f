//! Two tables of cells as numbers: time and requests by route and cluster, on both sides with the
//! same routes and functions.
//!
//! Invariant: routes and functions have one number for both sides. The times of all functions of a
//! route and cluster add up to its time.

use std::collections::{BTreeMap, HashMap};

use super::estimate::ClusterMean;
use super::report::ChangeMeasure;
use crate::timeline::{CellTable, CellTime};
use crate::top_levels::plain;

/// Slices of one group become longer while more clusters than this remain: longer slices are less
/// alike, and this many are enough to know an error.
const ENOUGH_CLUSTERS: usize = 96;

/// Requests and time of one route in one cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RouteTime {
    pub requests: f64,
    pub time: f64,
}

/// One side of a comparison.
#[derive(Debug, Default)]
pub(super) struct ClusterSide {
    /// By route, and then by cluster.
    pub routes: Vec<Vec<RouteTime>>,
    /// The samples of each route's requests.
    pub samples: Vec<f64>,
    /// The time of each function, by route and cluster.
    pub functions: Vec<BTreeMap<(usize, usize), f64>>,
    /// The pod of each cluster.
    pub pods: Vec<u32>,
}

/// Both sides, with the names of their rows.
#[derive(Debug)]
pub(super) struct ClusterPair {
    pub routes: Vec<String>,
    /// Name and file.
    pub functions: Vec<(String, String)>,
    pub before: ClusterSide,
    pub after: ClusterSide,
}

impl ClusterPair {
    pub fn of(before: &CellTable, after: &CellTable, measure: ChangeMeasure) -> Self {
        let (mut routes, mut functions) = (KeyNumbers::default(), KeyNumbers::default());
        let [mut before, mut after] =
            [before, after].map(|table| side(table, measure, &mut routes, &mut functions));
        for side in [&mut before, &mut after] {
            let clusters = side.pods.len();
            side.routes
                .resize(routes.list.len(), vec![RouteTime::default(); clusters]);
            side.samples.resize(routes.list.len(), 0.0);
            side.functions.resize(functions.list.len(), BTreeMap::new());
        }
        Self {
            routes: routes.list,
            functions: functions.list,
            before,
            after,
        }
    }
}

fn side(
    table: &CellTable,
    measure: ChangeMeasure,
    routes: &mut KeyNumbers<String>,
    functions: &mut KeyNumbers<(String, String)>,
) -> ClusterSide {
    let longer = doublings(table);
    let mut numbers = KeyNumbers::default();
    for cell in &table.cells {
        numbers.of((cell.pod, cell.group, cell.slice >> longer));
    }
    let clusters = numbers.list.len();
    let mut side = ClusterSide {
        pods: numbers.list.iter().map(|(pod, _, _)| *pod).collect(),
        ..ClusterSide::default()
    };
    for (cell, times) in table.each() {
        let name = |index: u32, list: &[String]| list.get(index as usize).cloned();
        let route = routes.of(name(cell.route, &table.routes).unwrap_or_default());
        let cluster = numbers.of((cell.pod, cell.group, cell.slice >> longer));
        if side.routes.len() <= route {
            side.routes
                .resize(route + 1, vec![RouteTime::default(); clusters]);
            side.samples.resize(route + 1, 0.0);
        }
        side.samples[route] += cell.samples as f64;
        side.routes[route][cluster].requests += cell.requests as f64;
        for time in times {
            let value = of_measure(time, measure);
            side.routes[route][cluster].time += value;
            let Some(function) = table.functions.get(time.function as usize) else {
                continue;
            };
            let name = plain(&function.name, &function.file).into_owned();
            let function = functions.of((name, function.file.clone()));
            if side.functions.len() <= function {
                side.functions.resize(function + 1, BTreeMap::new());
            }
            *side.functions[function]
                .entry((route, cluster))
                .or_default() += value;
        }
    }
    side
}

/// How often slices are doubled so that about [`ENOUGH_CLUSTERS`] remain.
fn doublings(table: &CellTable) -> u32 {
    let count = |longer: u32| {
        let keys = table.cells.iter();
        let keys = keys.map(|cell| (cell.pod, cell.group, cell.slice >> longer));
        keys.collect::<std::collections::BTreeSet<_>>().len()
    };
    let longest = (1..31).take_while(|longer| count(*longer) >= ENOUGH_CLUSTERS);
    // Beyond the longest slice, the count does not change any more.
    let slices = table.cells.iter().map(|cell| cell.slice).max().unwrap_or(0);
    longest.last().unwrap_or(0).min(32 - slices.leading_zeros())
}

fn of_measure(time: &CellTime, measure: ChangeMeasure) -> f64 {
    match measure {
        ChangeMeasure::Wall => time.wall as f64,
        ChangeMeasure::Cpu => time.cpu as f64,
    }
}

impl ClusterSide {
    /// Requests and time of a route.
    pub fn total(&self, route: usize) -> RouteTime {
        let clusters = self.routes.get(route).into_iter().flatten();
        clusters.fold(RouteTime::default(), |sum, it| RouteTime {
            requests: sum.requests + it.requests,
            time: sum.time + it.time,
        })
    }

    /// The number of clusters in which requests of the route ended.
    pub fn clusters_of(&self, route: usize) -> usize {
        let clusters = self.routes.get(route).into_iter().flatten();
        clusters.filter(|it| it.requests > 0.0).count()
    }

    /// The time per request.
    pub fn mean(&self, weights: &RouteWeights) -> ClusterMean {
        let routes = self.routes.iter().enumerate();
        let times = routes.flat_map(|(route, rows)| {
            let rows = rows.iter().enumerate();
            rows.map(move |(cluster, it)| ((route, cluster), it.time))
        });
        self.ratio(weights, times)
    }

    /// The self time of a function per request.
    pub fn mean_of(&self, weights: &RouteWeights, function: usize) -> ClusterMean {
        let times = self.functions.get(function).into_iter().flatten();
        self.ratio(weights, times.map(|(place, time)| (*place, *time)))
    }

    /// Time by route and cluster as time per request: with all clusters, and without each.
    fn ratio(
        &self,
        weights: &RouteWeights,
        times: impl Iterator<Item = ((usize, usize), f64)> + Clone,
    ) -> ClusterMean {
        let (mut mean, mut without) = (0.0, vec![0.0; self.pods.len()]);
        for (route, weight) in &weights.0 {
            let requests = self.total(*route).requests;
            let own = || times.clone().filter(|((of, _), _)| of == route);
            let all: f64 = own().map(|(_, time)| time).sum();
            mean += weight * all / requests;
            let rows = self.routes.get(*route).into_iter().flatten();
            let rests: Vec<f64> = rows.map(|row| requests - row.requests).collect();
            for (without, rest) in without.iter_mut().zip(&rests) {
                *without += weight * all / rest;
            }
            for ((_, cluster), time) in own() {
                if let (Some(without), Some(rest)) = (without.get_mut(cluster), rests.get(cluster))
                {
                    *without -= weight * time / rest;
                }
            }
        }
        ClusterMean::of(mean, without)
    }

    /// The same side with one cluster for each pod: for pods that differ among themselves.
    pub fn by_pod(&self) -> Self {
        let mut numbers = KeyNumbers::default();
        let of: Vec<usize> = self.pods.iter().map(|pod| numbers.of(*pod)).collect();
        let routes = self.routes.iter().map(|rows| {
            let mut sums = vec![RouteTime::default(); numbers.list.len()];
            for (row, pod) in rows.iter().zip(&of) {
                sums[*pod].requests += row.requests;
                sums[*pod].time += row.time;
            }
            sums
        });
        let functions = self.functions.iter().map(|times| {
            let mut sums = BTreeMap::new();
            for ((route, cluster), time) in times {
                *sums.entry((*route, of[*cluster])).or_default() += time;
            }
            sums
        });
        Self {
            routes: routes.collect(),
            samples: self.samples.clone(),
            functions: functions.collect(),
            pods: numbers.list.clone(),
        }
    }
}

/// The weight of each compared route: its share of the requests before. They add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RouteWeights(pub Vec<(usize, f64)>);

impl RouteWeights {
    /// Of these routes, by their requests on this side.
    pub fn of(routes: &[usize], side: &ClusterSide) -> Self {
        let counts: Vec<f64> = routes.iter().map(|it| side.total(*it).requests).collect();
        let all: f64 = counts.iter().sum();
        let weights = routes.iter().zip(counts);
        Self(
            weights
                .map(|(route, count)| (*route, count / all))
                .collect(),
        )
    }

    /// One route alone.
    pub fn one(route: usize) -> Self {
        Self(vec![(route, 1.0)])
    }
}

/// KeyNumbers of keys in the order of their first use.
#[derive(Debug)]
struct KeyNumbers<K> {
    list: Vec<K>,
    known: HashMap<K, usize>,
}

impl<K> Default for KeyNumbers<K> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            known: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + std::hash::Hash> KeyNumbers<K> {
    fn of(&mut self, key: K) -> usize {
        if let Some(&number) = self.known.get(&key) {
            return number;
        }
        let number = self.list.len();
        self.list.push(key.clone());
        self.known.insert(key, number);
        number
    }
}
