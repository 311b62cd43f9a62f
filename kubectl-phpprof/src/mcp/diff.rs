//! The tool `diff`: what changed between two profiles, with what chance alone can explain.
//!
//! Invariant: points are hundredths of the earlier profile's total, as in `kubectl phpprof diff`.

use phpprof_profile::alike::{Aspect, Likeness};
use phpprof_profile::{Amount, ComparedSide, ComparedSides, Diff, FunctionChange, View};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace, hundredths};
use super::ask::{AskedPer, DiffAsked, most};
use super::head::{HEAP_FRAMES, is_code};
use super::part::AskedPart;
use super::quote::{quoted, quoted_path};
use super::store::AgentSide;
use crate::cli::Per;
use crate::compare::Compared;
use crate::failure::Failure;
use crate::unlike;

const ROWS: usize = 15;
const FOLLOWED: usize = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DiffBody {
    before: String,
    after: String,
    /// In which respects the profiles are unlike; only with `force`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unlike: Vec<Aspect>,
    /// In which respects they could not be compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unchecked: Vec<Aspect>,
    sample_type: String,
    total_before: String,
    total_after: String,
    /// Whether chance is known by single samples alone, which is too little.
    is_noise_by_samples: bool,
    /// What points are of.
    points_of: &'static str,
    /// What frames and totals are, if they are not functions and time.
    #[serde(skip_serializing_if = "Option::is_none")]
    meaning: Option<&'static str>,
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
    /// Of what is in heaps: by how much it grew.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth: Option<HeapGrowth>,
}

impl ChangeShown {
    fn is_grown(&self) -> bool {
        match &self.growth {
            Some(growth) => growth.own.starts_with('+'),
            None => self.is_beyond_chance && self.self_points > 0.0,
        }
    }
}

/// With units.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct HeapGrowth {
    own: String,
    total: String,
}

pub fn answer(
    [before, after]: [AgentSide; 2],
    place: &AgentPlace,
    asked: &DiffAsked,
) -> Result<AgentAnswer, Failure> {
    let of = |profile| AskedPart::new(profile, asked.sample_type.as_deref(), &asked.labels);
    let part = of(asked.after.as_str());
    let chosen = of(&asked.before).of(&before.source.profile)?;
    let earlier = ComparedSide {
        profile: chosen.profile.into_owned(),
        cells: before.cells,
    };
    let chosen = part.of(&after.source.profile)?;
    let view = chosen.view;
    let later = ComparedSide {
        profile: chosen.profile.into_owned(),
        cells: after.cells,
    };
    let sides = compared_sides([earlier, later], &view, asked.force)?;
    let compared = compared(&sides, &view, asked.per)?;
    let changes = &compared.diff.changes;
    let count = most(asked.most, ROWS).min(changes.len());
    let shown = changes.iter().take(count);
    let rows: Vec<ChangeShown> = shown.map(|change| row(&compared, change)).collect();
    let next = next(&compared, &rows, &part, &asked.after);
    let amount = compared.diff.amount();
    let body = |count: usize| DiffBody {
        before: quoted(&asked.before),
        after: quoted(&asked.after),
        unlike: aspects(&sides.likeness),
        unchecked: sides.likeness.unchecked.clone(),
        sample_type: quoted(&compared.diff.sample_type),
        total_before: amount.text(compared.diff.total_before),
        total_after: amount.text(compared.total_after),
        is_noise_by_samples: compared.is_by_samples(),
        points_of: match asked.per {
            AskedPer::Share => "percent of each profile's total",
            AskedPer::Request => "percent of the time per request before",
        },
        meaning: compared.is_of_heaps().then_some(HEAP_FRAMES),
        rows: rows.iter().take(count).cloned().collect(),
        left_out: changes.len().saturating_sub(count),
    };
    AgentAnswer::fitted(place, rows.len(), body, &next)
}

/// Who calls, or holds, what grew most.
fn next(
    compared: &Compared,
    rows: &[ChangeShown],
    part: &AskedPart<'_>,
    after: &str,
) -> AgentNexts {
    let mut next = AgentNexts::default();
    let callers = if compared.is_of_heaps() {
        "who holds what grew"
    } else {
        "which code calls what grew"
    };
    for row in rows.iter().filter(|row| row.is_grown()).take(FOLLOWED) {
        let function = json!({"function": row.function});
        next.add("callers", callers, part.and(function));
        if is_code(&row.file) {
            let place = json!({"function": row.function, "file": row.file});
            next.add("lines", "the hot lines of what grew", part.and(place));
        }
    }
    // Findings are of time.
    if !compared.is_of_heaps() {
        let profile = json!({"profile": after});
        next.add("findings", "known problems afterwards", profile);
    }
    next
}

/// Both sides as `kubectl phpprof` compares them. An agent forces it by an argument.
pub fn compared_sides(
    [before, after]: [ComparedSide; 2],
    view: &View,
    is_forced: bool,
) -> Result<ComparedSides, Failure> {
    let sides = unlike::compared_sides(before, after, view, &[], is_forced);
    sides.map_err(|failure| Failure {
        hint: failure.hint.replace("--force", "force"),
        ..failure
    })
}

/// Without their words, which may have texts of the profiles.
pub fn aspects(likeness: &Likeness) -> Vec<Aspect> {
    likeness.unlike.iter().map(|it| it.aspect).collect()
}

fn compared(sides: &ComparedSides, view: &View, per: AskedPer) -> Result<Compared, Failure> {
    let per = match per {
        AskedPer::Share => Per::Share,
        AskedPer::Request => Per::Request,
    };
    let compared = Compared::of(&sides.before.profile, &sides.after.profile, view, per)?;
    Ok(match sides.cells() {
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
        is_beyond_chance: if compared.is_of_heaps() {
            change.flat_after != change.flat_before
        } else {
            points.abs() > noise
        },
        total_points: hundredths(diff.cum_points(change)),
        growth: compared.is_of_heaps().then(|| HeapGrowth {
            own: signed(diff, change.flat_after.saturating_sub(change.flat_before)),
            total: signed(diff, change.cum_after.saturating_sub(change.cum_before)),
        }),
    }
}

fn signed(diff: &Diff, value: i64) -> String {
    let text = Amount::of(&diff.unit, value).text(value);
    if value > 0 { format!("+{text}") } else { text }
}
