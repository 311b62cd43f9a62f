//! ProfileTrigger: creates a request when something happens, for instance when an alert fires.
//!
//! Invariant: what a trigger may start is its template, in its own namespace. A condition is a
//! field of `when`, so another kind of condition changes no other field.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema as _, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ProfileRequestSpec, ProfileTriggerStatus, bounded};

/// What starts a request, what the request is, and how often.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "phpprof.dev",
    version = "v1alpha1",
    kind = "ProfileTrigger",
    plural = "profiletriggers",
    doc = "Creates a ProfileRequest when something happens, for instance when an alert of Prometheus fires.",
    shortname = "ptrg",
    category = "phpprof",
    namespaced,
    cel,
    status = "ProfileTriggerStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message("the name must have at most 63 characters, because it is the label phpprof.dev/trigger of the requests"),
    printcolumn = r#"{"name":"Fired","type":"string","description":"Whether the last alert with its labels has started a request.","jsonPath":".status.conditions[0].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","description":"Why.","jsonPath":".status.conditions[0].reason"}"#,
    printcolumn = r#"{"name":"Request","type":"string","description":"The newest request.","jsonPath":".status.requests[0].name"}"#,
    printcolumn = r#"{"name":"Asked","type":"date","description":"When alerts were received last.","jsonPath":".status.lastAskedTime"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Suspended","type":"boolean","jsonPath":".spec.suspend","priority":1}"#
)]
#[x_kube(validation = Rule::new("!self.template.cancel && !self.template.suspend")
    .message("a template is neither cancelled nor suspended: leave out cancel and suspend there; spec.suspend holds the trigger back"),
validation = Rule::new("self.template.mode != 'Live'")
    .message("nobody reads a live request that an alert starts: set the template's mode to Profile or Snapshot"))]
#[serde(rename_all = "camelCase")]
pub struct ProfileTriggerSpec {
    /// The condition.
    pub when: TriggerCondition,

    /// The spec of the request that is created, as of a ProfileRequest.
    #[schemars(schema_with = "template")]
    pub template: ProfileRequestSpec,

    /// How many requests are created within a time.
    #[serde(default)]
    pub limit: TriggerLimit,

    /// Seconds after a request in which no other one is created; 0 to 86400.
    #[serde(default = "defaults::back_off_seconds")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 86400")
        .message("backOffSeconds must be from 0 to 86400, for instance 300"))]
    pub back_off_seconds: i32,

    /// Creates no requests while this is true.
    #[serde(default)]
    pub suspend: bool,
}

/// The condition: exactly one of its fields. There is only alert so far.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(validation = Rule::new("has(self.alert)")
    .message("when needs a condition: alert, with the labels of the alert in matchLabels"))]
#[serde(rename_all = "camelCase")]
pub struct TriggerCondition {
    /// An alert fires that Alertmanager sends to /alerts/NAMESPACE of the operator. The
    /// administrator turns that on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertCondition>,
}

/// Which alerts count.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AlertCondition {
    /// Labels that an alert must have, with these values: at least one, at most 16.
    #[schemars(schema_with = "bounded::alert_labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// How many requests are created within a time.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TriggerLimit {
    /// The most requests within windowSeconds; 1 to 50.
    #[serde(default = "defaults::requests")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 50")
        .message("limit.requests must be from 1 to 50, for instance 3"))]
    pub requests: i32,

    /// The window before each moment in which they count; 60 to 604800.
    #[serde(default = "defaults::window_seconds")]
    #[x_kube(validation = Rule::new("self >= 60 && self <= 604800")
        .message("limit.windowSeconds must be from 60 to 604800, for instance 3600"))]
    pub window_seconds: i32,
}

impl Default for TriggerLimit {
    fn default() -> Self {
        Self {
            requests: defaults::requests(),
            window_seconds: defaults::window_seconds(),
        }
    }
}

/// The spec of a request as a template. It may be changed, so it lacks the rules that compare it
/// with the one before.
fn template(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = ProfileRequestSpec::json_schema(generator);
    let rules = schema.get_mut("x-kubernetes-validations");
    if let Some(rules) = rules.and_then(Value::as_array_mut) {
        let compares = |rule: &Value| {
            rule["rule"]
                .as_str()
                .is_some_and(|it| it.contains("oldSelf"))
        };
        rules.retain(|rule| !compares(rule));
    }
    schema
}

mod defaults {
    pub fn back_off_seconds() -> i32 {
        300
    }
    pub fn requests() -> i32 {
        3
    }
    pub fn window_seconds() -> i32 {
        3600
    }
}
