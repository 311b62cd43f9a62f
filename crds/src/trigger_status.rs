//! What the operator reports of a trigger: what it saw last, what it created, and why it did not.
//!
//! Invariant: lists and strings are bounded, and nothing of an alert but its name, fingerprint and
//! start is here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded;

/// What has happened to a trigger.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileTriggerStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Fired: whether the last alerts with these labels have started a request, and why not. Until
    /// there was such an alert, why the others do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::trigger_conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// When alerts of this namespace were received last, with these labels or without. It may be up
    /// to 30 s behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_asked_time: Option<Time>,
    /// The last firing alert with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_alert: Option<SeenAlert>,
    /// Notifications of firing alerts with these labels. A repetition counts again. It is the sum
    /// of created, repeated and notFired.
    #[serde(default)]
    pub alerts: i64,
    /// Those that have started a request.
    #[serde(default)]
    pub created: i64,
    /// Those of alerts that had started one before.
    #[serde(default)]
    pub repeated: i64,
    /// Those that started none, for the reason in the condition at that time.
    #[serde(default)]
    pub not_fired: i64,
    /// The newest requests, at most 50. They count for the limit, and an alert in this list starts
    /// no second one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub requests: Vec<TriggeredRequest>,
}

/// An alert that was seen.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SeenAlert {
    /// Its label alertname, up to 128 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub name: String,
    /// Alertmanager's hash of its labels.
    #[schemars(length(max = 64))]
    pub fingerprint: String,
    /// Since when it fires.
    pub starts_at: Time,
    /// When it was received.
    pub time: Time,
}

/// A request, and the alert that started it.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TriggeredRequest {
    /// Its name, which follows from the alert.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID; absent if it was not created, for the reason in the condition at that time.
    #[serde(
        default,
        rename = "requestUID",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 128))]
    pub request_uid: String,
    /// The alert's fingerprint.
    #[schemars(length(max = 64))]
    pub fingerprint: String,
    /// Since when that alert fires.
    pub starts_at: Time,
    /// When it was decided.
    pub time: Time,
}
