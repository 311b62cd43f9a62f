//! The tool `verdict`: did the time of a request change between two profiles, and where?
//!
//! Invariant: the verdict is that of `kubectl phpprof verdict` with the same limits.

use phpprof_profile::ComparedSide;
use phpprof_profile::alike::{Aspect, Likeness};
use phpprof_profile::change::{
    ChangeEstimate, ChangeMeasure, ChangeReport, ChangeSettings, ChangeVerdict, ChangedFunction,
    RouteChange,
};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths};
use super::ask::{AskedMeasure, VerdictAsked, most};
use super::diff::{aspects, compared_sides};
use super::head::is_code;
use super::quote::{quoted, quoted_path};
use super::store::AgentSide;
use crate::failure::{Exit, Failure};
use crate::route_limits;
use crate::verdict::words::{name, reason, remedy, summary};
use crate::verdict::{check_limits, measured, report_of};

const ROWS: usize = 15;
const FOLLOWED: usize = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerdictBody {
    verdict: &'static str,
    summary: String,
    before: String,
    after: String,
    /// In which respects the profiles are unlike; only with `force`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unlike: Vec<Aspect>,
    /// In which respects they could not be compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unchecked: Vec<Aspect>,
    reasons: Vec<ReasonShown>,
    /// The fewest that explain four fifths of the significant change.
    functions: Vec<ChangedShown>,
    /// Others with a significant change, and those without room here.
    functions_left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    common_caller: Option<PlaceShown>,
    /// Groups of functions between which time only moved: renamed or extracted methods.
    moves: usize,
    routes: Vec<RouteShown>,
    routes_left_out: usize,
    /// Routes that only one side has enough requests of.
    routes_not_compared: usize,
}

#[derive(Serialize)]
struct ReasonShown {
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    remedy: String,
}

#[derive(Serialize)]
struct PlaceShown {
    function: String,
    file: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangedShown {
    #[serde(flatten)]
    place: PlaceShown,
    part_percent: f64,
    self_milliseconds_before: f64,
    self_milliseconds_after: f64,
    is_new: bool,
    is_gone: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RouteShown {
    route: String,
    milliseconds_before: f64,
    milliseconds_after: f64,
    change_percent: f64,
    is_significant: bool,
}

pub fn answer(
    sides: [AgentSide; 2],
    place: &AgentPlace,
    asked: &VerdictAsked,
) -> Result<AgentAnswer, Failure> {
    let settings = settings(asked.measure, &asked.limits)?;
    let sides = sides.map(|side| ComparedSide {
        profile: side.source.profile.clone(),
        cells: side.cells,
    });
    let view = measured(settings.measure);
    let sides = compared_sides(sides, &view, asked.force)?;
    let report = report_of(&sides, &settings);
    answer_of(&report, &sides.likeness, place, asked)
}

/// What is compared, and what is accepted.
pub fn settings(measure: AskedMeasure, limits: &[String]) -> Result<ChangeSettings, Failure> {
    let wrong = |text: &str, error: String| {
        let hint = "give 2%,1ms for all requests, and /users/{id}=5%,2ms for a route";
        Failure::new(
            Exit::Usage,
            format!("limits: {}: {error}", quoted(text)),
            hint,
        )
    };
    let mut settings = ChangeSettings {
        measure: match measure {
            AskedMeasure::Wall => ChangeMeasure::Wall,
            AskedMeasure::Cpu => ChangeMeasure::Cpu,
        },
        ..ChangeSettings::default()
    };
    for text in limits {
        if text.starts_with('/') {
            let limit = route_limits::parse(text).map_err(|error| wrong(text, error))?;
            settings.routes.push(limit);
        } else {
            let accepted = route_limits::accepted(text).map_err(|error| wrong(text, error))?;
            settings.accepted_percent = accepted.percent;
            settings.accepted_nanoseconds = accepted.nanoseconds;
        }
    }
    check_limits(&settings.routes)?;
    Ok(settings)
}

/// The answer that a comparison makes.
pub fn answer_of(
    report: &ChangeReport,
    likeness: &Likeness,
    place: &AgentPlace,
    asked: &VerdictAsked,
) -> Result<AgentAnswer, Failure> {
    let next = next(report, asked);
    AgentAnswer::fitted(
        place,
        most(None, ROWS),
        |count| body(report, likeness, asked, count),
        &next,
    )
}

fn body(
    report: &ChangeReport,
    likeness: &Likeness,
    asked: &VerdictAsked,
    count: usize,
) -> VerdictBody {
    let reasons = report.reasons.iter().map(|one| ReasonShown {
        message: reason(one),
        remedy: remedy(one),
    });
    let left = |all: usize| all.saturating_sub(count);
    VerdictBody {
        verdict: name(report.verdict),
        summary: summary(report),
        before: quoted_path(&asked.before),
        after: quoted_path(&asked.after),
        unlike: aspects(likeness),
        unchecked: likeness.unchecked.clone(),
        reasons: reasons.collect(),
        functions: report.functions.iter().take(count).map(changed).collect(),
        functions_left_out: report.more_functions + left(report.functions.len()),
        common_caller: report
            .common_caller
            .as_ref()
            .map(|(name, file)| shown(name, file)),
        moves: report.moves.len(),
        routes: report.routes.iter().take(count).map(route).collect(),
        routes_left_out: left(report.routes.len()),
        routes_not_compared: report.one_sided.len(),
    }
}

fn shown(name: &str, file: &str) -> PlaceShown {
    PlaceShown {
        function: quoted(name),
        file: quoted_path(file),
    }
}

fn changed(one: &ChangedFunction) -> ChangedShown {
    let [before, after] = milliseconds(&one.time);
    ChangedShown {
        place: shown(&one.name, &one.file),
        part_percent: hundredths(one.part_percent),
        self_milliseconds_before: before,
        self_milliseconds_after: after,
        is_new: one.is_new,
        is_gone: one.is_gone,
    }
}

fn route(one: &RouteChange) -> RouteShown {
    let [before, after] = milliseconds(&one.time);
    RouteShown {
        route: quoted(&one.route),
        milliseconds_before: before,
        milliseconds_after: after,
        change_percent: hundredths(one.time.percent()),
        is_significant: one.is_significant,
    }
}

/// Before and after, with three digits.
fn milliseconds(time: &ChangeEstimate) -> [f64; 2] {
    [time.before, time.after].map(|nanoseconds| (nanoseconds / 1e3).round() / 1e3)
}

fn next(report: &ChangeReport, asked: &VerdictAsked) -> AgentNexts {
    let mut next = AgentNexts::default();
    let is_worse = report.verdict == ChangeVerdict::Worse;
    let grown = report.functions.iter().filter(|one| !one.is_gone);
    let grown = grown.map(|one| (&one.name, &one.file));
    // The cause is where nearly all of it is called from.
    let common = report.common_caller.iter();
    let places = common.map(|(name, file)| (name, file)).chain(grown);
    for (name, file) in places.take(FOLLOWED).filter(|_| is_worse) {
        let function = json!({"profile": asked.after, "function": quoted(name)});
        next.add("callers", "which code calls what takes longer", function);
        if is_code(file) {
            let place = json!({"profile": asked.after, "function": quoted(name), "file": quoted_path(file)});
            next.add("lines", "the hot lines of what takes longer", place);
        }
    }
    let both = json!({"before": asked.before, "after": asked.after});
    next.add("diff", "all functions, by their share", both);
    next
}
