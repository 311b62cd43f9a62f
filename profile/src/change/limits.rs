//! Limits of single routes, next to those of all requests.
//!
//! The limits of all are for the mean of all routes, whatever its routes' own limits are. A route
//! with limits of its own is tested as well, so a verdict is not better than what is known of it.
//!
//! Invariant: a route with limits is `Worse` only if its time has grown by more than chance and by
//! more than they allow. What is not known of such a route leaves the verdict open.

use super::report::{
    ALARM_LEVEL, ChangeReason, ChangeReport, ChangeSettings, ChangeVerdict, RouteChange, RouteLimit,
};
use super::select::significant;

impl ChangeSettings {
    /// The level at which the time of a request is tested. Routes with limits have a half of it.
    pub(super) fn time_level(&self) -> f64 {
        if self.routes.is_empty() {
            ALARM_LEVEL / 2.0
        } else {
            ALARM_LEVEL / 4.0
        }
    }

    /// The level of all routes with limits together.
    fn routes_level(&self) -> f64 {
        ALARM_LEVEL / 4.0
    }
}

impl RouteLimit {
    /// The change in nanoseconds that is accepted.
    fn accepted(&self, before: f64) -> f64 {
        let part = before * self.accepted_percent / 100.0;
        part.max(self.accepted_nanoseconds)
    }
}

/// Routes with limits, by what is known of them.
#[derive(Default)]
struct LimitedRoutes {
    slower: Vec<String>,
    unseen: Vec<String>,
    missing: Vec<String>,
    /// The smallest change that could have been seen in each of the unseen ones, in percent.
    smallest_percent: f64,
    times_as_long: f64,
}

impl ChangeReport {
    /// Adds what is known of the routes with limits, after the verdict on all requests.
    pub(super) fn decide_routes(&mut self) {
        let routes = self.limited();
        let is_warm = matches!(self.reasons.first(), Some(ChangeReason::WarmingUp { .. }));
        if !routes.slower.is_empty() {
            let was_worse = self.verdict == ChangeVerdict::Worse;
            let reason = ChangeReason::RouteSlower {
                routes: routes.slower,
            };
            let at = usize::from(was_worse || is_warm).min(self.reasons.len());
            self.reasons.insert(at, reason);
            if !is_warm {
                self.verdict = ChangeVerdict::Worse;
            }
        }
        let mut open = Vec::new();
        if !routes.missing.is_empty() {
            open.push(ChangeReason::RouteNotCompared {
                routes: routes.missing,
            });
        }
        if !routes.unseen.is_empty() {
            open.push(ChangeReason::RouteNotSeen {
                routes: routes.unseen,
                smallest_percent: routes.smallest_percent,
                times_as_long: routes.times_as_long,
            });
        }
        if open.is_empty() {
            return;
        }
        if matches!(
            self.verdict,
            ChangeVerdict::NoChange | ChangeVerdict::Better
        ) {
            self.verdict = ChangeVerdict::Inconclusive;
            open.append(&mut self.reasons);
            self.reasons = open;
        } else {
            self.reasons.append(&mut open);
        }
    }

    /// Writes the verdict of each route with limits.
    fn limited(&mut self) -> LimitedRoutes {
        let level = self.settings.routes_level();
        let limits = &self.settings.routes;
        let limit_of = |route: &str| limits.iter().find(|it| it.route == route);
        let compared = self.routes.iter().enumerate();
        let compared = compared.filter(|(_, it)| limit_of(&it.route).is_some());
        let (numbers, p_values): (Vec<usize>, Vec<f64>) = compared
            .map(|(number, it)| (number, it.time.p_value()))
            .unzip();
        let changed = significant(&p_values, level);
        // The first of the routes must pass this level.
        let level = level / numbers.len().max(1) as f64;
        let mut found = LimitedRoutes::default();
        for (index, number) in numbers.into_iter().enumerate() {
            let Some(route) = self.routes.get_mut(number) else {
                continue;
            };
            let Some(limit) = limits.iter().find(|it| it.route == route.route) else {
                continue;
            };
            let visible = self.settings.visible_percent.max(limit.accepted_percent);
            let smallest = smallest_percent(route, level);
            let (change, accepted) = (route.time.difference(), limit.accepted(route.time.before));
            let is_changed = changed.contains(&index) && change.abs() > accepted;
            route.verdict = Some(match (is_changed, change > 0.0) {
                (true, true) => {
                    found.slower.push(route.route.clone());
                    ChangeVerdict::Worse
                }
                (true, false) => ChangeVerdict::Better,
                (false, _) if smallest > visible => {
                    found.unseen.push(route.route.clone());
                    found.smallest_percent = found.smallest_percent.max(smallest);
                    let ratio = smallest / visible;
                    found.times_as_long = found.times_as_long.max(ratio * ratio);
                    ChangeVerdict::Inconclusive
                }
                (false, _) => ChangeVerdict::NoChange,
            });
        }
        let is_missing = |it: &&RouteLimit| self.routes.iter().all(|one| one.route != it.route);
        let missing = limits.iter().filter(is_missing);
        found.missing = missing.map(|it| it.route.clone()).collect();
        found
    }
}

/// The smallest change of a route that could have been seen, in percent; infinite if its time or
/// error is not known.
fn smallest_percent(route: &RouteChange, level: f64) -> f64 {
    if route.time.before > 0.0 && route.time.error.is_finite() {
        super::estimate::percent(route.time.smallest_seen(level), route.time.before)
    } else {
        f64::INFINITY
    }
}
