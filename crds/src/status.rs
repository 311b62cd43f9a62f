//! What the operator reports: counts, conditions, one entry per pod, and where the merged profile lies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{TargetReason, bounded};

/// What has happened to a request.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRequestStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the request was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// UID of the request's namespace when it was accepted: what the request stores lies in a folder of that name. Absent in requests of older
    /// operators.
    #[serde(
        default,
        rename = "namespaceUID",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 128))]
    pub namespace_uid: Option<String>,
    /// When the request completed or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Accepted, Complete and Failed; the current one comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// Pods that the target names.
    #[serde(default)]
    pub matched: i32,
    /// Pods that were chosen of those.
    #[serde(default)]
    pub selected: i32,
    /// Chosen pods that are not done.
    #[serde(default)]
    pub active: i32,
    /// Chosen pods whose profile is stored and verified.
    #[serde(default)]
    pub succeeded: i32,
    /// Chosen pods without a profile.
    #[serde(default)]
    pub failed: i32,
    /// The chosen pods, failures first; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub targets: Vec<TargetStatus>,
    /// Opens what is sampled by a request of mode Live while it runs: POST {"accessKey": …, "after": 0} to /r/NAMESPACE/NAME/live at the operator.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub access_key: String,
    /// All pods merged; absent until it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileResult>,
    /// When the result was told to Pyroscope and Grafana, where the administrator has named them; events say what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_time: Option<Time>,
    /// Where the profile can be looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub links: Vec<Link>,
}

/// A way to look at the profile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// For instance Flame graph.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Where it leads.
    #[schemars(length(max = 32768))]
    pub url: String,
}

/// The merged profile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileResult {
    /// The store's own URI, never a signed one.
    #[schemars(length(max = 32768))]
    pub url: String,
    /// Samples of all pods.
    pub samples: i64,
    /// Size of the file.
    pub size_bytes: i64,
    /// Opens the request's results at the operator: POST {"accessKey": …} to /r/NAMESPACE/NAME there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub access_key: String,
}

/// Where a pod stands.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetState {
    /// Chosen; its sampler does not run yet.
    #[default]
    Pending,
    /// Its sampler runs.
    Sampling,
    /// Its sampler has stored a profile, which the operator has not verified yet.
    Verifying,
    /// Its profile is stored and verified; with a reason, only its beginning: what a run had stored before it was cut off.
    Uploaded,
    /// There is no profile of it; the reason says why.
    Failed,
}

/// One chosen pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Name of the pod.
    #[schemars(length(max = 253))]
    pub pod_name: String,
    /// UID of the pod.
    #[serde(rename = "podUID")]
    #[schemars(length(max = 128))]
    pub pod_uid: String,
    /// Node of the pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub node_name: String,
    /// Container that runs PHP.
    #[schemars(length(max = 63))]
    pub container_name: String,
    /// Its id when it was chosen, with the runtime's scheme.
    #[serde(rename = "containerID")]
    #[schemars(length(max = 1024))]
    pub container_id: String,
    /// Name of the sampler's ephemeral container.
    #[schemars(length(max = 63))]
    pub ephemeral_container_name: String,
    /// The sampler stays in the pod and serves other requests too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resident: bool,
    /// Where the pod stands.
    pub state: TargetState,
    /// Why there is no profile, or only the beginning of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TargetReason>,
    /// The reason in words, with what to do next.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The PHP that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub php: Option<PhpRuntime>,
    /// Workers that were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i64>,

    /// For each of these workers, the busiest first: the share of the time in which it was busy, in percent. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub busy_percents: Vec<i64>,
    /// Samples in the pod's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<i64>,
    /// How often a second a worker was sampled, on average. Less than spec.samplesPerSecond where the sampler ran into its CPU budget, or the node had
    /// no CPU for it; absent where the sampler does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_samples_per_second: Option<f64>,
    /// How good the samples are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<Quality>,
    /// CPU time that the sampler used.
    #[serde(
        default,
        rename = "samplerCPUMilliseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub sampler_cpu_milliseconds: Option<i64>,
    /// The most memory that the sampler held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler_peak_bytes: Option<i64>,
    /// How often the sampler stores what it has sampled so far, so that the beginning of a profile is there when the pod goes; absent where the run
    /// is too short for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_seconds: Option<i32>,
    /// The way that the pod's profile took to the store, where its sampler said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_mode: Option<UploadRoute>,
    /// Key of the pod's profile in the store.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 4096))]
    pub object_key: String,
    /// Size of the pod's profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// SHA-256 of the pod's profile, base64url without padding.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub sha256: String,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A way to deliver a profile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadRoute {
    /// The sampler wrote to the store itself.
    #[default]
    Direct,
    /// Over the operator.
    Relay,
}

/// The PHP of a pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PhpRuntime {
    /// For instance 8.2.29.
    #[schemars(length(max = 4096))]
    pub version: String,
    /// For instance fpm-fcgi.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub sapi: String,
    /// Whether it is a ZTS build.
    #[serde(default)]
    pub thread_safe: bool,
    /// off, function or tracing.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub jit: String,
}

/// Counts of turns, idle ones too: due = taken + late. Busy samples are taken - idle.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Quality {
    /// Samples that the schedule asked for.
    pub due: i64,
    /// Samples that were taken.
    pub taken: i64,
    /// Samples whose turn came too late.
    pub late: i64,
    /// Samples proven by a quiet read.
    pub quiet: i64,
    /// Samples whose leaf is [unstable]: a share of the busy ones.
    pub unstable: i64,
    /// Samples that the kernel refused.
    pub denied: i64,
    /// Samples of idle workers.
    pub idle: i64,
    /// Samples whose edges were still open at the end.
    pub open: i64,
    /// CPU time of workers that no sample of theirs was seen running for, in milliseconds; it is in no sample.
    pub cpu_unattributed_milliseconds: i64,
    /// Samples that found no room by worker: they have their stack, and no labels of their worker.
    pub without_worker: i64,
}
