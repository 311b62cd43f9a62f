//! `verdict`: did the time of a request change between two profiles, and where?
//!
//! `phpprof_profile::change` has the statistics.
//!
//! Invariant: the exit code says what the text says: 0 for `Better` and `NoChange`, 9 for `Worse`,
//! 10 for `Inconclusive`.

mod data;
mod markdown;
pub mod words;

use phpprof_profile::View;
use phpprof_profile::change::{
    ChangeMeasure, ChangeReport, ChangeSettings, ChangeSide, ChangeVerdict, compare,
};
use phpprof_profile::name_alike;
use phpprof_profile::timeline::{CellTable, decode};

use crate::cli::{VerdictFlags, VerdictForm, VerdictMeasure};
use crate::compare::seen_requests;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::release::{normalized, normalized_cells};
use crate::screen::Screen;
use crate::source::{ProfileSource, is_file, list_of, load};
use crate::{stdout, unlike};

pub async fn run(
    global: &Global,
    arguments: &VerdictFlags,
    screen: Screen,
) -> Result<String, Failure> {
    let before = Loaded::of(
        global,
        arguments,
        &arguments.before,
        &arguments.before_requests,
    );
    let mut before = before.await?;
    let after = Loaded::of(
        global,
        arguments,
        &arguments.after,
        &arguments.after_requests,
    );
    let mut after = after.await?;
    let [one, other] = [&before, &after].map(|side| &side.source.profile);
    let likeness = unlike::checked(one, other, &measured(arguments), arguments.force)?;
    for line in unlike::warnings(&likeness) {
        eprintln!("{line}");
    }
    let renamed = name_alike(&mut before.source.profile, &mut after.source.profile);
    for (side, renamed) in [&mut before, &mut after].into_iter().zip(renamed) {
        if let Some(cells) = &mut side.cells {
            renamed.apply(cells);
        }
    }
    let report = compare(before.side(), after.side(), &settings(arguments));
    let titles = [before.source.title.as_str(), after.source.title.as_str()];
    let text = match arguments.output {
        VerdictForm::Text => words::text(&report, titles, screen.width),
        VerdictForm::Md => markdown::text(&report, titles),
        VerdictForm::Json => data::json(&report, titles),
        VerdictForm::Yaml => data::yaml(&report, titles),
    };
    match failure(&report) {
        None => Ok(text),
        Some(failure) => {
            stdout::say(&text)?;
            Err(failure)
        }
    }
}

/// The view with the sample type that is compared.
fn measured(arguments: &VerdictFlags) -> View {
    let name = match arguments.measure {
        VerdictMeasure::Wall => "wall",
        VerdictMeasure::Cpu => "cpu",
    };
    View {
        sample_type: Some(name.to_owned()),
        ..View::default()
    }
}

fn settings(arguments: &VerdictFlags) -> ChangeSettings {
    ChangeSettings {
        measure: match arguments.measure {
            VerdictMeasure::Wall => ChangeMeasure::Wall,
            VerdictMeasure::Cpu => ChangeMeasure::Cpu,
        },
        accepted_percent: arguments.max_increase,
        accepted_nanoseconds: arguments.min_milliseconds * 1e6,
        visible_percent: arguments.visible,
    }
}

/// A profile with what its list of requests adds.
struct Loaded {
    source: ProfileSource,
    cells: Option<CellTable>,
    requests: Option<u64>,
}

impl Loaded {
    async fn of(
        global: &Global,
        arguments: &VerdictFlags,
        name: &str,
        list: &Option<String>,
    ) -> Result<Self, Failure> {
        let source = load(global, name, None).await?;
        let cells = cells_of(global, name, list.as_deref()).await?;
        let requests = seen_requests(&source.profile, name).ok();
        Ok(Self {
            source: ProfileSource {
                profile: normalized(source.profile, &arguments.trim_path),
                ..source
            },
            cells: cells.map(|it| normalized_cells(it, &arguments.trim_path)),
            requests,
        })
    }

    fn side(&self) -> ChangeSide<'_> {
        ChangeSide {
            profile: &self.source.profile,
            cells: self.cells.as_ref(),
            requests: self.requests,
        }
    }
}

/// The cells next to a profile: those of a request's list, or of a file next to the profile's file.
/// `None` if there are none.
pub async fn cells_of(
    global: &Global,
    name: &str,
    list: Option<&str>,
) -> Result<Option<CellTable>, Failure> {
    let bytes = match list {
        Some(list) => Some(list_of(global, list).await?),
        None if is_file(name) => match beside(name) {
            Some(list) => Some(list_of(global, &list).await?),
            None => None,
        },
        None => list_of(global, name).await.ok(),
    };
    let Some(bytes) = bytes else { return Ok(None) };
    match decode(&bytes) {
        Ok(timeline) => Ok(timeline.cells.filter(|cells| cells.requests() > 0)),
        Err(error) => Err(Failure::new(
            Exit::Failed,
            format!(
                "{} is not a list of requests: {error}",
                list.unwrap_or(name)
            ),
            "name the file that phpprof record --requests or kubectl phpprof download wrote, of the same release as this plugin",
        )),
    }
}

/// The list next to a profile's file, if there is one: `web.requests.json.gz` for `web.pb.gz`.
fn beside(profile: &str) -> Option<String> {
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
            "see who calls the functions: kubectl phpprof diff BEFORE AFTER -o diff.html",
        )),
        ChangeVerdict::Inconclusive => Some(Failure::new(
            Exit::Undecided,
            format!("the profiles do not decide it: {why}"),
            report
                .reasons
                .first()
                .map_or_else(String::new, words::remedy),
        )),
    }
}

#[cfg(test)]
mod tests;
