//! A verdict as data, for programs.
//!
//! Invariant: times are milliseconds per request. A number that is not known is null.

use phpprof_profile::alike::Likeness;
use phpprof_profile::change::{ChangeEstimate, ChangeReport};
use serde_json::{Value, json};

use super::words::{reason, remedy};

pub fn json(report: &ChangeReport, titles: [&str; 2], likeness: &Likeness) -> String {
    let data = data(report, titles, likeness);
    serde_json::to_string_pretty(&data).unwrap_or_default() + "\n"
}

pub fn yaml(report: &ChangeReport, titles: [&str; 2], likeness: &Likeness) -> String {
    serde_yaml::to_string(&data(report, titles, likeness)).unwrap_or_default()
}

pub fn data(report: &ChangeReport, titles: [&str; 2], likeness: &Likeness) -> Value {
    let reasons = report.reasons.iter().map(|one| {
        let mut value = serde_json::to_value(one).unwrap_or_default();
        value["message"] = json!(reason(one));
        value["remedy"] = json!(remedy(one));
        value
    });
    let function = |(name, file): &(String, String)| json!({"function": name, "file": file});
    let functions = report.functions.iter().map(|one| {
        json!({
            "function": one.name, "file": one.file, "partPercent": rounded(one.part_percent),
            "isNew": one.is_new, "isGone": one.is_gone, "selfTime": time(&one.time),
        })
    });
    let routes = report.routes.iter().map(|one| {
        json!({
            "route": one.route, "sharePercent": rounded(one.share_percent), "requests": one.requests,
            "isSignificant": one.is_significant, "verdict": one.verdict, "time": time(&one.time),
        })
    });
    let moves = report.moves.iter().map(|one| {
        json!({
            "from": one.from.iter().map(function).collect::<Vec<_>>(),
            "to": one.to.iter().map(function).collect::<Vec<_>>(),
            "movedMilliseconds": rounded(one.moved.abs() / 1e6), "net": time(&one.net),
        })
    });
    json!({
        "unlike": likeness.unlike, "unchecked": likeness.unchecked,
        "verdict": report.verdict,
        "basis": report.basis,
        "sampleType": report.settings.measure.name(),
        "reasons": reasons.collect::<Vec<_>>(),
        "before": side(report, titles, 0),
        "after": side(report, titles, 1),
        "time": time(&report.time),
        "smallestVisiblePercent": finite(report.smallest_percent()),
        "functions": functions.collect::<Vec<_>>(),
        "moreFunctions": report.more_functions,
        "commonCaller": report.common_caller.as_ref().map(function),
        "moves": moves.collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "oneSidedRoutes": report.one_sided,
    })
}

fn side(report: &ChangeReport, titles: [&str; 2], index: usize) -> Value {
    let mut value = serde_json::to_value(report.sides.get(index)).unwrap_or_default();
    value["profile"] = json!(titles.get(index));
    value
}

fn time(time: &ChangeEstimate) -> Value {
    if !time.error.is_finite() {
        return Value::Null;
    }
    let milliseconds = |nanoseconds: f64| rounded(nanoseconds / 1e6);
    json!({
        "before": milliseconds(time.before), "after": milliseconds(time.after),
        "difference": milliseconds(time.difference()), "interval": time.interval().map(milliseconds),
        "percent": rounded(time.percent()),
    })
}

fn finite(number: f64) -> Option<f64> {
    number.is_finite().then(|| rounded(number))
}

fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}
