//! The tool `findings`: known problems, and how to find their place.
//!
//! Invariant: advice has no name of the program; function, file and stack are fields of their own.

use phpprof_profile::findings::{ErrorPlace, Measure};
use phpprof_profile::in_use::is_in_use;
use phpprof_profile::{Finding, View, findings};
use serde::Serialize;
use serde_json::json;

use super::answer::{AgentAnswer, AgentNexts, AgentPlace};
use super::ask::FindingsAsked;
use super::head::is_code;
use super::part::AskedPart;
use super::quote::{quoted, quoted_path};
use crate::failure::Failure;
use crate::source::ProfileSource;

/// The innermost functions of a stack that are shown.
const DEPTH: usize = 8;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingsBody {
    /// The largest share first.
    findings: Vec<FindingRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    left_out: usize,
}

#[derive(Serialize)]
struct FindingRow {
    id: &'static str,
    percent: f64,
    of: &'static str,
    advice: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The heaviest stack's innermost functions, root first.
    stack: Vec<String>,
    /// The lines that raise errors, if the finding is about these, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    places: Vec<PlaceRow>,
}

#[derive(Serialize)]
struct PlaceRow {
    function: String,
    file: String,
    line: i64,
    percent: f64,
}

pub fn answer(
    source: &ProfileSource,
    place: &AgentPlace,
    asked: &FindingsAsked,
) -> Result<AgentAnswer, Failure> {
    let part = AskedPart::new(&asked.profile, None, &asked.labels);
    let chosen = part.of(&source.profile)?;
    let view = View {
        sample_type: None,
        labels: chosen.view.labels.clone(),
    };
    let found = findings(&*chosen.profile, &view);
    let next = next(&found, &part);
    let body = |count: usize| FindingsBody {
        findings: found.iter().take(count).map(row).collect(),
        note: found.is_empty().then_some(if is_in_use(&chosen.profile) {
            "Rules are of time, and this profile is of what is in heaps: look at top."
        } else {
            "No rule found a problem. That does not mean that there is none: look at top."
        }),
        left_out: found.len().saturating_sub(count),
    };
    AgentAnswer::fitted(place, found.len(), body, &next)
}

fn row(finding: &Finding) -> FindingRow {
    let stack = finding.stacks.first().map(|stack| &stack.functions);
    let stack = stack.map_or(&[] as &[String], Vec::as_slice);
    let inner = stack.iter().skip(stack.len().saturating_sub(DEPTH));
    FindingRow {
        id: finding.id,
        percent: finding.share,
        of: finding.of.words(),
        advice: finding.advice(),
        function: finding.function.as_ref().map(|it| quoted(&it.name)),
        file: finding.function.as_ref().map(|it| quoted_path(&it.file)),
        stack: inner.map(|name| quoted(name)).collect(),
        places: finding.places.iter().map(place_row).collect(),
    }
}

fn place_row(place: &ErrorPlace) -> PlaceRow {
    PlaceRow {
        function: quoted(&place.function),
        file: quoted_path(&place.file),
        line: place.line,
        percent: place.share,
    }
}

/// The place of each finding: callers of what has no lines, else its lines.
fn next(found: &[Finding], part: &AskedPart<'_>) -> AgentNexts {
    let mut next = AgentNexts::default();
    for finding in found {
        let of_type = match finding.of {
            Measure::Cpu => Some("cpu"),
            _ => None,
        };
        let part = AskedPart {
            sample_type: of_type,
            ..*part
        };
        if let Some(raiser) = finding.places.first() {
            let function =
                json!({"function": quoted(&raiser.function), "file": quoted_path(&raiser.file)});
            next.add(
                "lines",
                "the lines that raise most errors",
                part.and(function),
            );
        }
        let of_stack = finding.stacks.first().and_then(|it| it.functions.last());
        match (&finding.function, of_stack) {
            (Some(function), _) if is_code(&function.file) => next.add(
                "lines",
                "the lines of this finding's function",
                part.and(json!({"function": quoted(&function.name), "file": quoted_path(&function.file)})),
            ),
            (Some(function), _) => next.add(
                "callers",
                "which code of the application causes this finding",
                part.and(json!({"function": quoted(&function.name)})),
            ),
            (None, Some(leaf)) => next.add(
                "callers",
                "which code of the application causes this finding",
                part.and(json!({"function": quoted(leaf)})),
            ),
            (None, None) => {}
        }
    }
    next.add("top", "what has the largest share", part.and(json!({})));
    next
}
