//! The tool `verdict`: did the time of a request change between two profiles, and where?
//!
//! Invariant: the verdict is that of `kubectl phpprof verdict` with its defaults.

use phpprof_profile::change::{
    ChangeEstimate, ChangeMeasure, ChangeReport, ChangeSettings, ChangeSide, ChangeVerdict,
    ChangedFunction, RouteChange, compare,
};
use phpprof_profile::timeline::CellTable;
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths};
use super::ask::{AskedMeasure, VerdictAsked, most};
use super::head::is_code;
use super::quote::{quoted, quoted_path};
use crate::compare::seen_requests;
use crate::failure::Failure;
use crate::source::ProfileSource;
use crate::verdict::words::{name, reason, remedy, summary};

const ROWS: usize = 15;
const FOLLOWED: usize = 2;

/// A profile with the cells of its list of requests, if it has any.
pub struct VerdictSide<'a> {
    pub source: &'a ProfileSource,
    pub cells: Option<&'a CellTable>,
}

impl VerdictSide<'_> {
    fn side(&self) -> ChangeSide<'_> {
        ChangeSide {
            profile: &self.source.profile,
            cells: self.cells,
            requests: seen_requests(&self.source.profile, "").ok(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VerdictBody {
    verdict: &'static str,
    summary: String,
    before: String,
    after: String,
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
    before: &VerdictSide<'_>,
    after: &VerdictSide<'_>,
    place: &AgentPlace,
    asked: &VerdictAsked,
) -> Result<AgentAnswer, Failure> {
    let settings = ChangeSettings {
        measure: match asked.measure {
            AskedMeasure::Wall => ChangeMeasure::Wall,
            AskedMeasure::Cpu => ChangeMeasure::Cpu,
        },
        ..ChangeSettings::default()
    };
    let report = compare(before.side(), after.side(), &settings);
    let next = next(&report, asked);
    AgentAnswer::fitted(
        place,
        most(None, ROWS),
        |count| body(&report, asked, count),
        &next,
    )
}

fn body(report: &ChangeReport, asked: &VerdictAsked, count: usize) -> VerdictBody {
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
    let grown = report
        .functions
        .iter()
        .filter(|one| is_worse && !one.is_gone);
    for one in grown.take(FOLLOWED) {
        let function = json!({"profile": asked.after, "function": quoted(&one.name)});
        next.add("callers", "which code calls what takes longer", function);
        if is_code(&one.file) {
            let place = json!({"profile": asked.after, "function": quoted(&one.name), "file": quoted_path(&one.file)});
            next.add("lines", "the hot lines of what takes longer", place);
        }
    }
    let both = json!({"before": asked.before, "after": asked.after});
    next.add("diff", "all functions, by their share", both);
    next
}
