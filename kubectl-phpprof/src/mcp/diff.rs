//! The tool `diff`: what changed between two profiles, with what chance alone can explain.
//!
//! Invariant: points are hundredths of the earlier profile's total, as in `kubectl phpprof diff`.

use phpprof_profile::timeline::CellTable;
use phpprof_profile::{FunctionChange, View};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths};
use super::ask::{AskedPer, DiffAsked, most};
use super::head::is_code;
use super::part::{AskedPart, ProfilePart};
use super::quote::{quoted, quoted_path};
use crate::cli::Per;
use crate::compare::Compared;
use crate::failure::Failure;
use crate::source::ProfileSource;

const ROWS: usize = 15;
const FOLLOWED: usize = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DiffBody {
    before: String,
    after: String,
    sample_type: String,
    total_before: String,
    total_after: String,
    /// Whether chance is known by single samples alone, which is too little.
    is_noise_by_samples: bool,
    /// What points are of.
    points_of: &'static str,
    rows: Vec<ChangeShown>,
    left_out: usize,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChangeShown {
    function: String,
    file: String,
    self_before: f64,
    self_after: f64,
    self_points: f64,
    /// By how many points chance alone can change it.
    noise_points: f64,
    is_beyond_chance: bool,
    total_points: f64,
}

pub fn answer(
    before: &ProfileSource,
    after: &ProfileSource,
    cells: Option<[&CellTable; 2]>,
    place: &AgentPlace,
    asked: &DiffAsked,
) -> Result<AgentAnswer, Failure> {
    let of = |profile| AskedPart {
        profile,
        sample_type: asked.sample_type.as_deref(),
        labels: &asked.labels,
    };
    let part = of(asked.after.as_str());
    let (earlier, later) = (
        of(&asked.before).of(&before.profile)?,
        part.of(&after.profile)?,
    );
    let compared = compared(&earlier, &later, cells, asked.per)?;
    let changes = &compared.diff.changes;
    let count = most(asked.most, ROWS).min(changes.len());
    let shown = changes.iter().take(count);
    let rows: Vec<ChangeShown> = shown.map(|change| row(&compared, change)).collect();
    let mut next = AgentNexts::default();
    let grown = rows
        .iter()
        .filter(|row| row.is_beyond_chance && row.self_points > 0.0);
    for row in grown.take(FOLLOWED) {
        let function = json!({"function": row.function});
        next.add("callers", "which code calls what grew", part.and(function));
        if is_code(&row.file) {
            let place = json!({"function": row.function, "file": row.file});
            next.add("lines", "the hot lines of what grew", part.and(place));
        }
    }
    next.add(
        "findings",
        "known problems afterwards",
        json!({"profile": asked.after}),
    );
    let amount = compared.diff.amount();
    let body = |count: usize| DiffBody {
        before: quoted(&asked.before),
        after: quoted(&asked.after),
        sample_type: quoted(&compared.diff.sample_type),
        total_before: amount.text(compared.diff.total_before),
        total_after: amount.text(compared.total_after),
        is_noise_by_samples: compared.is_by_samples(),
        points_of: match asked.per {
            AskedPer::Share => "percent of each profile's total",
            AskedPer::Request => "percent of the time per request before",
        },
        rows: rows.iter().take(count).cloned().collect(),
        left_out: changes.len().saturating_sub(count),
    };
    AgentAnswer::fitted(place, rows.len(), body, &next)
}

fn compared(
    earlier: &ProfilePart<'_>,
    later: &ProfilePart<'_>,
    cells: Option<[&CellTable; 2]>,
    per: AskedPer,
) -> Result<Compared, Failure> {
    let per = match per {
        AskedPer::Share => Per::Share,
        AskedPer::Request => Per::Request,
    };
    let view: &View = &later.view;
    let compared = Compared::of(&earlier.profile, &later.profile, view, per)?;
    Ok(match cells {
        Some(cells) => compared.with_cells(cells, view),
        None => compared,
    })
}

fn row(compared: &Compared, change: &FunctionChange) -> ChangeShown {
    let diff = &compared.diff;
    let (points, noise) = (diff.flat_points(change), compared.noise(change));
    ChangeShown {
        function: quoted(&change.name),
        file: quoted_path(&change.file),
        self_before: hundredths(diff.share_before(change.flat_before)),
        self_after: hundredths(diff.share_after(change.flat_after)),
        self_points: hundredths(points),
        noise_points: hundredths(noise),
        is_beyond_chance: points.abs() > noise,
        total_points: hundredths(diff.cum_points(change)),
    }
}
