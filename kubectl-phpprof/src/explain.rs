//! `explain`: what a reason or a finding means, and what to do about it.
//!
//! Meanings and remedies come from the API's reasons. Findings come from their reference page,
//! which is compiled in.
//!
//! Invariant: every reason of the API and every finding is explained.

use std::fmt::Display;

use phpprof_crds::{ComparisonReason, EventReason, RequestReason, TargetReason, TriggerReason};
use serde::de::DeserializeOwned;

use crate::failure::{Exit, Failure};

/// Name and meaning of each reason: those of requests, comparisons, triggers, pods and events.
pub fn reasons() -> Vec<(String, String)> {
    let of_requests = RequestReason::ALL.iter();
    let mut all: Vec<_> = of_requests
        .map(|reason| (reason.to_string(), reason.meaning().to_owned()))
        .collect();
    for reason in ComparisonReason::ALL {
        add(&mut all, "Of a comparison", reason, reason.meaning());
    }
    for reason in TriggerReason::ALL {
        add(&mut all, "Of a trigger", reason, reason.meaning());
    }
    for reason in TargetReason::ALL {
        add(&mut all, "For a pod", reason, reason.meaning());
    }
    for reason in EventReason::ALL {
        add(&mut all, "In an event", reason, reason.meaning());
    }
    all
}

/// Adds a reason, or another meaning of one that is there.
fn add(all: &mut Vec<(String, String)>, place: &str, reason: impl Display, meaning: &str) {
    let name = reason.to_string();
    match all.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = format!("{known} {place}: {meaning}"),
        None => all.push((name, meaning.to_owned())),
    }
}

/// The reference page of findings, with a section for each.
const FINDINGS: &str = include_str!("../../docs/reference/findings.md");

/// Name and section of each finding.
pub fn findings() -> impl Iterator<Item = (&'static str, &'static str)> {
    let sections = FINDINGS.split("\n## ").skip(1);
    sections.filter_map(|section| {
        let (name, text) = section.split_once('\n')?;
        Some((name.trim(), text.trim()))
    })
}

/// The reason with this name.
pub fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

/// The remedy of a request's reason, else of a comparison's, a trigger's, a pod's or an event's.
fn remedy(name: &str) -> Option<&'static str> {
    named(name)
        .and_then(RequestReason::remedy)
        .or_else(|| named(name).and_then(ComparisonReason::remedy))
        .or_else(|| named(name).and_then(TriggerReason::remedy))
        .or_else(|| named(name).map(TargetReason::remedy))
        .or_else(|| named(name).and_then(EventReason::remedy))
}

pub fn text(asked: Option<&str>) -> Result<String, Failure> {
    let all = reasons();
    let Some(asked) = asked else {
        return Ok(all
            .iter()
            .map(|(name, meaning)| format!("{name}\n    {meaning}\n"))
            .collect());
    };
    if let Some((name, text)) = findings().find(|(name, _)| name.eq_ignore_ascii_case(asked)) {
        return Ok(format!("{name}\n\n{text}\n"));
    }
    let known = all
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(asked));
    let Some((name, meaning)) = known else {
        let near: Vec<_> = all
            .iter()
            .map(|(name, _)| name.as_str())
            .chain(findings().map(|(name, _)| name))
            .filter(|name| {
                name.to_ascii_lowercase()
                    .contains(&asked.to_ascii_lowercase())
            })
            .collect();
        let hint = if near.is_empty() {
            "list all reasons: kubectl phpprof explain".to_owned()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no reason or finding {asked:?}"),
            hint,
        ));
    };
    let advice =
        remedy(name).map_or_else(String::new, |remedy| format!("\nWhat to do: {remedy}\n"));
    Ok(format!("{name}\n\n{meaning}\n{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_meaning() {
        let all = reasons();
        assert!(all.len() > 50);
        assert!(all.iter().all(|(_, meaning)| !meaning.is_empty()));
    }

    #[test]
    fn an_unknown_reason_gets_a_hint() {
        insta::assert_snapshot!("explain", text(Some("usERunknown")).unwrap());
        let failure = text(Some("upload")).unwrap_err();
        assert_eq!(
            failure.hint,
            "did you mean UploadDeadlineExceeded, UploadRefused, Uploaded?"
        );
        assert_eq!(text(Some("Nothing")).unwrap_err().exit, Exit::NotFound);
    }

    #[test]
    fn reasons_of_events_are_explained() {
        let said = text(Some("PushFailed")).unwrap();
        assert!(said.contains("\nWhat to do: Check the address"), "{said}");
        let said = text(Some("Complete")).unwrap();
        assert!(
            said.contains(". In an event: the request is complete"),
            "{said}"
        );
    }

    #[test]
    fn every_finding_is_explained() {
        let names: Vec<&str> = findings().map(|(name, _)| name).collect();
        assert!(names.len() >= 22, "{names:?}");
        let said = text(Some("query-loop")).unwrap();
        assert!(said.starts_with("query-loop\n\nOne function"), "{said}");
        // Every row of the page's table leads to a section.
        for row in FINDINGS.lines().filter(|line| line.starts_with("| [")) {
            let id = row.split(['[', ']']).nth(1).unwrap();
            assert!(text(Some(id)).is_ok(), "{id}");
        }
    }
}
