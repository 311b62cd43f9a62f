//! The status of a comparison: while it waits, and once it has ended.
//!
//! Invariant: `Complete` is true exactly if there is a completion time, and `Regressed` is unknown
//! exactly if the verdict is missing or `Inconclusive`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use phpprof_crds::{
    ComparisonOutcome, ComparisonReason, ComparisonVerdict, ProfileComparison,
    ProfileComparisonStatus, VerdictReason, comparison_condition,
};
use phpprof_profile::alike::Likeness;
use phpprof_profile::change::ChangeReport;

use crate::comparison::decision::ComparisonWords;
use crate::comparison::requests::SideName;
use crate::comparison::verdict;
use crate::lifecycle::status::told;

/// The most reasons of a verdict.
const REASONS: usize = 8;

/// The result of comparing two profiles.
pub struct ComparedProfiles {
    /// The statistics.
    pub report: ChangeReport,
    /// How they were recorded.
    pub likeness: Likeness,
}

/// The status with the names of both requests, and a start.
#[must_use]
pub fn begun(comparison: &ProfileComparison, now: Timestamp) -> ProfileComparisonStatus {
    let mut status = comparison.status.clone().unwrap_or_default();
    status.start_time.get_or_insert(Time(now));
    for side in SideName::BOTH {
        side.status_mut(&mut status).request = side.request_name(comparison);
    }
    status
}

/// While it waits or compares.
pub fn wait(
    status: &mut ProfileComparisonStatus,
    words: &ComparisonWords,
    generation: Option<i64>,
    now: Timestamp,
) {
    conclude(status, words, generation, now);
}

/// Its end without a comparison.
pub fn end(
    status: &mut ProfileComparisonStatus,
    words: &ComparisonWords,
    generation: Option<i64>,
    now: Timestamp,
) {
    status.verdict = Some(ComparisonVerdict::Inconclusive);
    status.reasons = vec![reason(words, words.reason.remedy())];
    status.completion_time = Some(Time(now));
    conclude(status, words, generation, now);
}

/// Its end with the result of a comparison. The notes are on how the requests ran.
pub fn decide(
    status: &mut ProfileComparisonStatus,
    compared: &ComparedProfiles,
    notes: &[ComparisonWords],
    generation: Option<i64>,
    now: Timestamp,
) {
    let report = &compared.report;
    verdict::fill(status, report);
    let found = report.reasons.iter().map(|it| {
        let words = verdict::words(it);
        reason(&words, verdict::remedy(it).as_deref())
    });
    let likeness = verdict::notes(&compared.likeness);
    let noted = notes.iter().chain(&likeness);
    let noted = noted.map(|words| reason(words, words.reason.remedy()));
    status.reasons = found.chain(noted).take(REASONS).collect();
    status.completion_time = Some(Time(now));
    let words = verdict::headline(report);
    conclude(status, &words, generation, now);
}

fn reason(words: &ComparisonWords, remedy: Option<&str>) -> VerdictReason {
    VerdictReason {
        reason: words.reason,
        message: told(&words.found, remedy),
    }
}

/// Writes both conditions; Complete comes first, because the printer column shows the first one's
/// reason.
fn conclude(
    status: &mut ProfileComparisonStatus,
    words: &ComparisonWords,
    generation: Option<i64>,
    now: Timestamp,
) {
    status.observed_generation = generation;
    let complete = if status.completion_time.is_some() {
        "True"
    } else {
        "False"
    };
    let regressed = match status.verdict {
        Some(ComparisonVerdict::Worse) => "True",
        Some(ComparisonVerdict::Better | ComparisonVerdict::NoChange) => "False",
        Some(ComparisonVerdict::Inconclusive) | None => "Unknown",
    };
    let first = status.reasons.first();
    let said = first.filter(|it| it.reason == words.reason && !has_numbers(words.reason));
    let message = said.map_or_else(
        || told(&words.found, waits_remedy(words.reason)),
        |it| it.message.clone(),
    );
    let conditions = [
        (comparison_condition::COMPLETE, complete),
        (comparison_condition::REGRESSED, regressed),
    ];
    let conditions = conditions.map(|(kind, holds)| {
        let old = status.conditions.iter();
        let unchanged = old
            .clone()
            .find(|old| old.type_ == kind && old.status == holds);
        Condition {
            type_: kind.to_owned(),
            status: holds.to_owned(),
            reason: words.reason.to_string(),
            message: message.clone(),
            last_transition_time: unchanged
                .map_or(Time(now), |old| old.last_transition_time.clone()),
            observed_generation: generation,
        }
    });
    status.conditions = conditions.into();
}

/// Whether the headline of a verdict says more than its first reason.
fn has_numbers(reason: ComparisonReason) -> bool {
    reason.outcome() == ComparisonOutcome::Decided
}

fn waits_remedy(reason: ComparisonReason) -> Option<&'static str> {
    match reason.outcome() {
        ComparisonOutcome::InProgress => reason.remedy(),
        ComparisonOutcome::Decided | ComparisonOutcome::Inconclusive | ComparisonOutcome::Note => {
            None
        }
    }
}
