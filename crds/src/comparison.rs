//! ProfileComparison: whether requests take more time than before, and where. Its sides are
//! finished requests, pods that the operator profiles at the same time, or stored runs.
//!
//! Invariant: what a comparison creates follows from its spec, which cannot be changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ProfileComparisonStatus, ProfileTarget, WorkloadRef};

/// Which profiles to compare, and what to accept.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "phpprof.dev",
    version = "v1alpha1",
    kind = "ProfileComparison",
    plural = "profilecomparisons",
    doc = "Says whether HTTP requests take more time than before, and which functions did it.",
    shortname = "pcmp",
    category = "phpprof",
    namespaced,
    cel,
    status = "ProfileComparisonStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name.size() <= 246")
        .message("the name must have at most 246 characters, because the requests of its targets are named NAME-before and NAME-after"),
    printcolumn = r#"{"name":"Verdict","type":"string","description":"Better, Worse, NoChange or Inconclusive; empty until it is known.","jsonPath":".status.verdict"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","description":"Reason of the current condition, which is the first of the list.","jsonPath":".status.conditions[0].reason"}"#,
    printcolumn = r#"{"name":"Before","type":"string","description":"The request before.","jsonPath":".status.before.request"}"#,
    printcolumn = r#"{"name":"After","type":"string","description":"The request after.","jsonPath":".status.after.request"}"#,
    printcolumn = r#"{"name":"Change","type":"string","description":"The change of the time of an HTTP request.","jsonPath":".status.change"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[x_kube(validation = Rule::new(
    "self.before == oldSelf.before && self.after == oldSelf.after && self.measure == oldSelf.measure && self.maxIncreasePercent == oldSelf.maxIncreasePercent && self.minMilliseconds == oldSelf.minMilliseconds && self.visiblePercent == oldSelf.visiblePercent && self.force == oldSelf.force && self.template == oldSelf.template && self.routes == oldSelf.routes && has(self.durationSeconds) == has(oldSelf.durationSeconds) && (!has(self.durationSeconds) || self.durationSeconds == oldSelf.durationSeconds) && has(self.samplesPerSecond) == has(oldSelf.samplesPerSecond) && (!has(self.samplesPerSecond) || self.samplesPerSecond == oldSelf.samplesPerSecond)"
).message("the spec cannot be changed, except cancel and ttlSecondsAfterFinished; create another ProfileComparison instead"),
validation = Rule::new("!oldSelf.cancel || self.cancel")
    .message("cancel cannot be undone; create another ProfileComparison instead"),
validation = Rule::new("!has(self.before.request) || !has(self.after.request) || self.before.request != self.after.request")
    .message("before and after name the same request; name two"),
validation = Rule::new("!has(self.durationSeconds) || has(self.before.target) || has(self.after.target)")
    .message("durationSeconds is for a side with a target; leave it out"),
validation = Rule::new("!has(self.samplesPerSecond) || has(self.before.target) || has(self.after.target)")
    .message("samplesPerSecond is for a side with a target; leave it out"))]
#[serde(rename_all = "camelCase")]
pub struct ProfileComparisonSpec {
    /// The earlier release: a request, or the pods that run it.
    pub before: ComparisonSide,

    /// The later release. If both sides are pods, they are profiled at the same time.
    pub after: ComparisonSide,

    /// How long the pods of a target are sampled; 1 to 3600. Without it, 60. The administrator may
    /// allow less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 3600")
        .message("durationSeconds must be from 1 to 3600, for instance 60"))]
    pub duration_seconds: Option<i32>,

    /// Samples per second for each worker of a target; 1 to 1000. Without it, 99. The administrator
    /// may allow less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 1000")
        .message("samplesPerSecond must be from 1 to 1000, for instance 99"))]
    pub samples_per_second: Option<i32>,

    /// The time per HTTP request that is compared. Wall: with waits. CPU: time on a CPU, which a
    /// slow database does not change.
    #[serde(default)]
    pub measure: ComparisonMeasure,

    /// Changes of an HTTP request's time up to this many percent are accepted; 0 to 1000.
    #[serde(default = "defaults::max_increase_percent")]
    #[x_kube(validation = Rule::new("self >= 0.0 && self <= 1000.0")
        .message("maxIncreasePercent must be from 0 to 1000, for instance 0.5"))]
    pub max_increase_percent: f64,

    /// Changes of an HTTP request's time up to this many milliseconds are accepted; 0 to 3600000.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0.0 && self <= 3600000.0")
        .message("minMilliseconds must be from 0 to 3600000, for instance 5"))]
    pub min_milliseconds: f64,

    /// Routes with limits of their own, each once; at most 20. Each is compared by itself, next to
    /// the mean of all: the verdict is Worse if one is slower than its limits allow, and
    /// Inconclusive if one cannot be compared.
    #[serde(default)]
    #[schemars(length(max = 20))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["route".to_string()]))]
    pub routes: Vec<ComparedRoute>,

    /// The verdict is NoChange only if a change of this many percent would have been seen, else
    /// Inconclusive; above 0, up to 1000.
    #[serde(default = "defaults::visible_percent")]
    #[x_kube(validation = Rule::new("self > 0.0 && self <= 1000.0")
        .message("visiblePercent must be above 0 and at most 1000, for instance 10"))]
    pub visible_percent: f64,

    /// Compares profiles that were not recorded alike. The verdict's reasons then say what differs.
    #[serde(default)]
    pub force: bool,

    /// The comparison itself is never run. The operator's address /verdict starts a comparison like
    /// it for each release, named NAME-RUN, if it is asked with the namespace's token.
    #[serde(default)]
    pub template: bool,

    /// Ends the comparison without a verdict. Requests that it has created and that still run are
    /// cancelled. This cannot be undone.
    #[serde(default)]
    pub cancel: bool,

    /// Seconds from the comparison's end until it is deleted, with the requests that it has
    /// created. Their profiles stay for a week.
    #[serde(default = "defaults::ttl_seconds_after_finished")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 2147483647")
        .message("ttlSecondsAfterFinished must be from 0 to 2147483647, for instance 604800 for a week"))]
    pub ttl_seconds_after_finished: i32,
}

/// A side of a comparison: exactly one of request, target and archive.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.request) ? 1 : 0) + (has(self.target) ? 1 : 0) + (has(self.archive) ? 1 : 0) == 1")
        .message("a side needs exactly one of request, target and archive")
)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonSide {
    /// The name of a ProfileRequest in this namespace, recorded with the label Route. If it is not
    /// finished, the comparison waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("request must be the name of a ProfileRequest, with only lower-case letters, digits, - and ., for instance web-before"))]
    pub request: Option<String>,

    /// The pods to profile, by a request named NAME-before or NAME-after that belongs to the
    /// comparison. For one of several releases of a workload, use a selector with
    /// pod-template-hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ProfileTarget>,

    /// What the archive has of a workload: the newest stored run, whose request may have been
    /// deleted, with the label Route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<StoredRun>,
}

/// A stored run of a workload.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StoredRun {
    /// The workload that was profiled, by a request or by a schedule.
    pub workload_ref: WorkloadRef,

    /// The run ended before this time, for instance that of a rollout. Without it, before the
    /// comparison was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Time>,
}

/// The limits of one route.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.maxIncreasePercent) || has(self.minMilliseconds)")
        .message("a route needs maxIncreasePercent, minMilliseconds or both, for instance maxIncreasePercent: 5")
)]
#[serde(rename_all = "camelCase")]
pub struct ComparedRoute {
    /// The route as a verdict names it: a path with ids replaced, for instance /users/{id}.
    #[schemars(length(max = 512))]
    #[x_kube(validation = Rule::new("self.startsWith('/')")
        .message("route must be a route as a verdict names it, for instance /users/{id}"))]
    pub route: String,

    /// Changes of its HTTP requests' time up to this many percent are accepted; 0 to 1000. Without
    /// it, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0.0 && self <= 1000.0")
        .message("maxIncreasePercent must be from 0 to 1000, for instance 0.5"))]
    pub max_increase_percent: Option<f64>,

    /// Changes of its HTTP requests' time up to this many milliseconds are accepted; 0 to 3600000.
    /// Without it, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0.0 && self <= 3600000.0")
        .message("minMilliseconds must be from 0 to 3600000, for instance 5"))]
    pub min_milliseconds: Option<f64>,
}

/// The time that is compared.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ComparisonMeasure {
    /// Time within HTTP requests, waiting included.
    #[default]
    Wall,
    /// Time on a CPU.
    #[serde(rename = "CPU")]
    Cpu,
}

impl ProfileComparisonSpec {
    /// How long targets are sampled.
    #[must_use]
    pub fn duration(&self) -> i32 {
        self.duration_seconds.unwrap_or(60)
    }

    /// How often.
    #[must_use]
    pub fn rate(&self) -> i32 {
        self.samples_per_second.unwrap_or(99)
    }
}

mod defaults {
    pub fn max_increase_percent() -> f64 {
        0.5
    }
    pub fn visible_percent() -> f64 {
        10.0
    }
    pub fn ttl_seconds_after_finished() -> i32 {
        604_800
    }
}
