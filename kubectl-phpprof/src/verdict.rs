//! `verdict`: did the time of a request change between two profiles, and where?
//!
//! `phpprof_profile::change` has the statistics.
//!
//! Invariant: the exit code says what the text says: 0 for `Better` and `NoChange`, 9 for `Worse`,
//! 10 for `Inconclusive`, unless the user has asked for 0 there.

pub mod canary;
mod data;
mod markdown;
mod page;
pub mod words;

use std::collections::BTreeSet;

use phpprof_profile::change::{
    ChangeMeasure, ChangeReport, ChangeSettings, ChangeSide, ChangeVerdict, RouteLimit, compare,
};
use phpprof_profile::timeline::{CellTable, decode};
use phpprof_profile::{ComparedSide, ComparedSides, View};

use crate::cli::{VerdictFlags, VerdictForm, VerdictMeasure, VerdictOutput};
use crate::compare::seen_requests;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::screen::Screen;
use crate::source::{is_file, list_of, load};
use crate::table::printable;
use crate::written::write;
use crate::{stdout, unlike};

pub async fn run(
    global: &Global,
    arguments: &VerdictFlags,
    screen: Screen,
) -> Result<String, Failure> {
    check_limits(&arguments.route_limit)?;
    let [before, after] = names(global, arguments).await?;
    let of_before = cells_of(global, &before, arguments.before_requests.as_deref());
    let of_after = cells_of(global, &after, arguments.after_requests.as_deref());
    let before = load(global, &before, None).await?;
    let after = load(global, &after, None).await?;
    let titles = [before.title.as_str(), after.title.as_str()];
    let sides = unlike::compared_sides(
        ComparedSide {
            profile: before.profile,
            cells: of_before.await?,
        },
        ComparedSide {
            profile: after.profile,
            cells: of_after.await?,
        },
        &measured(arguments.measure.into()),
        &arguments.trim_path,
        arguments.force,
    )?;
    for line in unlike::warnings(&sides.likeness) {
        eprintln!("{line}");
    }
    let report = report_of(&sides, &settings(arguments));
    let text = match &arguments.output {
        VerdictOutput::Form(VerdictForm::Md) => markdown::text(&report, titles, &sides.likeness),
        VerdictOutput::Form(VerdictForm::Json) => data::json(&report, titles, &sides.likeness),
        VerdictOutput::Form(VerdictForm::Yaml) => data::yaml(&report, titles, &sides.likeness),
        VerdictOutput::Form(VerdictForm::Text) => {
            words::text(&report, titles, &sides.likeness, screen.width)
        }
        VerdictOutput::Page(path) => {
            let page = page::html(&report, titles, &sides)?;
            let text = words::text(&report, titles, &sides.likeness, screen.width);
            format!("{text}\n{}", write(path, page.as_bytes())?)
        }
    };
    match failure(&report) {
        None => Ok(text),
        Some(failure) if failure.exit == Exit::Undecided && arguments.allow_inconclusive => {
            eprintln!("{failure}");
            eprintln!("The exit code is 0 because of --allow-inconclusive.");
            Ok(text)
        }
        Some(failure) => {
            stdout::say(&text)?;
            Err(failure)
        }
    }
}

/// The profiles that are compared; with --canary they are recorded first.
async fn names(global: &Global, arguments: &VerdictFlags) -> Result<[String; 2], Failure> {
    let VerdictFlags {
        before,
        after,
        both,
        ..
    } = arguments;
    match (&both.canary, both.flag()) {
        (Some(canary), _) => canary::profiled(global, before, canary, both).await,
        (None, None) => Ok([before.clone(), after.clone().unwrap_or_default()]),
        (None, Some(flag)) => Err(Failure::new(
            Exit::Usage,
            format!("{flag} is for profiles that are still to be recorded"),
            "add --canary TYPE/NAME in place of AFTER, or leave the flag out",
        )),
    }
}

/// The view with the sample type that is compared.
pub fn measured(measure: ChangeMeasure) -> View {
    View {
        sample_type: Some(measure.name().to_owned()),
        ..View::default()
    }
}

/// What has changed between the sides.
pub fn report_of(sides: &ComparedSides, settings: &ChangeSettings) -> ChangeReport {
    compare(side(&sides.before), side(&sides.after), settings)
}

fn side(side: &ComparedSide) -> ChangeSide<'_> {
    ChangeSide {
        profile: &side.profile,
        cells: side.cells.as_ref(),
        requests: seen_requests(&side.profile, "").ok(),
    }
}

impl From<VerdictMeasure> for ChangeMeasure {
    fn from(measure: VerdictMeasure) -> Self {
        match measure {
            VerdictMeasure::Wall => ChangeMeasure::Wall,
            VerdictMeasure::Cpu => ChangeMeasure::Cpu,
        }
    }
}

fn settings(arguments: &VerdictFlags) -> ChangeSettings {
    ChangeSettings {
        measure: arguments.measure.into(),
        accepted_percent: arguments.max_increase,
        accepted_nanoseconds: arguments.min_milliseconds * 1e6,
        visible_percent: arguments.visible,
        routes: arguments.route_limit.clone(),
    }
}

/// A route has one limit.
pub fn check_limits(limits: &[RouteLimit]) -> Result<(), Failure> {
    let mut routes = BTreeSet::new();
    let twice = limits.iter().find(|it| !routes.insert(&it.route));
    twice.map_or(Ok(()), |it| {
        Err(Failure::new(
            Exit::Usage,
            format!("{} has two limits", printable(&it.route)),
            "name both in one, for instance /users/{id}=5%,2ms",
        ))
    })
}

/// The cells next to a profile: those of a request's list, or of a file next to the profile's file.
/// `None` if there are none.
pub async fn cells_of(
    global: &Global,
    name: &str,
    list: Option<&str>,
) -> Result<Option<CellTable>, Failure> {
    let list = match list {
        Some(list) => list.to_owned(),
        None if is_file(name) => match beside(name) {
            Some(list) => list,
            None => return Ok(None),
        },
        None => {
            // Older profiles, and those without the label route, have no list.
            return match list_of(global, name).await {
                Ok(bytes) => cells_in(&bytes, name),
                Err(failure) if failure.exit == Exit::NotFound => Ok(None),
                Err(failure) => Err(failure),
            };
        }
    };
    cells_in(&list_of(global, &list).await?, &list)
}

/// The cells of a list of requests; `None` of an older one.
///
/// # Errors
/// If it is not such a list.
pub fn cells_in(bytes: &[u8], list: &str) -> Result<Option<CellTable>, Failure> {
    let timeline = decode(bytes).map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("{list} is not a list of requests: {error}"),
            "name the file that phpprof record --requests or kubectl phpprof download wrote, of the same release as this plugin",
        )
    })?;
    Ok(timeline.cells.filter(|cells| cells.requests() > 0))
}

/// The list next to a profile's file, if there is one: `web.requests.json.gz` for `web.pb.gz`.
pub fn beside(profile: &str) -> Option<String> {
    let stem = profile.strip_suffix(".pb.gz")?;
    let list = format!("{stem}.requests.json.gz");
    std::path::Path::new(&list).is_file().then_some(list)
}

fn failure(report: &ChangeReport) -> Option<Failure> {
    let first = report.reasons.first().map(words::reason);
    let why = first.unwrap_or_else(|| "the profiles cannot be compared".to_owned());
    match report.verdict {
        ChangeVerdict::Better | ChangeVerdict::NoChange => None,
        ChangeVerdict::Worse => Some(Failure::new(
            Exit::Grew,
            format!("requests take more time: {why}"),
            if report.functions.is_empty() {
                "record both for longer to see which functions: longer runs show smaller changes"
            } else {
                "see who calls the functions: the same command line with --output verdict.html"
            },
        )),
        ChangeVerdict::Inconclusive => Some(Failure::new(
            Exit::Undecided,
            format!("the profiles do not decide it: {why}"),
            words::what_decides(report),
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests;
