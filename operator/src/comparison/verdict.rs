//! A verdict as the API has it.
//!
//! Invariant: names from a profile have no control characters and are bounded, as are lists. A
//! number that is not known is absent.

use phpprof_crds::{
    ComparedTime, ComparisonReason, ComparisonVerdict, FunctionInFile, FunctionVerdict,
    MovedFunctions, ProfileComparisonStatus, RouteVerdict, UncomparedRoute,
};
use phpprof_profile::alike::{Likeness, Unlikeness};
use phpprof_profile::change::{
    ChangeEstimate, ChangeReason, ChangeReport, ChangeVerdict, MovedTime, RouteChange,
    words as said,
};

use crate::comparison::decision::ComparisonWords;
use crate::comparison::requests::SideName;
use crate::sampler::receipt::printable;

/// The longest name of a function, a file or a route.
const NAME: usize = 512;
/// The longest sentence of a reason, without its remedy.
const SENTENCE: usize = 700;
const FUNCTIONS: usize = 20;
const MOVES: usize = 8;
const MOVED: usize = 8;
const ROUTES: usize = 20;

/// Writes everything of the report but its reasons.
pub fn fill(status: &mut ProfileComparisonStatus, report: &ChangeReport) {
    status.verdict = Some(of_report(report.verdict));
    for (side, facts) in SideName::BOTH.into_iter().zip(report.sides) {
        let of = side.status_mut(status);
        of.http_requests = i64::try_from(facts.requests).unwrap_or(i64::MAX);
        of.clusters = count(facts.clusters);
        of.pods = count(facts.pods);
    }
    status.time = time(&report.time);
    status.change = status
        .time
        .map_or_else(String::new, |time| format!("{:+.1}%", time.percent));
    let smallest = report.smallest_percent();
    status.smallest_visible_percent =
        (status.time.is_some() && smallest.is_finite()).then(|| rounded(smallest));
    let functions = report.functions.iter().take(FUNCTIONS);
    status.functions = functions
        .map(|it| FunctionVerdict {
            function: name(&it.name),
            file: name(&it.file),
            time: time(&it.time).unwrap_or_default(),
            part_percent: rounded(it.part_percent),
            is_new: it.is_new,
            is_gone: it.is_gone,
        })
        .collect();
    let left_out = report.functions.len() - status.functions.len();
    status.more_functions = count(report.more_functions + left_out);
    let caller = report.common_caller.as_ref();
    status.common_caller = caller.map(|(name, file)| function(name, file));
    status.moves = report.moves.iter().take(MOVES).map(moved).collect();
    let has_limits = |it: &&RouteChange| it.verdict.is_some();
    let limited = report.routes.iter().filter(has_limits);
    let others = report.routes.iter().filter(|it| !has_limits(it));
    status.routes = limited
        .chain(others)
        .take(ROUTES)
        .map(|it| RouteVerdict {
            route: name(&it.route),
            share_percent: rounded(it.share_percent),
            time: time(&it.time).unwrap_or_default(),
            is_significant: it.is_significant,
            verdict: it.verdict.map(of_report),
        })
        .collect();
    status.more_routes = count(report.routes.len() - status.routes.len());
    status.routes_not_compared = report
        .one_sided
        .iter()
        .take(ROUTES)
        .map(one_sided)
        .collect();
}

fn of_report(verdict: ChangeVerdict) -> ComparisonVerdict {
    match verdict {
        ChangeVerdict::Better => ComparisonVerdict::Better,
        ChangeVerdict::Worse => ComparisonVerdict::Worse,
        ChangeVerdict::NoChange => ComparisonVerdict::NoChange,
        ChangeVerdict::Inconclusive => ComparisonVerdict::Inconclusive,
    }
}

fn one_sided(one: &phpprof_profile::change::OneSidedRoute) -> UncomparedRoute {
    let [before, after] = one.requests.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    let [share_before, share_after] = one.share_percent.map(rounded);
    UncomparedRoute {
        route: name(&one.route),
        before,
        after,
        share_percent_before: share_before,
        share_percent_after: share_after,
    }
}

fn moved(moved: &MovedTime) -> MovedFunctions {
    let names = |all: &[(String, String)]| {
        let few = all.iter().take(MOVED);
        few.map(|(name, file)| function(name, file)).collect()
    };
    MovedFunctions {
        from: names(&moved.from),
        to: names(&moved.to),
        milliseconds: rounded(moved.moved.abs() / 1e6),
    }
}

fn function(function: &str, file: &str) -> FunctionInFile {
    FunctionInFile {
        function: name(function),
        file: name(file),
    }
}

fn name(text: &str) -> String {
    printable(text, NAME)
}

fn time(time: &ChangeEstimate) -> Option<ComparedTime> {
    if !time.error.is_finite() {
        return None;
    }
    let milliseconds = |nanoseconds: f64| rounded(nanoseconds / 1e6);
    let [low, high] = time.interval().map(milliseconds);
    Some(ComparedTime {
        before: milliseconds(time.before),
        after: milliseconds(time.after),
        difference: milliseconds(time.difference()),
        low,
        high,
        percent: rounded(time.percent()),
    })
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

/// The verdict in one sentence: the time of a request, and the first reason.
pub fn headline(report: &ChangeReport) -> ComparisonWords {
    let first = report.reasons.first();
    let why = first.map_or_else(
        || ComparisonWords::new(ComparisonReason::NoCells, "the profiles have no cells"),
        words,
    );
    if time(&report.time).is_none() {
        return why;
    }
    let found = format!("{}; {}", said::summary(report), why.found);
    ComparisonWords { found, ..why }
}

/// A reason of the report.
pub fn words(reason: &ChangeReason) -> ComparisonWords {
    let name = match reason {
        ChangeReason::TimeChanged => ComparisonReason::TimeChanged,
        ChangeReason::FunctionsChanged => ComparisonReason::FunctionsChanged,
        ChangeReason::OnlyMoved => ComparisonReason::OnlyMoved,
        ChangeReason::Accepted => ComparisonReason::Accepted,
        ChangeReason::WithinChance => ComparisonReason::WithinChance,
        ChangeReason::CouldNotSee { .. } => ComparisonReason::CouldNotSee,
        ChangeReason::WarmingUp { .. } => ComparisonReason::WarmingUp,
        ChangeReason::PodsDiffer { .. } => ComparisonReason::PodsDiffer,
        ChangeReason::TooFewRequests { .. } => ComparisonReason::TooFewRequests,
        ChangeReason::RequestsTooShort { .. } => ComparisonReason::RequestsTooShort,
        ChangeReason::WithoutNames { .. } => ComparisonReason::WithoutNames,
        ChangeReason::RouteSlower { .. } => ComparisonReason::RouteSlower,
        ChangeReason::RouteNotSeen { .. } => ComparisonReason::RouteNotSeen,
        ChangeReason::RouteNotCompared { .. } => ComparisonReason::RouteNotCompared,
        ChangeReason::NotMeasured => ComparisonReason::NotMeasured,
        ChangeReason::NoCells { .. } => ComparisonReason::NoCells,
    };
    // Routes are of the spec, which may have any character.
    ComparisonWords::new(name, printable(&said::reason(reason), SENTENCE))
}

/// What would decide it, with numbers where they are known.
pub fn remedy(reason: &ChangeReason) -> Option<String> {
    match reason {
        ChangeReason::CouldNotSee { times_as_long, .. } => Some(format!(
            "Profile both {} times as long (durationSeconds), or that many times as many pods (maxPods), or accept less with visiblePercent.",
            times_as_long.ceil()
        )),
        ChangeReason::RouteNotSeen { times_as_long, .. } => Some(format!(
            "Profile both {} times as long (durationSeconds), or that many times as many pods (maxPods), or accept more of this route (maxIncreasePercent).",
            times_as_long.ceil()
        )),
        ChangeReason::RequestsTooShort {
            samples_per_request,
        } => Some(format!(
            "Profile both at a rate {} times as high (samplesPerSecond).",
            (4.0 / samples_per_request.max(0.1)).ceil()
        )),
        reason => words(reason).reason.remedy().map(str::to_owned),
    }
}

/// What readers have to know of how the profiles were recorded.
pub fn notes(likeness: &Likeness) -> Vec<ComparisonWords> {
    let unlike = unlike(likeness).map(|found| {
        let found = format!("the profiles are unlike, and compared by force: {found}");
        ComparisonWords::new(ComparisonReason::UnlikeByForce, found)
    });
    let unchecked = likeness.unchecked_words().map(|aspects| {
        let found = format!("these were not compared: {aspects}");
        ComparisonWords::new(ComparisonReason::NotAllChecked, found)
    });
    unlike.into_iter().chain(unchecked).collect()
}

/// What differs in how the profiles were recorded; `None` if nothing does.
pub fn unlike(likeness: &Likeness) -> Option<String> {
    let all = likeness.unlike.iter();
    let all: Vec<&str> = all.map(|it: &Unlikeness| it.what.as_str()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
