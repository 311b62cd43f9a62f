//! A verdict as a page: both flame graphs, with the functions that it names.
//!
//! Invariant: the page says no more than the text does.

use phpprof_profile::change::ChangeReport;
use phpprof_profile::page::{PageVerdict, VerdictFunction, VerdictLine, verdict_page};
use phpprof_profile::{ComparedSides, NoiseScale, View};

use super::words::{
    forced, mark, milliseconds, moved_words, name, one_sided, reason, signed_milliseconds, summary,
    without_functions,
};
use super::{measured, side};
use crate::cli::Per;
use crate::compare::Compared;
use crate::failure::Failure;
use crate::view::wrong_view;

/// The most lines of each kind.
const MOST: usize = 20;

pub fn html(
    report: &ChangeReport,
    [before, after]: [&str; 2],
    sides: &ComparedSides,
) -> Result<String, Failure> {
    let view = measured(report.settings.measure);
    let title = format!("{after}: verdict on what changed since {before}");
    let [of_before, of_after] = [&sides.before.profile, &sides.after.profile];
    let verdict = PageVerdict {
        summary: format!("{}: {}", name(report.verdict), summary(report)),
        requests: requests(sides),
        scale: scale(sides, &view)?,
        lines: lines(report, sides),
    };
    verdict_page(of_before, of_after, &view, &title, &verdict).map_err(wrong_view)
}

/// The requests of both sides, if samples of both saw some.
fn requests(sides: &ComparedSides) -> Option<[u64; 2]> {
    let [before, after] = [&sides.before, &sides.after].map(|it| side(it).requests);
    Some([before?, after?])
}

/// How many standard errors by samples are chance.
fn scale(sides: &ComparedSides, view: &View) -> Result<NoiseScale, Failure> {
    let per = requests(sides).map_or(Per::Share, |_| Per::Request);
    let compared = Compared::of(&sides.before.profile, &sides.after.profile, view, per)?;
    let compared = match sides.cells() {
        Some(cells) => compared.with_cells(cells, view),
        None => compared,
    };
    Ok(compared.noise_scale())
}

fn lines(report: &ChangeReport, sides: &ComparedSides) -> Vec<VerdictLine> {
    let functions = report.functions.iter().take(MOST).map(|one| VerdictLine {
        amount: signed_milliseconds(one.time.difference()),
        sentence: format!(
            "of a request (± {}) in {}{}: {} before, {} after",
            milliseconds(one.time.margin(0.95)),
            one.name,
            mark(one.is_new, one.is_gone),
            milliseconds(one.time.before),
            milliseconds(one.time.after)
        ),
        function: Some(VerdictFunction {
            name: one.name.clone(),
            file: one.file.clone(),
        }),
    });
    let mut said: Vec<String> = forced(&sides.likeness).into_iter().collect();
    said.extend(report.reasons.iter().map(reason));
    said.extend(without_functions(report).map(str::to_owned));
    said.extend(
        report
            .moves
            .iter()
            .take(MOST)
            .map(|it| format!("moved: {}", moved_words(it))),
    );
    said.extend(
        report
            .one_sided
            .iter()
            .take(MOST)
            .map(|it| format!("not compared: {}", one_sided(it))),
    );
    let said = said.into_iter().map(|sentence| VerdictLine {
        amount: String::new(),
        sentence,
        function: None,
    });
    functions.chain(said).collect()
}
