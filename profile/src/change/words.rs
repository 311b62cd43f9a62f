//! A change in words, the same for the plugin and for the operator.
//!
//! Invariant: no text here has a name from a profile. Routes are those that the settings name.

use super::estimate::ChangeEstimate;
use super::report::{ChangeReason, ChangeReport};

/// How many routes a sentence names.
const NAMED: usize = 4;

/// The time of a request, before and after, with its interval.
#[must_use]
pub fn summary(report: &ChangeReport) -> String {
    let time = &report.time;
    if !time.error.is_finite() {
        return "no time per request is known".to_owned();
    }
    let [low, high] = time.interval();
    format!(
        "a request takes {} of {} time instead of {}: {} ({} to {}, 95 %)",
        milliseconds(time.after),
        report.settings.measure.name(),
        milliseconds(time.before),
        signed_percent(time.percent()),
        signed_percent(part(low, time)),
        signed_percent(part(high, time)),
    )
}

/// What a reason says.
#[must_use]
pub fn reason(reason: &ChangeReason) -> String {
    match reason {
        ChangeReason::TimeChanged => {
            "the time of a request has changed by more than chance".to_owned()
        }
        ChangeReason::FunctionsChanged => {
            "the functions below have changed by more than chance".to_owned()
        }
        ChangeReason::OnlyMoved => {
            "time only moved from some functions to others below the same caller".to_owned()
        }
        ChangeReason::Accepted => "the change is not larger than what is accepted".to_owned(),
        ChangeReason::WithinChance => "no difference is larger than chance".to_owned(),
        ChangeReason::CouldNotSee {
            smallest_percent, ..
        } => format!("changes below {smallest_percent:.1} % could not have been seen"),
        ChangeReason::WarmingUp { nanoseconds } => format!(
            "PHP still compiled and loaded more than before, {} of a request",
            milliseconds(*nanoseconds)
        ),
        ChangeReason::PodsDiffer { side } => {
            format!("the pods {side} differ from each other, so each pod counts once")
        }
        ChangeReason::TooFewRequests {
            requests: [before, after],
        } => format!(
            "no route has enough requests on both sides; the best has {before} before and {after} after"
        ),
        ChangeReason::RequestsTooShort {
            samples_per_request,
        } => format!(
            "requests are too short for the rate, with {samples_per_request:.1} samples each, so many were not seen"
        ),
        ChangeReason::WithoutNames {
            percent: [before, after],
        } => format!(
            "{before:.1} % of the time before and {after:.1} % after is `(other)`: functions without room for a name, whose changes show in the time of a request only"
        ),
        ChangeReason::RouteSlower { routes } => slower(&some(routes)),
        ChangeReason::RouteNotSeen {
            routes,
            smallest_percent,
            ..
        } => not_seen(&some(routes), *smallest_percent),
        ChangeReason::RouteNotCompared { routes } => not_compared(&some(routes)),
        ChangeReason::NotMeasured => {
            "no such time was measured, or not enough to know its error".to_owned()
        }
        ChangeReason::NoCells { side } => format!(
            "{}: by samples alone",
            match *side {
                "both" => "the profiles have no cells".to_owned(),
                side => format!("the profile {side} has no cells"),
            }
        ),
    }
}

fn slower(routes: &str) -> String {
    format!(
        "requests of {routes} take more time than the route's limit allows, by more than chance"
    )
}

fn not_seen(routes: &str, smallest: f64) -> String {
    format!("of {routes}, changes below {smallest:.1} % could not have been seen")
}

fn not_compared(routes: &str) -> String {
    format!("{routes} has a limit, and cannot be compared: a side has too few of its requests")
}

/// The first routes, and how many others.
fn some(routes: &[String]) -> String {
    let first: Vec<&str> = routes.iter().take(NAMED).map(String::as_str).collect();
    match routes.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// A value in percent of the time before; 0 if that is not positive.
#[must_use]
pub fn part(value: f64, time: &ChangeEstimate) -> f64 {
    if time.before > 0.0 {
        100.0 * value / time.before
    } else {
        0.0
    }
}

/// With its sign, and one digit behind the point.
#[must_use]
pub fn signed_percent(percent: f64) -> String {
    format!("{percent:+.1} %")
}

/// Nanoseconds in milliseconds, with three digits.
#[must_use]
pub fn milliseconds(nanoseconds: f64) -> String {
    let milliseconds = nanoseconds / 1e6;
    let digits = match milliseconds.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{milliseconds:.digits$} ms")
}
