//! What the operator reports: counts, conditions, one entry per pod, and where the merged profile
//! is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Secret, TargetReason, bounded};

/// What has happened to a request.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRequestStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the request was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// UID of the request's namespace when the request was accepted. Its stored profiles are in a
    /// folder of that name. Absent in requests of older operators.
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
    /// Pods that match the target.
    #[serde(default)]
    pub matched: i32,
    /// How many of those pods were chosen.
    #[serde(default)]
    pub selected: i32,
    /// Chosen pods that are not finished.
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
    /// Opens the profile of a Live request while it runs: POST {"accessKey": …, "after": 0} to
    /// /r/NAMESPACE/NAME/live at the operator.
    #[serde(default, skip_serializing_if = "Secret::is_empty")]
    #[schemars(length(max = 256))]
    pub access_key: Secret,
    /// All pods merged; absent until it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileResult>,
    /// When the operator sent the result to Pyroscope, by OTLP and to Grafana, if the administrator
    /// has set them up. Events have the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_time: Option<Time>,
    /// Pages that show the profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub links: Vec<ProfileLink>,
}

/// A page that shows the profile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Default, PartialEq, Eq)]
pub struct ProfileLink {
    /// What the page shows, for instance Flame graph.
    #[schemars(length(max = 253))]
    pub name: String,
    /// URL of the page.
    #[schemars(length(max = 32768))]
    pub url: String,
}

/// A URL may have the access key in it.
impl std::fmt::Debug for ProfileLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The merged profile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileResult {
    /// The store's URI of the file, without a signature.
    #[schemars(length(max = 32768))]
    pub url: String,
    /// Samples of all pods. With mode Heap, the objects, arrays and strings in their heaps.
    pub samples: i64,
    /// Size of the file.
    pub size_bytes: i64,
    /// Opens the request's results: POST {"accessKey": …} to /r/NAMESPACE/NAME at the operator.
    #[serde(default, skip_serializing_if = "Secret::is_empty")]
    #[schemars(length(max = 256))]
    pub access_key: Secret,
}

/// The state of a pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetState {
    /// The pod is chosen; its sampler does not run yet.
    #[default]
    Pending,
    /// Its sampler runs.
    Sampling,
    /// Its sampler has stored a profile, which the operator has not verified yet.
    Verifying,
    /// Its profile is stored and verified. With a reason, the profile is only the beginning of the
    /// run: what it had stored before it was cut off.
    Uploaded,
    /// The pod has no profile; the reason says why.
    Failed,
}

/// Why a container was chosen.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerChoice {
    /// The request names it.
    Request,
    /// The pod's annotation kubectl.kubernetes.io/default-container names it.
    Annotation,
    /// The pod has no other.
    Only,
    /// It alone is named after PHP.
    Name,
    /// Its image alone is named after PHP.
    Image,
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
    /// Why this container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_choice: Option<ContainerChoice>,
    /// The container's id when it was chosen, with the runtime's scheme.
    #[serde(rename = "containerID")]
    #[schemars(length(max = 1024))]
    pub container_id: String,
    /// Name of the sampler's ephemeral container.
    #[schemars(length(max = 63))]
    pub ephemeral_container_name: String,
    /// The sampler stays in the pod and serves other requests too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resident: bool,
    /// The state of the pod.
    pub state: TargetState,
    /// Why there is no profile, or only its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TargetReason>,
    /// The reason in words, with what to do next.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The PHP that the sampler found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub php: Option<PhpRuntime>,
    /// Workers that were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i64>,
    /// Workers that were not sampled, because the sampler's limit of open files was too low. Absent
    /// if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_not_sampled: Option<i64>,
    /// Processes that came and went unseen, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<MissedProcesses>,

    /// For each of these workers, the busiest first: the share of the time in which it was busy, in
    /// percent. At most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub busy_percents: Vec<i64>,
    /// Samples in the pod's profile. With mode Heap, the objects, arrays and strings in its heaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<i64>,
    /// Samples per second of one worker, on average. Less than spec.samplesPerSecond if the sampler
    /// reached its CPU budget or got too little CPU on its node. Absent if the sampler does not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_samples_per_second: Option<f64>,
    /// How good the samples are. Absent with mode Heap, as busyPercents and
    /// effectiveSamplesPerSecond: nothing was sampled over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<ProfileQuality>,
    /// CPU time that the sampler used.
    #[serde(
        default,
        rename = "samplerCPUMilliseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub sampler_cpu_milliseconds: Option<i64>,
    /// The most memory that the sampler used at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler_peak_bytes: Option<i64>,
    /// Seconds between checkpoints, after the first ones at 5, 10, 20 and 40 s: the sampler stores
    /// its samples so far, and the profile's beginning remains if the pod goes away. Absent if the
    /// run is too short for checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_seconds: Option<i32>,
    /// How the pod's profile got to the store, if its sampler reports it.
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

fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// A way to deliver a profile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadRoute {
    /// The sampler wrote to the store itself.
    #[default]
    Direct,
    /// The operator passed it on.
    Relay,
}

/// The PHP of a pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PhpRuntime {
    /// Version, for instance 8.2.29.
    #[schemars(length(max = 4096))]
    pub version: String,
    /// SAPI, for instance fpm-fcgi.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub sapi: String,
    /// Whether it is a ZTS build.
    #[serde(default)]
    pub thread_safe: bool,
    /// Mode of the JIT: off, function or tracing.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub jit: String,
}

/// Processes that lived too briefly for a sample.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MissedProcesses {
    /// Processes and threads that came and went unseen, at most.
    pub processes: i64,
    /// CPU time of ended child processes that is not in any sample, as far as their parents have
    /// waited for them.
    pub cpu_milliseconds: i64,
}

/// Counts of samples, including idle ones: due = taken + late. Busy samples are taken - idle.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileQuality {
    /// Samples that the rate asked for.
    pub due: i64,
    /// Samples that were taken.
    pub taken: i64,
    /// Samples that were skipped because they were too late.
    pub late: i64,
    /// Samples that a quiescent read verified.
    pub quiet: i64,
    /// Busy samples whose leaf is [unstable].
    pub unstable: i64,
    /// Samples that the kernel refused.
    pub denied: i64,
    /// Samples of idle workers.
    pub idle: i64,
    /// Samples whose edges were still open at the end.
    pub open: i64,
    /// CPU time that is not in any sample, in milliseconds: workers used it between requests, or no
    /// sample saw them running.
    pub cpu_unattributed_milliseconds: i64,
    /// How long workers waited for a CPU while they could run, in milliseconds: the wall time of
    /// the samples with waiting=cpu. Raise the CPU limit or lower the number of workers if it is
    /// much.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_wait_milliseconds: i64,
    /// Samples in which a worker that has to wait for a CPU came to one, or left it: they have no
    /// CPU time.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_unproven: i64,
    /// Samples without the kernel's counts of switches: a wait for a CPU that is shorter than a
    /// period has CPU time.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_uncounted: i64,
    /// Samples without their worker's labels, because the table by worker was full. They have their
    /// stack.
    pub without_worker: i64,
    /// Samples without the labels of their request, because the table of stacks was nearly full.
    /// They have their stack.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_labels: i64,
    /// Samples of stacks deeper than is read: [truncated] stands for what is left out, and its line
    /// says how many frames at least.
    #[serde(skip_serializing_if = "is_zero")]
    pub truncated: i64,
    /// Samples with a function whose name did not fit into the table of names: it is [over the
    /// memory cap].
    #[serde(skip_serializing_if = "is_zero")]
    pub without_name: i64,
    /// Samples whose call path did not fit: they end in [over the memory cap] below the callers
    /// that did.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_path: i64,
    /// Samples without a stack, because the table of stacks was full.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_stack: i64,
    /// Samples that show a recursion shorter than it was, because its call paths would have filled
    /// the table of call paths. Their functions, calls and totals are right.
    #[serde(skip_serializing_if = "is_zero")]
    pub folded: i64,
    /// Samples of workers that were stopped, by a signal, a debugger or the freezer.
    #[serde(skip_serializing_if = "is_zero")]
    pub stopped: i64,
    /// The part of unstable below a function whose name could not be checked. Absent if there are
    /// none.
    #[serde(skip_serializing_if = "is_zero")]
    pub unnamed: i64,
    /// Names that do not agree with PHP's hash of them or are longer than 8,192 bytes, but that a
    /// second read has confirmed. Absent if there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchecked_names: i64,
}
