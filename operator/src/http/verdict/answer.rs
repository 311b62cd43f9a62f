//! What is answered about a comparison. Pure.
//!
//! Invariant: an answer has no name of a function, a file or a route.

use axum::http::StatusCode;
use kube::ResourceExt as _;
use phpprof_crds::{ComparedTime, ComparisonVerdict, ProfileComparison};
use serde::Serialize;

use super::question::GateAllowance;

/// How far a comparison is.
#[derive(Clone, Copy, Debug, Serialize, PartialEq, Eq)]
pub(super) enum VerdictPhase {
    /// It waits for its requests, or compares.
    Running,
    /// It has ended.
    Complete,
}

/// The answer, as JSON.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(super) struct VerdictAnswer {
    comparison: String,
    phase: VerdictPhase,
    /// As in the status; empty until it is known, which conditions compare more easily than null.
    verdict: String,
    /// Whether it is known that requests do not take more time than is accepted.
    may_proceed: bool,
    reason: String,
    message: String,
    /// Of the time of an HTTP request. Absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    increase: Option<VerdictIncrease>,
    #[serde(skip_serializing_if = "Option::is_none")]
    smallest_visible_percent: Option<f64>,
    #[serde(skip)]
    known: Option<ComparisonVerdict>,
}

/// An increase in milliseconds and in percent; negative if requests take less time. The intervals
/// have the true value with a probability of 95 %.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct VerdictIncrease {
    before: f64,
    after: f64,
    milliseconds: f64,
    low: f64,
    high: f64,
    percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    low_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high_percent: Option<f64>,
}

impl VerdictIncrease {
    fn of(time: &ComparedTime) -> Self {
        let percent = |milliseconds: f64| {
            let percent = (milliseconds / time.before * 1e6).round() / 1e4;
            percent.is_finite().then_some(percent)
        };
        Self {
            before: time.before,
            after: time.after,
            milliseconds: time.difference,
            low: time.low,
            high: time.high,
            percent: time.percent,
            low_percent: percent(time.low),
            high_percent: percent(time.high),
        }
    }
}

impl VerdictAnswer {
    pub fn of(comparison: &ProfileComparison) -> Self {
        let status = comparison.status.clone().unwrap_or_default();
        let is_over = status.completion_time.is_some();
        let current = status.conditions.first();
        let known = status.verdict.filter(|_| is_over);
        let may_proceed = match known {
            Some(ComparisonVerdict::Better | ComparisonVerdict::NoChange) => true,
            Some(ComparisonVerdict::Worse | ComparisonVerdict::Inconclusive) | None => false,
        };
        Self {
            comparison: comparison.name_any(),
            phase: if is_over {
                VerdictPhase::Complete
            } else {
                VerdictPhase::Running
            },
            verdict: known.map_or_else(String::new, |it| format!("{it:?}")),
            may_proceed,
            reason: current.map_or_else(|| "New".to_owned(), |it| it.reason.clone()),
            message: current.map_or_else(
                || "the operator has not looked at it yet".to_owned(),
                |it| it.message.clone(),
            ),
            increase: status.time.as_ref().map(VerdictIncrease::of),
            smallest_visible_percent: status.smallest_visible_percent,
            known,
        }
    }

    /// 200 if the rollout may go on.
    pub fn gate(&self, allowed: GateAllowance) -> StatusCode {
        match self.known {
            None if allowed.running => StatusCode::OK,
            None => StatusCode::TOO_EARLY,
            Some(ComparisonVerdict::Better | ComparisonVerdict::NoChange) => StatusCode::OK,
            Some(ComparisonVerdict::Inconclusive) if allowed.inconclusive => StatusCode::OK,
            Some(ComparisonVerdict::Inconclusive | ComparisonVerdict::Worse) => {
                StatusCode::CONFLICT
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::at;

    fn comparison(status: Value) -> ProfileComparison {
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
            "metadata": {"name": "web-7d9f", "namespace": "shop"},
            "spec": {"before": {"request": "a"}, "after": {"request": "b"}}, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn ended(verdict: &str) -> Value {
        let condition = json!({"type": "Complete", "status": "True", "reason": "TimeChanged", "message": "slower",
            "lastTransitionTime": at(0)});
        json!({
            "completionTime": at(0), "verdict": verdict, "conditions": [condition], "smallestVisiblePercent": 3.7,
            "time": {"before": 200.0, "after": 250.0, "difference": 50.0, "low": 48.0, "high": 52.0, "percent": 25.0},
            "functions": [{"function": "Secret::name", "file": "/srv/secret.php", "time": {"before": 0.0, "after": 0.0,
                "difference": 0.0, "low": 0.0, "high": 0.0, "percent": 0.0}, "partPercent": 1.0}],
        })
    }

    #[test]
    fn an_answer_has_numbers_and_no_functions() {
        let answer = VerdictAnswer::of(&comparison(ended("Worse")));
        let expected = json!({
            "comparison": "web-7d9f", "phase": "Complete", "verdict": "Worse", "mayProceed": false,
            "reason": "TimeChanged", "message": "slower", "smallestVisiblePercent": 3.7,
            "increase": {"before": 200.0, "after": 250.0, "milliseconds": 50.0, "low": 48.0, "high": 52.0,
                "percent": 25.0, "lowPercent": 24.0, "highPercent": 26.0},
        });
        assert_eq!(serde_json::to_value(answer).unwrap(), expected);
        let new = VerdictAnswer::of(&comparison(json!({})));
        let new = serde_json::to_value(new).unwrap();
        assert_eq!(
            (&new["phase"], &new["verdict"]),
            (&json!("Running"), &json!(""))
        );
        assert_eq!(new.get("increase"), None);
    }

    #[test]
    fn only_good_or_allowed_ends_open_the_gate() {
        let gate = |status: Value, running, inconclusive| {
            let allowed = GateAllowance {
                running,
                inconclusive,
            };
            VerdictAnswer::of(&comparison(status))
                .gate(allowed)
                .as_u16()
        };
        for (verdict, codes) in [
            ("Better", [200, 200]),
            ("NoChange", [200, 200]),
            ("Worse", [409, 409]),
            ("Inconclusive", [409, 200]),
        ] {
            let found = [false, true].map(|all| gate(ended(verdict), all, all));
            assert_eq!(found, codes, "{verdict}");
        }
        assert_eq!(gate(json!({}), false, true), 425);
        assert_eq!(gate(json!({}), true, false), 200);
        // A status that has not ended has no verdict, whatever stands in it.
        assert_eq!(gate(json!({"verdict": "NoChange"}), false, false), 425);
    }
}
