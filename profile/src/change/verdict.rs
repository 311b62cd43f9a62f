//! The verdict on a change.
//!
//! Two kinds of evidence count: the time of a request as a whole, and the functions whose self time
//! has changed. Each has half of the level, so that a verdict is wrong in at most one of a hundred
//! comparisons of a release with itself. Routes with limits of their own (`limits`) have a half of
//! the first one's.
//!
//! Invariant: the verdict follows from the estimates in the report alone.

use std::collections::{BTreeSet, HashMap};

use super::clusters::{ClusterPair, ClusterSide, RouteWeights};
use super::estimate::{ChangeEstimate, percent, pods_alike};
use super::explain::CallersOf;
use super::families::{MoveGroup, Shifted, families, sum};
use super::report::{
    ALARM_LEVEL, ChangeBasis, ChangeReason, ChangeReport, ChangeSettings, ChangeSide,
    ChangeVerdict, ChangedFunction, MovedTime, OneSidedRoute, RouteChange, SideFacts,
};
use super::samples::by_samples;
use super::select::{fewest, significant};
use crate::bounds::beginning;
use crate::proto::Profile;
use crate::timeline::{MAX_CELL_STRING, OTHER};

/// A compared route has at least this many requests on each side.
const FEWEST_REQUESTS: f64 = 10.0;
/// They are in at least this many clusters.
const FEWEST_CLUSTERS: usize = 4;
/// Each has this many samples on average: of shorter ones, too many are not seen at all.
const FEWEST_SAMPLES: f64 = 2.0;
/// Functions with less than this part of a request on both sides are not tested.
const SMALLEST_PART: f64 = 0.002;
/// Pods are clusters if they differ this much.
const PODS_DIFFER: f64 = 0.01;
/// The part of the change that compiling and loading must explain for a verdict to wait.
const WARM_UP_PART: f64 = 0.5;
/// What PHP does more of until its caches are full.
const WARM_UP: [&str; 2] = ["[compiling]", "[loading]"];
/// The part of a request without names of functions that is said, in percent.
const LEAST_WITHOUT_NAMES: f64 = 1.0;
/// Routes of one side with less than this share of all time are not named, in percent.
const NAMED_SHARE: f64 = 0.1;

/// Compares two sides.
#[must_use]
pub fn compare(
    before: ChangeSide<'_>,
    after: ChangeSide<'_>,
    settings: &ChangeSettings,
) -> ChangeReport {
    let mut report = ChangeReport::empty(settings);
    let missing = match (before.cells, after.cells) {
        (Some(_), Some(_)) => None,
        (None, Some(_)) => Some("before"),
        (Some(_), None) => Some("after"),
        (None, None) => Some("both"),
    };
    let pair = match (before.cells, after.cells) {
        (Some(one), Some(other)) => Some(ClusterPair::of(one, other, settings.measure)),
        _ => by_samples([before, after], settings.measure),
    };
    if let Some(side) = missing {
        report.basis = ChangeBasis::Samples;
        report.reasons.push(ChangeReason::NoCells { side });
    }
    if let Some(pair) = pair {
        let profiles = [before.profile, after.profile];
        CellComparison::of(pair, report.basis).answer(profiles, &mut report);
    }
    report
}

impl ChangeReport {
    pub(super) fn empty(settings: &ChangeSettings) -> Self {
        Self {
            settings: settings.clone(),
            verdict: ChangeVerdict::Inconclusive,
            reasons: Vec::new(),
            basis: ChangeBasis::Cells,
            sides: [SideFacts::default(); 2],
            time: ChangeEstimate::unknown(),
            changed_time: ChangeEstimate::unknown(),
            routes: Vec::new(),
            one_sided: Vec::new(),
            functions: Vec::new(),
            more_functions: 0,
            common_caller: None,
            moves: Vec::new(),
        }
    }

    /// The change in nanoseconds that is accepted.
    fn accepted(&self) -> f64 {
        let part = self.time.before * self.settings.accepted_percent / 100.0;
        part.max(self.settings.accepted_nanoseconds)
    }

    /// The verdict with its reasons, from everything else in the report.
    pub(super) fn decide(&mut self, is_moved: bool, warm_up: Option<ChangeEstimate>) {
        let accepted = self.accepted();
        let (time, changed) = (self.time, self.changed_time);
        let is_large = |change: f64| change.abs() > accepted;
        let is_time = time.p_value() <= self.settings.time_level();
        let is_changed = changed.p_value() <= ALARM_LEVEL;
        let change = if is_time && is_large(time.difference()) {
            Some((time.difference(), ChangeReason::TimeChanged))
        } else if is_changed && is_large(changed.difference()) {
            Some((changed.difference(), ChangeReason::FunctionsChanged))
        } else {
            None
        };
        let warm_up = warm_up.map_or(0.0, |it| it.difference());
        if let Some((change, reason)) = change {
            self.reasons.insert(0, reason);
            self.verdict = if change < 0.0 {
                ChangeVerdict::Better
            } else {
                ChangeVerdict::Worse
            };
            if change > 0.0 && warm_up >= WARM_UP_PART * change {
                let nanoseconds = warm_up;
                self.verdict = ChangeVerdict::Inconclusive;
                self.reasons
                    .insert(0, ChangeReason::WarmingUp { nanoseconds });
            }
            return;
        }
        if !self.is_measured() {
            self.reasons.insert(0, ChangeReason::NotMeasured);
            self.verdict = ChangeVerdict::Inconclusive;
            return;
        }
        let smallest = self.smallest_percent();
        let visible = self.settings.visible_percent;
        let why = if is_time || is_changed {
            ChangeReason::Accepted
        } else if is_moved {
            ChangeReason::OnlyMoved
        } else {
            ChangeReason::WithinChance
        };
        self.reasons.insert(0, why);
        self.verdict = ChangeVerdict::NoChange;
        if smallest > visible {
            self.verdict = ChangeVerdict::Inconclusive;
            let ratio = smallest / visible;
            self.reasons.insert(
                0,
                ChangeReason::CouldNotSee {
                    smallest_percent: smallest,
                    times_as_long: ratio * ratio,
                },
            );
        }
    }
}

/// A comparison whose routes are chosen.
pub(super) struct CellComparison {
    pair: ClusterPair,
    compared: Vec<usize>,
    weights: RouteWeights,
    has_uneven: [bool; 2],
    basis: ChangeBasis,
}

impl CellComparison {
    pub fn of(mut pair: ClusterPair, basis: ChangeBasis) -> Self {
        let compared: Vec<usize> = (0..pair.routes.len())
            .filter(|route| {
                let is_enough = |side: &ClusterSide| side.is_enough(*route, basis);
                is_enough(&pair.before) && is_enough(&pair.after)
            })
            .collect();
        let weights = RouteWeights::of(&compared, &pair.before);
        let mut has_uneven = [false; 2];
        if basis == ChangeBasis::Cells && !compared.is_empty() {
            for (side, is_uneven) in [&mut pair.before, &mut pair.after]
                .into_iter()
                .zip(&mut has_uneven)
            {
                *is_uneven = pods_alike(&side.mean(&weights), &side.pods) < PODS_DIFFER
                    && compared.iter().all(|route| side.is_on_pods(*route));
                if *is_uneven {
                    *side = side.by_pod();
                }
            }
        }
        let basis = if has_uneven.contains(&true) {
            ChangeBasis::Pods
        } else {
            basis
        };
        Self {
            pair,
            compared,
            weights,
            has_uneven,
            basis,
        }
    }

    /// The time of a request.
    pub fn time(&self) -> ChangeEstimate {
        self.of_routes(&self.weights)
    }

    fn of_routes(&self, weights: &RouteWeights) -> ChangeEstimate {
        ChangeEstimate::of(
            &self.pair.before.mean(weights),
            &self.pair.after.mean(weights),
        )
    }

    /// The functions that have a noticeable part of a request on a side.
    pub fn functions(&self) -> Vec<Shifted> {
        let time = self.time();
        let functions = self.pair.functions.iter().enumerate();
        let shifted = functions.map(|(index, name)| Shifted {
            name: name.clone(),
            before: self.pair.before.mean_of(&self.weights, index),
            after: self.pair.after.mean_of(&self.weights, index),
        });
        let is_noticeable = |it: &Shifted| {
            it.before.mean >= SMALLEST_PART * time.before
                || it.after.mean >= SMALLEST_PART * time.after
        };
        shifted
            .filter(|it| it.name.0 != OTHER && is_noticeable(it))
            .collect()
    }

    pub fn answer(&self, profiles: [&Profile; 2], report: &mut ChangeReport) {
        report.one_sided = self.one_sided();
        report.basis = self.basis;
        if self.compared.is_empty() {
            report.reasons.insert(0, self.why_none());
            return;
        }
        let sides = [&self.pair.before, &self.pair.after];
        report.sides = sides.map(|side| self.facts(side));
        report.time = self.time();
        report.routes = self.routes();
        let names = ["before", "after"].into_iter().zip(self.has_uneven);
        let uneven = names.filter(|(_, is_uneven)| *is_uneven);
        report
            .reasons
            .extend(uneven.map(|(side, _)| ChangeReason::PodsDiffer { side }));
        report.reasons.extend(self.without_names());
        let tested = self.functions();
        let p_values: Vec<f64> = tested.iter().map(|it| it.estimate().p_value()).collect();
        let chosen = significant(&p_values, ALARM_LEVEL / 2.0);
        let warm = tested
            .iter()
            .filter(|it| WARM_UP.contains(&it.name.0.as_str()));
        let warm_up = sum(warm).filter(|it| it.p_value() <= ALARM_LEVEL);
        let chosen: BTreeSet<usize> = chosen.into_iter().collect();
        let all = tested.into_iter().enumerate();
        let all = all.filter(|(index, _)| chosen.contains(index));
        let all: Vec<Shifted> = all.map(|(_, it)| it).collect();
        let callers = CallersOf::read(
            profiles,
            report.settings.measure.name(),
            all.iter().map(|it| &it.name),
            self.is_compared(),
        );
        let moves = families(&all, &callers);
        report.moves = moves.iter().map(|it| moved(it, &all)).collect();
        let gone: BTreeSet<usize> = moves
            .iter()
            .flat_map(|it| it.from.iter().chain(&it.to).copied())
            .collect();
        let rest = all.into_iter().enumerate();
        let rest: Vec<Shifted> = rest
            .filter(|(index, _)| !gone.contains(index))
            .map(|(_, it)| it)
            .collect();
        report.changed_time = sum(rest.iter()).unwrap_or_else(ChangeEstimate::unknown);
        report.name_functions(&rest, &callers);
        report.decide(!moves.is_empty(), warm_up);
        report.decide_routes();
    }

    /// How much time is of functions without a name, if that is much.
    fn without_names(&self) -> Option<ChangeReason> {
        let mut functions = self.pair.functions.iter();
        let other = functions.position(|(name, file)| name == OTHER && file.is_empty())?;
        let sides = [&self.pair.before, &self.pair.after];
        let percent = sides.map(|side| {
            let [part, all] = [side.mean_of(&self.weights, other), side.mean(&self.weights)];
            percent(part.mean, all.mean)
        });
        let is_much = percent.iter().any(|it| *it >= LEAST_WITHOUT_NAMES);
        is_much.then_some(ChangeReason::WithoutNames { percent })
    }

    /// Whether samples of a route count. Single samples as clusters are of all routes.
    fn is_compared(&self) -> impl Fn(&str) -> bool {
        let routes = self.pair.routes.iter().enumerate();
        let known: HashMap<&str, bool> = routes
            .map(|(index, route)| (route.as_str(), self.compared.contains(&index)))
            .collect();
        let of_others = known.get(OTHER).copied().unwrap_or(false);
        let has_all = self.basis == ChangeBasis::Samples;
        move |route| {
            let route = beginning(route, MAX_CELL_STRING);
            has_all || known.get(route).copied().unwrap_or(of_others)
        }
    }

    fn facts(&self, side: &ClusterSide) -> SideFacts {
        let requests = self.compared.iter().map(|it| side.total(*it).requests);
        let pods: BTreeSet<u32> = side.pods.iter().copied().collect();
        SideFacts {
            requests: requests.sum::<f64>() as u64,
            clusters: side.pods.len(),
            pods: pods.len(),
        }
    }

    fn requests(&self, route: usize) -> [u64; 2] {
        let sides = [&self.pair.before, &self.pair.after];
        sides.map(|side| side.total(route).requests as u64)
    }

    fn routes(&self) -> Vec<RouteChange> {
        let times = self.compared.iter().map(|route| {
            let time = self.of_routes(&RouteWeights::one(*route));
            (*route, time)
        });
        let times: Vec<_> = times.collect();
        let p_values: Vec<f64> = times.iter().map(|(_, time)| time.p_value()).collect();
        let significant = significant(&p_values, ALARM_LEVEL);
        let shares = self.weights.0.iter().map(|(_, share)| 100.0 * share);
        let all = times.into_iter().zip(shares).enumerate();
        let mut routes: Vec<RouteChange> = all
            .map(|(index, ((route, time), share_percent))| RouteChange {
                route: self.pair.routes.get(route).cloned().unwrap_or_default(),
                share_percent,
                requests: self.requests(route),
                time,
                is_significant: significant.contains(&index),
                verdict: None,
            })
            .collect();
        routes.sort_by(|one, other| other.share_percent.total_cmp(&one.share_percent));
        routes
    }

    fn one_sided(&self) -> Vec<OneSidedRoute> {
        let all = [&self.pair.before, &self.pair.after].map(|side| {
            let times = (0..self.pair.routes.len()).map(|route| side.total(route).time);
            (side, times.sum::<f64>())
        });
        let routes = self.pair.routes.iter().enumerate();
        let others = routes.filter(|(route, _)| !self.compared.contains(route));
        let mut others: Vec<OneSidedRoute> = others
            .map(|(route, name)| OneSidedRoute {
                route: name.clone(),
                share_percent: all.map(|(side, all)| percent(side.total(route).time, all)),
                requests: self.requests(route),
            })
            .filter(|it| it.share_percent.iter().any(|share| *share >= NAMED_SHARE))
            .collect();
        let share = |it: &OneSidedRoute| it.share_percent.iter().sum::<f64>();
        others.sort_by(|one, other| share(other).total_cmp(&share(one)));
        others
    }

    /// Why no route can be compared.
    fn why_none(&self) -> ChangeReason {
        let routes = 0..self.pair.routes.len();
        let both = routes.map(|route| (route, self.requests(route)));
        let most = both.max_by_key(|(_, [before, after])| (*before).min(*after));
        let (route, requests) = most.unwrap_or_default();
        let sides = [&self.pair.before, &self.pair.after];
        let samples = sides.map(|side| side.samples_per_request(route));
        let fewest = samples.into_iter().fold(f64::INFINITY, f64::min);
        let is_many = requests.iter().all(|it| *it as f64 >= FEWEST_REQUESTS);
        if is_many && fewest < FEWEST_SAMPLES {
            return ChangeReason::RequestsTooShort {
                samples_per_request: fewest,
            };
        }
        ChangeReason::TooFewRequests { requests }
    }
}

impl ClusterSide {
    fn samples_per_request(&self, route: usize) -> f64 {
        let samples = self.samples.get(route).copied().unwrap_or(0.0);
        samples / self.total(route).requests.max(1.0)
    }

    fn is_enough(&self, route: usize, basis: ChangeBasis) -> bool {
        let is_seen =
            basis == ChangeBasis::Samples || self.samples_per_request(route) >= FEWEST_SAMPLES;
        is_seen
            && self.total(route).requests >= FEWEST_REQUESTS
            && self.clusters_of(route) >= FEWEST_CLUSTERS
    }

    /// Whether requests of the route ended on two pods or more.
    fn is_on_pods(&self, route: usize) -> bool {
        let rows = self.routes.get(route).into_iter().flatten();
        let with = rows.zip(&self.pods).filter(|(row, _)| row.requests > 0.0);
        with.map(|(_, pod)| pod).collect::<BTreeSet<_>>().len() >= 2
    }
}

impl ChangeReport {
    fn name_functions(&mut self, rest: &[Shifted], callers: &CallersOf) {
        let changes: Vec<f64> = rest.iter().map(|it| it.estimate().difference()).collect();
        let all: f64 = changes.iter().map(|it| it.abs()).sum();
        let named = fewest(&changes);
        self.more_functions = rest.len() - named.len();
        let named: Vec<&Shifted> = named.iter().filter_map(|index| rest.get(*index)).collect();
        let names = rest.iter().map(|it| &it.name);
        self.common_caller = callers.common(names.zip(changes.iter().copied()));
        self.functions = named
            .iter()
            .map(|it| {
                let [was_before, is_after] = callers.has(&it.name);
                ChangedFunction {
                    name: it.name.0.clone(),
                    file: it.name.1.clone(),
                    time: it.estimate(),
                    part_percent: percent(it.estimate().difference().abs(), all),
                    is_new: !was_before,
                    is_gone: !is_after,
                }
            })
            .collect();
    }
}

fn moved(family: &MoveGroup, all: &[Shifted]) -> MovedTime {
    let names = |indexes: &[usize]| {
        let functions = indexes.iter().filter_map(|index| all.get(*index));
        functions.map(|it| it.name.clone()).collect()
    };
    let gained = family.to.iter().filter_map(|index| all.get(*index));
    MovedTime {
        from: names(&family.from),
        to: names(&family.to),
        net: family.net,
        moved: gained.map(|it| it.estimate().difference()).sum(),
    }
}
