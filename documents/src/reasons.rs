//! The one list of reasons and exit codes, `contract/reasons.yaml`, and the files that are written
//! from it.
//!
//! Invariant: a list that cannot be right is refused: a name or a number that stands twice, a
//! failure without a remedy, or two remedies for one name.

mod pages;
mod rust;

use std::collections::BTreeMap;

use serde::Deserialize;

/// The list's path in the project.
pub const LIST: &str = "contract/reasons.yaml";

/// Why the list is refused, or a page cannot be written from it.
#[derive(Debug, thiserror::Error)]
pub enum ReasonsError {
    /// It does not have the form.
    #[error("not a list of reasons")]
    Yaml(#[from] serde_yaml::Error),
    /// A name or a number.
    #[error("{0} stands twice; leave one")]
    Twice(String),
    /// A reason that its reader must act on.
    #[error("{0} has no remedy; say what its reader can do")]
    NoRemedy(String),
    /// A reason of several lists.
    #[error("{0} has another remedy for a request than elsewhere; give it one")]
    TwoRemedies(String),
    /// A name in a mark.
    #[error("a page names {0}, which is not in the list; correct the name")]
    Unknown(String),
    /// What ends a table.
    #[error("a page has no {0:?}; put it after the table")]
    NoEnd(&'static str),
}

/// What is in the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reasons {
    requests: Vec<RequestRow>,
    comparisons: Vec<ComparisonRow>,
    triggers: Vec<TriggerRow>,
    pods: Vec<PodRow>,
    events: Vec<EventRow>,
    done: Vec<SuccessRow>,
    plugin: Vec<PluginRow>,
}

/// A reason of a request's conditions.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestRow {
    reason: String,
    outcome: ReasonOutcome,
    meaning: String,
    remedy: Option<String>,
}

/// What a reason says about its request.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum ReasonOutcome {
    #[serde(rename = "Held back")]
    Held,
    #[serde(rename = "In progress")]
    InProgress,
    Complete,
    Refused,
    Failed,
}

impl ReasonOutcome {
    /// As users read it.
    fn words(self) -> &'static str {
        match self {
            ReasonOutcome::Held => "Held back",
            ReasonOutcome::InProgress => "In progress",
            ReasonOutcome::Complete => "Complete",
            ReasonOutcome::Refused => "Refused",
            ReasonOutcome::Failed => "Failed",
        }
    }
}

/// A reason of a comparison's conditions and verdict.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ComparisonRow {
    reason: String,
    outcome: VerdictOutcome,
    meaning: String,
    remedy: Option<String>,
}

/// What a reason says about its comparison.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum VerdictOutcome {
    #[serde(rename = "In progress")]
    InProgress,
    Decided,
    Inconclusive,
    Note,
}

impl VerdictOutcome {
    /// As users read it.
    fn words(self) -> &'static str {
        match self {
            VerdictOutcome::InProgress => "In progress",
            VerdictOutcome::Decided => "Decided",
            VerdictOutcome::Inconclusive => "Inconclusive",
            VerdictOutcome::Note => "Note",
        }
    }
}

/// A reason of a trigger's condition.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TriggerRow {
    reason: String,
    outcome: FiringOutcome,
    meaning: String,
    remedy: Option<String>,
}

/// What a reason says about its trigger.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum FiringOutcome {
    Fired,
    Repeated,
    #[serde(rename = "Not fired")]
    NotFired,
}

impl FiringOutcome {
    /// As users read it.
    fn words(self) -> &'static str {
        match self {
            FiringOutcome::Fired => "Fired",
            FiringOutcome::Repeated => "Repeated",
            FiringOutcome::NotFired => "Not fired",
        }
    }
}

/// A reason of a pod. The sampler's have an exit code.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodRow {
    reason: String,
    exit_code: Option<u8>,
    receipt: Option<String>,
    meaning: String,
    remedy: String,
}

/// A reason of a request's events.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventRow {
    reason: String,
    meaning: String,
    remedy: Option<String>,
}

/// How a sampler ends that has not failed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SuccessRow {
    reason: String,
    receipt: String,
}

/// An exit code of the plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PluginRow {
    exit: String,
    exit_code: u8,
    help: String,
    meaning: String,
}

/// What the sampler's process ends with.
struct SamplerExit<'a> {
    code: u8,
    reason: &'a str,
    meaning: &'a str,
}

impl Reasons {
    /// Reads the list.
    ///
    /// # Errors
    /// It is not such a list, or cannot be right.
    pub fn parse(yaml: &str) -> Result<Self, ReasonsError> {
        let reasons: Self = serde_yaml::from_str(yaml)?;
        let of_pods = reasons.pods.iter().map(|it| it.reason.as_str());
        let done = reasons.done.iter().map(|it| it.reason.as_str());
        once(reasons.requests.iter().map(|it| it.reason.as_str()))?;
        once(of_pods.chain(done))?;
        once(reasons.comparisons.iter().map(|it| it.reason.as_str()))?;
        once(reasons.triggers.iter().map(|it| it.reason.as_str()))?;
        once(reasons.events.iter().map(|it| it.reason.as_str()))?;
        once(reasons.plugin.iter().map(|it| it.exit.as_str()))?;
        once(reasons.pods.iter().filter_map(|it| it.exit_code))?;
        once(reasons.plugin.iter().map(|it| it.exit_code))?;
        for of_request in &reasons.requests {
            reasons.check_remedy(of_request)?;
        }
        for of_comparison in &reasons.comparisons {
            reasons.check_comparison(of_comparison)?;
        }
        for of_trigger in &reasons.triggers {
            let has_failed = of_trigger.outcome == FiringOutcome::NotFired;
            if has_failed && of_trigger.remedy.is_none() {
                return Err(ReasonsError::NoRemedy(of_trigger.reason.clone()));
            }
        }
        Ok(reasons)
    }

    fn check_remedy(&self, of_request: &RequestRow) -> Result<(), ReasonsError> {
        let name = || of_request.reason.clone();
        let Some(remedy) = &of_request.remedy else {
            return match of_request.outcome {
                ReasonOutcome::InProgress | ReasonOutcome::Complete => Ok(()),
                ReasonOutcome::Held | ReasonOutcome::Refused | ReasonOutcome::Failed => {
                    Err(ReasonsError::NoRemedy(name()))
                }
            };
        };
        let mut of_pods = self.pods.iter();
        match of_pods.find(|of_pod| of_pod.reason == of_request.reason) {
            Some(of_pod) if of_pod.remedy != *remedy => Err(ReasonsError::TwoRemedies(name())),
            _ => Ok(()),
        }
    }

    fn check_comparison(&self, of: &ComparisonRow) -> Result<(), ReasonsError> {
        let Some(remedy) = &of.remedy else {
            return if of.outcome == VerdictOutcome::Inconclusive {
                Err(ReasonsError::NoRemedy(of.reason.clone()))
            } else {
                Ok(())
            };
        };
        let of_requests = self.requests.iter().filter_map(|it| {
            let remedy = it.remedy.as_ref();
            remedy.map(|remedy| (&it.reason, remedy))
        });
        let of_pods = self.pods.iter().map(|it| (&it.reason, &it.remedy));
        let mut others = of_requests.chain(of_pods);
        match others.find(|(reason, _)| **reason == of.reason) {
            Some((_, other)) if other != remedy => {
                Err(ReasonsError::TwoRemedies(of.reason.clone()))
            }
            _ => Ok(()),
        }
    }

    /// In the order of the codes.
    fn sampler_exits(&self) -> Vec<SamplerExit<'_>> {
        let done = self.done.iter().map(|it| SamplerExit {
            code: 0,
            reason: &it.reason,
            meaning: &it.receipt,
        });
        let failed = self.pods.iter().filter_map(|it| {
            Some(SamplerExit {
                code: it.exit_code?,
                reason: &it.reason,
                meaning: it.receipt.as_ref().unwrap_or(&it.meaning),
            })
        });
        let mut all: Vec<_> = done.chain(failed).collect();
        all.sort_by_key(|it| it.code);
        all
    }

    /// The reasons of events.
    pub fn of_events(&self) -> impl Iterator<Item = &str> {
        self.events.iter().map(|it| it.reason.as_str())
    }

    /// The files that are written whole, by their paths.
    #[must_use]
    pub fn files(&self) -> BTreeMap<&'static str, String> {
        [
            ("crds/src/reason.rs", rust::crds(self)),
            ("profiler-image/src/reason.rs", rust::sampler(self)),
            ("kubectl-phpprof/src/exit.rs", rust::plugin(self)),
            ("docs/reference/reasons.md", pages::reference(self)),
        ]
        .into()
    }

    /// A page with its tables written anew: those of reasons of pods, and that of the sampler's
    /// exit codes. What stands outside of the marks stays.
    ///
    /// # Errors
    /// A mark names an unknown reason, or has no end.
    pub fn tables(&self, page: &str) -> Result<String, ReasonsError> {
        pages::tables(self, page)
    }
}

/// The pages that have tables of it.
pub const PAGES: [&str; 2] = ["contract/README.md", "docs/guides/troubleshooting.md"];

fn once<T: ToString>(all: impl Iterator<Item = T>) -> Result<(), ReasonsError> {
    let mut known = Vec::new();
    for one in all.map(|it| it.to_string()) {
        if known.contains(&one) {
            return Err(ReasonsError::Twice(one));
        }
        known.push(one);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
requests:
  - {reason: Queued, outcome: Held back, meaning: it waits., remedy: Wait.}
  - {reason: Cancelled, outcome: Complete, meaning: it was cancelled.}
comparisons:
  - {reason: NoCells, outcome: Inconclusive, meaning: it has none., remedy: Profile again.}
triggers:
  - {reason: LimitReached, outcome: Not fired, meaning: it waits., remedy: Wait for it.}
pods:
  - {reason: Cancelled, exitCode: 31, receipt: \"cancelled; `detail` is empty\", meaning: It was cancelled., remedy: Ask again.}
  - {reason: PodDeleted, meaning: It was deleted., remedy: Ask again.}
events:
  - {reason: Accepted, meaning: it was accepted.}
  - {reason: Injected, meaning: samplers were added.}
done:
  - {reason: Uploaded, receipt: stored}
plugin:
  - {exit: Failed, exitCode: 1, help: failed, meaning: failed}
";

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        assert!(GOOD.contains(from));
        let refused = Reasons::parse(&GOOD.replace(from, to)).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }

    #[test]
    fn a_list_that_cannot_be_right_is_refused() {
        assert!(Reasons::parse(GOOD).is_ok());
        check("PodDeleted", "Cancelled", "Cancelled stands twice");
        check("Uploaded", "PodDeleted", "PodDeleted stands twice");
        check("Injected", "Accepted", "Accepted stands twice");
        check(
            "PodDeleted,",
            "PodDeleted, exitCode: 31,",
            "31 stands twice",
        );
        check(", remedy: Wait.", "", "Queued has no remedy");
        check(
            "was cancelled.}",
            "was cancelled., remedy: No.}",
            "Cancelled has another",
        );
        check(", remedy: Profile again.", "", "NoCells has no remedy");
        check(", remedy: Wait for it.", "", "LimitReached has no remedy");
        check("reason: NoCells", "reason: Queued", "Queued has another");
        check("Held back", "Held up", "not a list of reasons");
        check("help:", "halp:", "not a list of reasons");
    }

    #[test]
    fn a_table_is_written_anew_between_its_marks() {
        let reasons = Reasons::parse(GOOD).unwrap();
        let page = |table: &str| {
            let mark = pages::BEGIN;
            format!(
                "before\n{mark}Cancelled -->\n{table}{}\nafter\n",
                pages::END
            )
        };
        let row = "| `Cancelled` | 31 | It was cancelled. | Ask again. |\n";
        let written = reasons.tables(&page("old words\n")).unwrap();
        assert_eq!(written, page(&format!("\n{}{row}\n", pages::TABLE)));
        assert_eq!(reasons.tables(&written).unwrap(), written);
        let codes = format!("{}\nold\n{}", pages::CODES, pages::END_OF_CODES);
        let written = reasons.tables(&codes).unwrap();
        assert!(written.contains("| 0 | `Uploaded` | stored |\n| 31 | `Cancelled` | cancelled;"));
        assert_eq!(reasons.tables(&written).unwrap(), written);
    }

    #[test]
    fn a_page_with_a_wrong_mark_is_refused() {
        let reasons = Reasons::parse(GOOD).unwrap();
        let unknown = format!("{}Nothing -->{}", pages::BEGIN, pages::END);
        let refused = reasons.tables(&unknown).unwrap_err();
        assert!(refused.to_string().contains("names Nothing"), "{refused}");
        for begin in [pages::BEGIN, pages::CODES] {
            assert!(reasons.tables(&format!("{begin}Cancelled -->")).is_err());
        }
    }
}
