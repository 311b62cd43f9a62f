//! What a user asks for: the spec of a ProfileRequest, with every rule that the API server
//! enforces.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ProfileRequestStatus, bounded};

/// Which pods to profile, for how long and how often.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "phpprof.dev",
    version = "v1alpha1",
    kind = "ProfileRequest",
    plural = "profilerequests",
    doc = "Profiles PHP in running pods for a while and stores one merged pprof.",
    shortname = "pprof",
    category = "phpprof",
    namespaced,
    cel,
    status = "ProfileRequestStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Reason","type":"string","description":"Reason of the current condition, which is the first of the list.","jsonPath":".status.conditions[0].reason"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","description":"Pods selected.","jsonPath":".status.selected"}"#,
    printcolumn = r#"{"name":"Done","type":"integer","description":"Pods whose profile is stored and verified.","jsonPath":".status.succeeded"}"#,
    printcolumn = r#"{"name":"Samples","type":"integer","description":"Samples in the merged profile.","jsonPath":".status.profile.samples"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"URL","type":"string","description":"URL of the merged profile in the store.","jsonPath":".status.profile.url","priority":1}"#
)]
#[x_kube(validation = Rule::new(
    "self.target == oldSelf.target && self.durationSeconds == oldSelf.durationSeconds && self.samplesPerSecond == oldSelf.samplesPerSecond && self.includeIdle == oldSelf.includeIdle && self.heap == oldSelf.heap && self.includeSuspended == oldSelf.includeSuspended && self.uploadMode == oldSelf.uploadMode && self.samplerMode == oldSelf.samplerMode && self.mode == oldSelf.mode && self.labels == oldSelf.labels && has(self.filter) == has(oldSelf.filter) && (!has(self.filter) || self.filter == oldSelf.filter)"
).message("the spec cannot be changed, except cancel, suspend, profileRetentionSeconds and ttlSecondsAfterFinished; create another ProfileRequest instead"),
validation = Rule::new("!oldSelf.cancel || self.cancel")
    .message("cancel cannot be undone; create another ProfileRequest instead"),
validation = Rule::new("self.samplerMode != 'Resident' || self.uploadMode != 'Direct'")
    .message("a resident sampler needs the relay: leave uploadMode out, or set samplerMode to Once"),
validation = Rule::new("self.mode != 'Snapshot' || self.durationSeconds == 1")
    .message("a snapshot has no duration: set durationSeconds to 1"),
validation = Rule::new("self.mode != 'Snapshot' || !has(self.filter)")
    .message("a snapshot shows every worker: leave filter out"),
validation = Rule::new("self.mode != 'Heap' || self.durationSeconds == 1")
    .message("mode: Heap reads each heap once: set durationSeconds to 1"),
validation = Rule::new("self.mode != 'Heap' || !self.heap")
    .message("heap: true means growth over time; leave it out for mode: Heap"),
validation = Rule::new("self.mode != 'Heap' || !has(self.filter)")
    .message("what is in a heap belongs to no HTTP request: leave filter out for mode: Heap"),
validation = Rule::new("self.mode != 'Heap' || self.labels.all(label, label == 'Script')")
    .message("what is in a heap belongs to no HTTP request: leave labels out for mode: Heap"),
validation = Rule::new("self.mode != 'Heap' || !self.includeIdle")
    .message("mode: Heap reads idle workers too: leave includeIdle out"),
validation = Rule::new("self.mode != 'Heap' || !self.includeSuspended")
    .message("mode: Heap shows what suspended fibers hold: leave includeSuspended out"),
validation = Rule::new("!self.includeSuspended || !has(self.filter)")
    .message("a suspended fiber belongs to no HTTP request: leave filter out, or includeSuspended"),
validation = Rule::new("self.mode != 'Live' || self.uploadMode != 'Direct'")
    .message("a live request needs the relay: leave uploadMode out"))]
#[serde(rename_all = "camelCase")]
pub struct ProfileRequestSpec {
    /// The pods to profile.
    pub target: ProfileTarget,

    /// Profile: samples for durationSeconds. Snapshot: shows once where every worker is, and what
    /// it waits for. Live: shows each second of the profile as it is sampled to readers that have
    /// status.accessKey, and ends when nobody reads. Heap: shows once what is in the heap of every
    /// worker, by class, and who holds it: names, numbers and sizes, never contents. To create such
    /// a request, users also need the right to heap profilerequests.
    #[serde(default)]
    pub mode: ProfileMode,

    /// How long each pod is sampled, counted from its first sample; 1 to 3600. The administrator
    /// may allow less.
    #[serde(default = "defaults::duration_seconds")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 3600")
        .message("durationSeconds must be from 1 to 3600, for instance 30"))]
    pub duration_seconds: i32,

    /// Samples per second for each worker process or thread; 1 to 1000. The administrator may allow
    /// less.
    #[serde(default = "defaults::samples_per_second")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 1000")
        .message("samplesPerSecond must be from 1 to 1000, for instance 99"))]
    pub samples_per_second: i32,

    /// Also keeps the time between HTTP requests, as `[idle]`. By default, the profile has only
    /// busy time.
    #[serde(default)]
    pub include_idle: bool,

    /// Also shows which stacks made the workers' heaps grow (sample type heap_growth), and how much
    /// of it they still hold (heap_change). A snapshot shows what each worker's memory is made of
    /// instead, which needs the right to heap profilerequests. The result has sizes and names of
    /// classes, never contents. What is in the heaps is mode: Heap.
    #[serde(default)]
    pub heap: bool,

    /// Also shows where fibers are suspended, below `[suspended]`: how many were seen (sample type
    /// fibers), and for how long (suspended). Wall and CPU time do not change. A snapshot shows the
    /// fibers of each worker. It needs PHP 8.1 or later.
    #[serde(default)]
    pub include_suspended: bool,

    /// Labels of each sample that describe its HTTP request: Method, Route (the path without its
    /// query, with ids replaced), Script, RequestAge (in bands), TraceID (of the header
    /// traceparent). The sampler reads nothing else of a request.
    #[serde(default = "defaults::labels")]
    #[schemars(length(max = 5))]
    #[x_kube(validation = Rule::new("self.all(label, self.exists_one(other, other == label))")
        .message("labels must name each label once, for instance [Method, Route]"))]
    pub labels: Vec<RequestLabel>,

    /// Keeps only the samples of these HTTP requests. The sampler drops and counts the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,

    /// How profiles get from the pods to the store. Direct: the sampler uploads with a signed URL.
    /// Relay: through the operator, for pods that do not reach the store. Auto: Direct if the store
    /// supports it and the upload works, else Relay.
    #[serde(default)]
    pub upload_mode: UploadMode,

    /// Which sampler serves the request. Once: a new one, which uses up one of the pod's ephemeral
    /// containers. Resident: one that stays in the pod and serves many requests; the administrator
    /// decides which users may have one. Auto: Resident if it is allowed, as for the chart's
    /// schedules, else Once.
    #[serde(default)]
    pub sampler_mode: SamplerMode,

    /// Ends the run early: samplers stop within seconds and keep their samples. This cannot be
    /// undone.
    #[serde(default)]
    pub cancel: bool,

    /// Holds the request back until this is false. It has no effect once the first sampler is
    /// started.
    #[serde(default)]
    pub suspend: bool,

    /// Seconds from the request's acceptance until its profiles are deleted from the store. The
    /// value at the end of the request applies.
    #[serde(default = "defaults::profile_retention_seconds")]
    #[x_kube(validation = Rule::new("self >= 3600 && self <= 2147483647")
        .message("profileRetentionSeconds must be from 3600 to 2147483647, for instance 604800 for a week"))]
    pub profile_retention_seconds: i32,

    /// Seconds from the request's end until the request is deleted. Its profiles stay for
    /// profileRetentionSeconds.
    #[serde(default = "defaults::ttl_seconds_after_finished")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 2147483647")
        .message("ttlSecondsAfterFinished must be from 0 to 2147483647, for instance 604800 for a week"))]
    pub ttl_seconds_after_finished: i32,
}

/// How profiles get from the pods to the store.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadMode {
    /// Direct where the store can sign uploads and the upload works, else Relay.
    #[default]
    Auto,
    /// With a signed URL.
    Direct,
    /// Through the operator.
    Relay,
}

/// Which sampler serves a request.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SamplerMode {
    /// Resident where it is allowed, else Once.
    #[default]
    Auto,
    /// A new one, which ends with the run.
    Once,
    /// One that stays in the pod.
    Resident,
}

/// What the samplers do.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileMode {
    /// Samples for durationSeconds.
    #[default]
    Profile,
    /// Where every worker is now.
    Snapshot,
    /// Each second as it is sampled, for as long as somebody reads.
    Live,
    /// What is in the heap of every worker now, and who holds it.
    Heap,
}

/// What a sample's labels may say about its HTTP request.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLabel {
    /// `method`: GET, POST, …
    Method,
    /// `route`: the path with ids replaced, without its query.
    Route,
    /// `script`: the file that PHP was asked to run.
    Script,
    /// `request_age`, in bands.
    RequestAge,
    /// `trace_id` and `span_id`, of the header traceparent.
    TraceID,
}

/// Which HTTP requests count. A request of which the sampler does not know enough does not count.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("has(self.pathPrefix) || has(self.minRequestAgeMilliseconds) || (has(self.methods) && size(self.methods) > 0) || (has(self.scripts) && size(self.scripts) > 0)")
        .message("filter must name pathPrefix, methods, scripts or minRequestAgeMilliseconds; leave it out for all requests"),
    validation = Rule::new("!self.includeYoung || has(self.minRequestAgeMilliseconds)")
        .message("includeYoung needs minRequestAgeMilliseconds too")
)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// How the path begins, for instance /checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(validation = Rule::new("self.matches('^/[!-~]*$') && !self.contains('?') && !self.contains('#')")
        .message("pathPrefix must be the beginning of a path, with a slash first and without a query, for instance /checkout"))]
    pub path_prefix: Option<String>,

    /// The method is one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::methods")]
    pub methods: Vec<String>,

    /// The script is one of these, written as in the label script, for instance index.php.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::scripts")]
    pub scripts: Vec<String>,

    /// The request has run for at least this time; 1 to 3600000. Samples count from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 3600000")
        .message("minRequestAgeMilliseconds must be from 1 to 3600000, for instance 2000"))]
    pub min_request_age_milliseconds: Option<i32>,

    /// Also keeps the earlier samples of such a request.
    #[serde(default)]
    pub include_young: bool,
}

/// The pods to profile: exactly one of podName, selector and workloadRef.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("(has(self.podName) ? 1 : 0) + (has(self.selector) ? 1 : 0) + (has(self.workloadRef) ? 1 : 0) == 1")
        .message("target needs exactly one of podName, selector and workloadRef"),
    validation = Rule::new("!has(self.runAsGroup) || has(self.runAsUser)")
        .message("runAsGroup needs runAsUser too")
)]
#[serde(rename_all = "camelCase")]
pub struct ProfileTarget {
    /// One pod by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("podName must be the name of one pod, with only lower-case letters, digits, - and ., for instance web-7d9f5c6b8-x2x4z"))]
    pub pod_name: Option<String>,

    /// Pods by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounded::selector")]
    #[x_kube(
        validation = Rule::new("(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)")
            .message("selector must not be empty; name labels in matchLabels or matchExpressions"),
        validation = Rule::new("(has(self.matchLabels) ? size(self.matchLabels) : 0) + (has(self.matchExpressions) ? size(self.matchExpressions) : 0) <= 64")
            .message("selector must have at most 64 labels and expressions in total"),
        validation = Rule::new("!has(self.matchLabels) || self.matchLabels.all(key, size(key) <= 317)")
            .message("the key of a label must have at most 317 characters: a prefix of 253, a slash and a name of 63"),
        validation = Rule::new("(has(self.matchLabels) ? self.matchLabels.map(key, size(key) + size(self.matchLabels[key])).sum() : 0) + (has(self.matchExpressions) ? self.matchExpressions.map(e, size(e.key) + (has(e.values) ? e.values.map(value, size(value)).sum() : 0)).sum() : 0) <= 12288")
            .message("selector must have at most 12288 characters in all its keys and values; name fewer of them")
    )]
    pub selector: Option<LabelSelector>,

    /// The pods of a workload: a kind with a /scale subresource, a DaemonSet or a Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_ref: Option<WorkloadRef>,

    /// The container that runs PHP. Default: the one that the annotation
    /// kubectl.kubernetes.io/default-container names, else the only one, else the only one whose
    /// name or image has the word php, fpm, frankenphp, roadrunner or rr. Native sidecars count as
    /// well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("containerName must be the name of a container, with only lower-case letters, digits and -, for instance fpm"))]
    pub container_name: Option<String>,

    /// The most pods to profile, spread over nodes; 1 to 100. The administrator may allow fewer.
    #[serde(default = "defaults::max_pods")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 100")
        .message("maxPods must be from 1 to 100, for instance 5"))]
    pub max_pods: i32,

    /// The user id that PHP runs as. Only needed if the pod does not name it and the namespace
    /// refuses SYS_PTRACE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 4294967294")
        .message("runAsUser must be the non-root user id that PHP runs as, from 1 to 4294967294, for instance 1000; leave it out for root"))]
    pub run_as_user: Option<i64>,

    /// The group id that PHP runs as. Default: the same number as the user id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 4294967294")
        .message("runAsGroup must be the group id that PHP runs as, from 0 to 4294967294, for instance 1000"))]
    pub run_as_group: Option<i64>,
}

/// A workload in the request's namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// Group and version, for instance apps/v1.
    #[schemars(length(max = 317))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*$')")
        .message("apiVersion must be a group and version, for instance apps/v1"))]
    pub api_version: String,
    /// Kind, for instance Deployment.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Z][A-Za-z0-9]*$')")
        .message("kind must be the kind of a workload as in its manifest, for instance Deployment"))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')")
        .message("name must be the name of the workload, with only lower-case letters, digits, - and ., for instance web"))]
    pub name: String,
}

mod defaults {
    use super::RequestLabel;

    pub fn labels() -> Vec<RequestLabel> {
        vec![RequestLabel::Script]
    }
    pub fn duration_seconds() -> i32 {
        30
    }
    pub fn samples_per_second() -> i32 {
        99
    }
    pub fn ttl_seconds_after_finished() -> i32 {
        604_800
    }
    pub fn profile_retention_seconds() -> i32 {
        604_800
    }
    pub fn max_pods() -> i32 {
        5
    }
}
