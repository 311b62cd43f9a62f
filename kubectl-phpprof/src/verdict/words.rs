//! A verdict in words, for a terminal.
//!
//! Invariant: names from a profile cannot move the terminal's cursor.

use phpprof_profile::alike::Likeness;
pub use phpprof_profile::change::words::{milliseconds, part, reason, signed_percent, summary};
use phpprof_profile::change::{
    ChangeBasis, ChangeReason, ChangeReport, ChangeVerdict, RouteChange,
};

use crate::table::{Table, printable};

/// The most rows of a list. The data forms have all.
const MOST: usize = 20;

pub fn text(
    report: &ChangeReport,
    titles: [&str; 2],
    likeness: &Likeness,
    width: Option<usize>,
) -> String {
    let mut text = format!(
        "{}: {}\n{}\n",
        name(report.verdict),
        summary(report),
        basis(report, titles)
    );
    if let Some(note) = forced(likeness) {
        text.push_str(&format!("- {note}\n"));
    }
    for reason in &report.reasons {
        text.push_str(&format!("- {}\n", printable(&self::reason(reason))));
    }
    if let Some(words) = without_functions(report) {
        text.push_str(&format!("- {words}\n"));
    }
    if !report.functions.is_empty() {
        text.push_str(&format!("\n{}{}:\n", functions_head(report), below(report)));
        text.push_str(&functions(report).text(width));
    }
    for moved in report.moves.iter().take(MOST) {
        text.push_str(&format!("moved: {}\n", printable(&moved_words(moved))));
    }
    if report.routes.len() > 1 || report.routes.iter().any(|it| it.verdict.is_some()) {
        text.push('\n');
        text.push_str(&routes(report).text(width));
    }
    for one in report.one_sided.iter().take(MOST) {
        text.push_str(&format!("not compared: {}\n", printable(&one_sided(one))));
    }
    text
}

pub fn name(verdict: ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Better => "Better",
        ChangeVerdict::Worse => "Worse",
        ChangeVerdict::NoChange => "No change",
        ChangeVerdict::Inconclusive => "Inconclusive",
    }
}

/// What the answer rests on.
pub fn basis(report: &ChangeReport, titles: [&str; 2]) -> String {
    let [before, after] = report.sides;
    let how = match report.basis {
        ChangeBasis::Cells => format!("by {} and {} clusters", before.clusters, after.clusters),
        ChangeBasis::Pods => format!("by {} and {} pods", before.pods, after.pods),
        ChangeBasis::Samples => "by samples alone, so errors are larger than shown".to_owned(),
    };
    let smallest = report.smallest_percent();
    let smallest = if smallest.is_finite() && smallest > 0.0 {
        format!("; the smallest change that shows: {smallest:.1} %")
    } else {
        String::new()
    };
    format!(
        "{} with {} requests before, {} with {} after; {how}{smallest}",
        printable(titles[0]),
        before.requests,
        printable(titles[1]),
        after.requests
    )
}

/// What decides it; empty if the reason needs nothing.
pub fn remedy(reason: &ChangeReason) -> String {
    match reason {
        ChangeReason::CouldNotSee { times_as_long, .. } => format!(
            "record both {} times as long, or that many times as many pods; or accept less with --visible",
            times_as_long.ceil()
        ),
        ChangeReason::RouteNotSeen { times_as_long, .. } => format!(
            "record both {} times as long, or that many times as many pods; or accept more of this route with --route-limit",
            times_as_long.ceil()
        ),
        ChangeReason::RouteNotCompared { .. } => {
            "compare the route's name with those of the verdict, record both for longer, or leave its --route-limit out".to_owned()
        }
        ChangeReason::WarmingUp { .. } => {
            "record the later release again once its caches are full".to_owned()
        }
        ChangeReason::PodsDiffer { .. } => "record more pods of both".to_owned(),
        ChangeReason::TooFewRequests { .. } | ChangeReason::NotMeasured => {
            "record both for longer, under load, with the label route".to_owned()
        }
        ChangeReason::RequestsTooShort {
            samples_per_request,
        } => format!(
            "record both at a rate {} times as high",
            (4.0 / samples_per_request.max(0.1)).ceil()
        ),
        ChangeReason::TimeChanged
        | ChangeReason::RouteSlower { .. }
        | ChangeReason::WithoutNames { .. }
        | ChangeReason::FunctionsChanged
        | ChangeReason::OnlyMoved
        | ChangeReason::Accepted
        | ChangeReason::WithinChance => String::new(),
        ChangeReason::NoCells { .. } => "record both with this release and the label route: kubectl phpprof run TYPE/NAME --labels route".to_owned(),
    }
}

pub fn functions_head(report: &ChangeReport) -> String {
    let more = match report.more_functions {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "{} that explain most of the change of self time per request{more}",
        match report.functions.len() {
            1 => "the function".to_owned(),
            count => format!("{count} functions"),
        }
    )
}

fn below(report: &ChangeReport) -> String {
    let caller = report.common_caller.as_ref();
    caller.map_or_else(String::new, |it| {
        format!(", nearly all below {}", printable(&it.0))
    })
}

/// That the profiles are unlike, if the comparison was forced.
pub fn forced(likeness: &Likeness) -> Option<String> {
    let note = likeness.note()?;
    Some(format!(
        "the profiles have {note}, and are compared by force"
    ))
}

/// A change of the whole that no function explains.
pub fn without_functions(report: &ChangeReport) -> Option<&'static str> {
    let is_changed = matches!(report.verdict, ChangeVerdict::Better | ChangeVerdict::Worse);
    (is_changed && report.functions.is_empty())
        .then_some("no single function has changed by more than chance")
}

/// What decides an open verdict. Where pods differ, only more pods do.
pub fn what_decides(report: &ChangeReport) -> String {
    let mut reasons = report.reasons.iter();
    let pods = reasons.find(|it| matches!(it, ChangeReason::PodsDiffer { .. }));
    pods.or_else(|| report.reasons.first())
        .map_or_else(String::new, remedy)
}

fn functions(report: &ChangeReport) -> Table {
    let mut table = Table::new(&[">CHANGE", ">±", ">BEFORE", ">AFTER", ">PART%", "<FUNCTION"]);
    for one in report.functions.iter().take(MOST) {
        table.row(vec![
            signed_milliseconds(one.time.difference()),
            milliseconds(one.time.margin(0.95)),
            milliseconds(one.time.before),
            milliseconds(one.time.after),
            format!("{:.0}", one.part_percent),
            format!("{}{}", one.name, mark(one.is_new, one.is_gone)),
        ]);
    }
    table
}

pub fn mark(is_new: bool, is_gone: bool) -> &'static str {
    match (is_new, is_gone) {
        (true, _) => " (new)",
        (_, true) => " (gone)",
        _ => "",
    }
}

fn routes(report: &ChangeReport) -> Table {
    let mut table = Table::new(&[">CHANGE%", ">±", ">BEFORE", ">AFTER", ">SHARE%", "<ROUTE"]);
    for one in report.routes.iter().take(MOST) {
        table.row(vec![
            signed_percent(one.time.percent()),
            format!("{:.1}", part(one.time.margin(0.95), &one.time)),
            milliseconds(one.time.before),
            milliseconds(one.time.after),
            format!("{:.1}", one.share_percent),
            format!("{}{}", route(&one.route), limit_mark(one)),
        ]);
    }
    table
}

/// What the route's own limits say, if it has any.
pub fn limit_mark(one: &RouteChange) -> String {
    let verdict = one.verdict.map(|it| format!(" ({})", name(it)));
    verdict.unwrap_or_default()
}

/// The name of a route for users.
pub fn route(route: &str) -> &str {
    if route.is_empty() {
        "(no route)"
    } else {
        route
    }
}

pub fn one_sided(one: &phpprof_profile::change::OneSidedRoute) -> String {
    let [before, after] = one.share_percent;
    format!(
        "{} with {} and {} requests, {before:.1} and {after:.1} % of all time",
        route(&one.route),
        one.requests[0],
        one.requests[1]
    )
}

pub fn moved_words(moved: &phpprof_profile::change::MovedTime) -> String {
    let names = |all: &[(String, String)]| {
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        names.join(", ")
    };
    format!(
        "{} of a request from {} to {}",
        milliseconds(moved.moved.abs()),
        names(&moved.from),
        names(&moved.to)
    )
}

pub fn signed_milliseconds(nanoseconds: f64) -> String {
    let sign = if nanoseconds > 0.0 { "+" } else { "" };
    format!("{sign}{}", milliseconds(nanoseconds))
}
