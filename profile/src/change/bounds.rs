//! By how much a function's share can differ by chance, from cells: for comparisons that show every
//! function, and for limits that a pipeline sets.
//!
//! Invariant: a bound holds for all functions together. In a comparison of a release with itself,
//! the probability that any function is beyond its own is at most [`ALARM_LEVEL`].

use std::collections::HashMap;

use super::clusters::{ClusterPair, ClusterSide, RouteTime, RouteWeights};
use super::estimate::ChangeEstimate;
use super::report::{ALARM_LEVEL, ChangeMeasure};
use super::select::limit;
use crate::timeline::CellTable;

/// Fewer clusters do not give an error.
const FEWEST_CLUSTERS: usize = 4;
/// Functions with a smaller share on both sides are not tested.
const SMALLEST_SHARE: f64 = 0.002;

/// What a function's value is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundOf {
    /// The time of all functions.
    Share,
    /// The number of requests; then points are percent of the time of a request before.
    Request,
}

/// The bounds of the functions that have a noticeable share.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeBounds(HashMap<(String, String), f64>);

impl ChangeBounds {
    /// Of two tables; `None` if one has too few clusters.
    #[must_use]
    pub fn of(
        before: &CellTable,
        after: &CellTable,
        measure: ChangeMeasure,
        of: BoundOf,
    ) -> Option<Self> {
        let pair = ClusterPair::of(before, after, measure);
        let (before, after) = (pair.before.as_one(of), pair.after.as_one(of));
        let has_any = |side: &ClusterSide| side.clusters_of(0) >= FEWEST_CLUSTERS;
        if !has_any(&before) || !has_any(&after) {
            return None;
        }
        let all = RouteWeights::one(0);
        let whole = match of {
            BoundOf::Share => 1.0,
            BoundOf::Request => before.mean(&all).mean,
        };
        let functions = pair.functions.into_iter().enumerate();
        let tested: Vec<_> = functions
            .map(|(index, name)| {
                let sides = [&before, &after].map(|side| side.mean_of(&all, index));
                (name, ChangeEstimate::of(&sides[0], &sides[1]))
            })
            .filter(|(_, it)| it.before.max(it.after) >= SMALLEST_SHARE * whole)
            .collect();
        let p_values: Vec<f64> = tested.iter().map(|(_, it)| it.p_value()).collect();
        let alone = ALARM_LEVEL / p_values.len().max(1) as f64;
        let level = limit(&p_values, ALARM_LEVEL).map_or(alone, |limit| limit.max(alone));
        let bounds = tested
            .into_iter()
            .map(|(name, it)| (name, 100.0 * it.margin(1.0 - level) / whole));
        Some(Self(bounds.collect()))
    }

    /// The bound of a function by its plain name and file, in percentage points.
    #[must_use]
    pub fn points(&self, name: &str, file: &str) -> Option<f64> {
        self.0.get(&(name.to_owned(), file.to_owned())).copied()
    }
}

impl ClusterSide {
    /// All routes as one, whose mean is a share or a time per request.
    fn as_one(&self, of: BoundOf) -> Self {
        let row = (0..self.pods.len()).map(|cluster| {
            let cells = self.routes.iter().filter_map(|rows| rows.get(cluster));
            let sum = cells.fold(RouteTime::default(), |sum, it| RouteTime {
                requests: sum.requests + it.requests,
                time: sum.time + it.time,
            });
            match of {
                BoundOf::Share => RouteTime {
                    requests: sum.time,
                    ..sum
                },
                BoundOf::Request => sum,
            }
        });
        let functions = self.functions.iter().map(|times| {
            let mut sums = std::collections::BTreeMap::new();
            for ((_, cluster), time) in times {
                *sums.entry((0, *cluster)).or_default() += time;
            }
            sums
        });
        Self {
            routes: vec![row.collect()],
            samples: vec![self.samples.iter().sum()],
            functions: functions.collect(),
            pods: self.pods.clone(),
        }
    }
}
