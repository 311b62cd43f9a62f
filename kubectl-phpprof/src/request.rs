//! A ProfileRequest as it is shown to users: its reason, its counts, its pods.
//!
//! It reads JSON instead of types, so that reasons and fields of a newer operator are shown, not
//! refused.
//!
//! Invariant: missing fields read as empty or 0.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownOutcome {
    InProgress,
    Complete,
    Failed,
}

pub struct RequestView<'a> {
    pub object: &'a DynamicObject,
}

/// A pod of a request.
pub struct TargetView<'a>(&'a Value);

impl<'a> RequestView<'a> {
    pub fn of(object: &'a DynamicObject) -> Self {
        RequestView { object }
    }

    pub fn name(&self) -> String {
        self.object.name_any()
    }

    pub fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    pub fn at(&self, pointer: &str) -> &'a Value {
        self.object.data.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub fn words(&self, pointer: &str) -> &'a str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    pub fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or(0)
    }

    pub fn conditions(&self) -> &'a [Value] {
        list(self.at("/status/conditions"))
    }

    pub fn outcome(&self) -> ShownOutcome {
        let holds = |kind: &str| {
            self.conditions()
                .iter()
                .any(|condition| condition["type"] == kind && condition["status"] == "True")
        };
        if holds("Failed") {
            ShownOutcome::Failed
        } else if holds("Complete") {
            ShownOutcome::Complete
        } else {
            ShownOutcome::InProgress
        }
    }

    /// The reason of the current condition, which is the first one.
    pub fn reason(&self) -> &'a str {
        self.words("/status/conditions/0/reason")
    }

    pub fn message(&self) -> &'a str {
        self.words("/status/conditions/0/message")
    }

    pub fn age(&self, now: Timestamp) -> i64 {
        let created = self.object.metadata.creation_timestamp.as_ref();
        created.map_or(0, |created| now.as_second() - created.0.as_second())
    }

    pub fn targets(&self) -> impl Iterator<Item = TargetView<'a>> + use<'a> {
        list(self.at("/status/targets")).iter().map(TargetView)
    }

    /// The target, as on the command line.
    pub fn target_words(&self) -> String {
        let target = self.at("/spec/target");
        if let Some(pod) = target["podName"].as_str() {
            return format!("pod/{pod}");
        }
        if let Some(kind) = target["workloadRef"]["kind"].as_str() {
            let name = target["workloadRef"]["name"].as_str().unwrap_or_default();
            return format!("{}/{name}", kind.to_ascii_lowercase());
        }
        let labels = target["selector"]["matchLabels"].as_object();
        let mut words: Vec<_> = labels
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect();
        if target["selector"]["matchExpressions"].is_array() {
            words.push("…".to_owned());
        }
        words.join(",")
    }
}

impl<'a> TargetView<'a> {
    pub fn words(&self, pointer: &str) -> &'a str {
        self.0
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    pub fn decimal(&self, pointer: &str) -> Option<f64> {
        self.0.pointer(pointer).and_then(Value::as_f64)
    }

    pub fn pod(&self) -> &'a str {
        self.words("/podName")
    }

    pub fn state(&self) -> &'a str {
        self.words("/state")
    }

    pub fn reason(&self) -> &'a str {
        self.words("/reason")
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
