//! What a comparison is asked, and what it answers.
//!
//! Invariant: times are nanoseconds per request. Functions and routes are named as in the profiles.

use serde::Serialize;

use super::estimate::ChangeEstimate;
use crate::proto::Profile;
use crate::timeline::CellTable;

/// The probability of a verdict `Better` or `Worse` between two runs of the same release.
pub const ALARM_LEVEL: f64 = 0.01;

/// The time that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeMeasure {
    /// Time within requests, waiting included.
    #[default]
    Wall,
    /// Time on a CPU.
    Cpu,
}

impl ChangeMeasure {
    /// The name of the sample type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
        }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct ChangeSide<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The cells from the list of requests next to it.
    pub cells: Option<&'a CellTable>,
    /// The requests that its samples saw, for a profile without cells.
    pub requests: Option<u64>,
}

/// What a comparison is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeSettings {
    /// The time that is compared.
    pub measure: ChangeMeasure,
    /// Changes up to this many percent of a request are accepted.
    pub accepted_percent: f64,
    /// Changes up to this many nanoseconds of a request are accepted.
    pub accepted_nanoseconds: f64,
    /// `NoChange` needs that a change of this many percent would have been seen.
    pub visible_percent: f64,
    /// Routes with limits of their own, each once.
    pub routes: Vec<RouteLimit>,
}

/// What is accepted of one route, next to what is accepted of all requests.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteLimit {
    /// The route, as profiles name it.
    pub route: String,
    /// Changes up to this many percent of its requests are accepted.
    pub accepted_percent: f64,
    /// Changes up to this many nanoseconds of its requests are accepted.
    pub accepted_nanoseconds: f64,
}

impl Default for ChangeSettings {
    fn default() -> Self {
        Self {
            measure: ChangeMeasure::Wall,
            accepted_percent: 0.5,
            accepted_nanoseconds: 0.0,
            visible_percent: 10.0,
            routes: Vec::new(),
        }
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ChangeVerdict {
    /// Requests take less time.
    Better,
    /// Requests take more time.
    Worse,
    /// A change of the asked size would have been seen, and was not.
    NoChange,
    /// It cannot be said. The reasons say what would decide it.
    Inconclusive,
}

/// What the errors are derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeBasis {
    /// Clusters of a group of workers and a slice of time.
    Cells,
    /// Pods: those of one side differ from each other by more than their cells do.
    Pods,
    /// Single samples, because a profile has no cells. Such errors are too small.
    Samples,
}

/// Why the verdict is what it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum ChangeReason {
    /// The time of a request changed by more than is accepted, and by more than chance.
    TimeChanged,
    /// The changed functions together changed by more than is accepted, and by more than chance.
    FunctionsChanged,
    /// Only which functions take the time has changed.
    OnlyMoved,
    /// The change is not larger than what is accepted.
    Accepted,
    /// No difference is larger than chance.
    WithinChance,
    /// A change of the asked size could not have been seen.
    CouldNotSee {
        /// The smallest change that could have been seen, in percent.
        smallest_percent: f64,
        /// How many times as long both runs must be, or how many times as many pods they need.
        times_as_long: f64,
    },
    /// PHP compiled and loaded more than before, and that explains most of the change.
    WarmingUp {
        /// The change of compiling and loading, in nanoseconds per request.
        nanoseconds: f64,
    },
    /// The pods of one side differ among themselves, so pods count and not cells.
    PodsDiffer {
        /// `before` or `after`.
        side: &'static str,
    },
    /// No route has enough requests on both sides.
    TooFewRequests {
        /// The most requests of a route that both sides have: before and after.
        requests: [u64; 2],
    },
    /// Requests are too short for the rate: many are not seen at all.
    RequestsTooShort {
        /// Samples of a request that was seen, on average.
        samples_per_request: f64,
    },
    /// Much time is of functions that had no room for a name in the cells, so that the change of
    /// each is not known. The time of a request has it.
    WithoutNames {
        /// Its part of a request before and after, in percent.
        percent: [f64; 2],
    },
    /// Requests of routes with limits take more time than these allow, by more than chance.
    RouteSlower {
        /// These routes.
        routes: Vec<String>,
    },
    /// Changes of routes with limits could not have been seen.
    RouteNotSeen {
        /// These routes.
        routes: Vec<String>,
        /// The smallest change that could have been seen in all of them, in percent.
        smallest_percent: f64,
        /// How many times as long both runs must be, or how many times as many pods they need.
        times_as_long: f64,
    },
    /// Routes with limits have too few requests on a side.
    RouteNotCompared {
        /// These routes.
        routes: Vec<String>,
    },
    /// No time of this kind was measured before, or its error is not known.
    NotMeasured,
    /// A profile has no cells.
    NoCells {
        /// `before`, `after` or `both`.
        side: &'static str,
    },
}

/// What was seen of one side.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SideFacts {
    /// Requests of the compared routes that ended.
    pub requests: u64,
    /// Clusters.
    pub clusters: usize,
    /// Pods.
    pub pods: usize,
}

/// The change of one route.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteChange {
    /// The template; empty for requests whose route is not known.
    pub route: String,
    /// Its share of the requests before, in percent of the compared ones.
    pub share_percent: f64,
    /// Its requests, before and after.
    pub requests: [u64; 2],
    /// The time of one of its requests.
    pub time: ChangeEstimate,
    /// Whether its change is larger than chance, corrected for the number of routes.
    pub is_significant: bool,
    /// What its own limits say of it; `None` of a route without.
    pub verdict: Option<ChangeVerdict>,
}

/// A route that is not compared, because one side has none or too few of its requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OneSidedRoute {
    /// The template.
    pub route: String,
    /// Its share of all time, before and after, in percent.
    pub share_percent: [f64; 2],
    /// Its requests, before and after.
    pub requests: [u64; 2],
}

/// A function whose self time per request has changed by more than chance.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedFunction {
    /// The name.
    pub name: String,
    /// The file of its declaration.
    pub file: String,
    /// Its self time per request.
    pub time: ChangeEstimate,
    /// Its part of the sum of all significant changes, in percent.
    pub part_percent: f64,
    /// No stack of the profile before has it.
    pub is_new: bool,
    /// No stack of the profile after has it.
    pub is_gone: bool,
}

/// Time that went from some functions to others and stayed below the same caller: a method that was
/// renamed, extracted or moved.
#[derive(Debug, Clone, PartialEq)]
pub struct MovedTime {
    /// The functions that lost time, name and file.
    pub from: Vec<(String, String)>,
    /// The functions that have it now.
    pub to: Vec<(String, String)>,
    /// The change of all of them together.
    pub net: ChangeEstimate,
    /// How much time moved, in nanoseconds per request.
    pub moved: f64,
}

/// The answer with its reasons.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeReport {
    /// What was asked.
    pub settings: ChangeSettings,
    /// The answer.
    pub verdict: ChangeVerdict,
    /// Why, the most important first.
    pub reasons: Vec<ChangeReason>,
    /// What the errors are derived from.
    pub basis: ChangeBasis,
    /// The sides, before and after.
    pub sides: [SideFacts; 2],
    /// The time of a request.
    pub time: ChangeEstimate,
    /// The change of all changed functions together, moves left out.
    pub changed_time: ChangeEstimate,
    /// The compared routes, most requests first.
    pub routes: Vec<RouteChange>,
    /// Routes that are not compared.
    pub one_sided: Vec<OneSidedRoute>,
    /// The fewest functions that explain four fifths of the significant change, largest first.
    pub functions: Vec<ChangedFunction>,
    /// How many other functions have a significant change.
    pub more_functions: usize,
    /// The deepest function below which nearly all of the significant change is.
    pub common_caller: Option<(String, String)>,
    /// What only moved.
    pub moves: Vec<MovedTime>,
}

impl ChangeReport {
    /// Whether the time of a request and its error are known.
    pub(super) fn is_measured(&self) -> bool {
        self.time.before > 0.0 && self.time.error.is_finite()
    }

    /// The smallest change of a request that could have been seen, in percent; infinite if its time
    /// or error is not known.
    #[must_use]
    pub fn smallest_percent(&self) -> f64 {
        if !self.is_measured() {
            return f64::INFINITY;
        }
        let smallest = self.time.smallest_seen(self.settings.time_level());
        super::estimate::percent(smallest, self.time.before)
    }
}
