//! The closed list of reasons: of a request's conditions, and of a pod without a profile.
//!
//! The comment on each is its documentation: `crdgen` prints it into docs/reference.

use std::fmt;

use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Reason of a request's conditions.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum Reason {
    /// Held back: spec.suspend is true, and no sampler has started.
    Suspended,
    /// Held back: the administrator's limits on running requests or samplers are reached; the message has the request's place in the queue.
    Queued,
    /// Held back: the administrator, or the namespace's label phpprof.dev/profiling=disabled, has stopped profiling.
    ProfilingDisabled,
    /// In progress: pods are chosen, and no sampler runs yet.
    Starting,
    /// In progress: samplers run.
    Sampling,
    /// In progress: every sampler has ended; the operator verifies and merges profiles.
    Collecting,
    /// In progress: the store does not answer; the operator retries until the deadline in the message.
    WaitingForStore,
    /// Complete: every chosen pod's profile is in the merged one; for a pod that went away during a long run, its last checkpoint.
    Complete,
    /// Complete: the merged profile is stored, but at least one chosen pod is not in it; `status.targets` says why.
    SomeTargetsFailed,
    /// Complete: the pods were profiled, but PHP did no work in them.
    NoSamples,
    /// Complete: the request was cancelled, or profiling was stopped; what was sampled until then is in the merged profile.
    Cancelled,
    /// Refused: the request was cancelled before it was accepted.
    CancelledBeforeStart,
    /// Refused: the namespace does not have the label phpprof.dev/profiling=enabled.
    NamespaceNotEnabled,
    /// Refused: durationSeconds is over the administrator's limit.
    DurationOverLimit,
    /// Refused: samplesPerSecond is over the administrator's limit.
    RateOverLimit,
    /// Refused: the namespace's stored profiles have reached the administrator's limit.
    StorageQuotaExceeded,
    /// Refused: the request waited too long for its turn.
    QueueTimeout,
    /// Refused: the workload that workloadRef names does not exist.
    WorkloadNotFound,
    /// Refused: the workload has neither a /scale subresource nor a selector, or the operator may not read it.
    WorkloadNotSupported,
    /// Refused: the target names no pod.
    NoPodsMatched,
    /// Refused: pods match, but none is ready.
    NoPodsReady,
    /// Refused: no ready pod has the container, or the container does not run.
    ContainerNotFound,
    /// Refused: the request names no container, a ready pod has several, and not exactly one of them is named after PHP; the message has their names.
    ContainerAmbiguous,
    /// Refused: every ready pod is a static pod, to which Kubernetes adds no ephemeral container.
    StaticPod,
    /// Refused: every ready pod has reached its limit of phpprof's ephemeral containers; they go when the pod is replaced.
    EphemeralContainerBudgetSpent,
    /// Refused: resident samplers of the matching pods ended a moment ago, for instance because their container restarts again and again; the message
    /// says when the next one may be added.
    ResidentSamplerBackOff,
    /// Refused: samplerMode is Resident, and the administrator does not allow it for the request's creator.
    ResidentNotAllowed,
    /// Refused: uploadMode is Direct, and the operator's store cannot sign create-only writes.
    DirectNotSupported,
    /// Refused: the operator's store overwrites objects although a write forbids it, and the administrator does not allow profiles there.
    StoreOverwrites,
    /// Failed: the operator could not read from the API server what it needs to accept the request; the message has the error.
    ObserveFailed,
    /// Failed: no chosen pod gave a profile; `status.targets` says why.
    AllTargetsFailed,
    /// Failed: pods were profiled, but their profiles could not be merged; the message says why. Each pod's profile is in the store.
    MergeFailed,
    /// Failed: the store did not answer until the deadline.
    StoreUnavailable,
}

/// What a [`Reason`] says about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Neither accepted nor refused yet.
    Held,
    /// Accepted, and not over.
    InProgress,
    /// Over, as it was asked for or nearly so.
    Complete,
    /// Failed before any sampler was started.
    Refused,
    /// Over without a profile.
    Failed,
}

impl Reason {
    /// Which conditions are true with it.
    pub fn outcome(self) -> Outcome {
        use Reason::*;
        match self {
            Starting | Sampling | Collecting | WaitingForStore => Outcome::InProgress,
            Suspended | Queued | ProfilingDisabled => Outcome::Held,
            Complete | SomeTargetsFailed | NoSamples | Cancelled => Outcome::Complete,
            CancelledBeforeStart
            | NamespaceNotEnabled
            | DurationOverLimit
            | RateOverLimit
            | StorageQuotaExceeded
            | QueueTimeout
            | WorkloadNotFound
            | WorkloadNotSupported
            | NoPodsMatched
            | NoPodsReady
            | ContainerNotFound
            | ContainerAmbiguous
            | StaticPod
            | EphemeralContainerBudgetSpent
            | ResidentSamplerBackOff
            | ResidentNotAllowed
            | DirectNotSupported
            | StoreOverwrites => Outcome::Refused,
            ObserveFailed | AllTargetsFailed | MergeFailed | StoreUnavailable => Outcome::Failed,
        }
    }
}

/// Why there is no profile of a pod, or only its beginning.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum TargetReason {
    /// Admission refused the sampler's container: PHP runs as root, so the sampler needs SYS_PTRACE, and Pod Security does not allow it.
    PodSecurityDenied,
    /// Admission refused SYS_PTRACE, and the pod does not name the user that PHP runs as.
    UserUnknown,
    /// The API server or a webhook refused the sampler's container for another reason.
    InjectionRefused,
    /// The pod's node could not pull the sampler's image.
    ImagePullFailed,
    /// The pod's node could not create the sampler's container.
    ContainerCreateFailed,
    /// The sampler did not start in time.
    StartDeadlineExceeded,
    /// The pod was deleted or replaced before its profile was stored.
    PodDeleted,
    /// The container that runs PHP was restarted, and the sampler ended with it.
    TargetRestarted,
    /// The container that runs PHP ended: the kernel then kills every process of its PID namespace, the sampler included, at once.
    TargetExited,
    /// The request was cancelled before this pod's first sample.
    Cancelled,
    /// The sampler ended without a receipt, for instance because it was killed when memory ran out.
    SamplerKilled,
    /// A bug in the sampler.
    Internal,
    /// The sampler refused its flags or grants: its image does not fit this operator.
    Usage,
    /// No process of the container maps a PHP engine.
    NoPhpFound,
    /// The sampler does not know this PHP version.
    UnsupportedVersion,
    /// The PHP engine has no symbols in .dynsym, for instance a static binary.
    NoEngineSymbols,
    /// The PHP version is known, but its structures in memory do not match it.
    LayoutMismatch,
    /// The kernel did not let the sampler read PHP's memory: PHP runs as another user, or a security module such as AppArmor forbids it.
    PermissionDenied,
    /// The PHP process has capabilities of its own, for instance from its file, so its own user cannot read it.
    FileCapabilities,
    /// The PHP process is not dumpable, for instance an FPM worker that has changed its user, so its own user cannot read it.
    NotDumpable,
    /// The node's kernel.yama.ptrace_scope does not let the sampler read PHP's memory.
    YamaRestricted,
    /// The pod's seccomp profile refuses both ways to read PHP's memory.
    SeccompRestricted,
    /// PHP runs in a user namespace in which the sampler has no rights.
    OtherUserNamespace,
    /// The pod runs on gVisor, whose kernel does not let the sampler read PHP's memory.
    GVisor,
    /// The profile was not stored in time; the message has the last error.
    UploadDeadlineExceeded,
    /// The store refused the profile for good.
    UploadRefused,
    /// The upload came to the relay from an address that is not the pod's; the message has both addresses.
    SourceNotPod,
    /// The resident sampler could not reach the relay; the message has the last error.
    RelayUnreachable,
    /// In progress: the sampler runs, but the operator has heard nothing from it for half a minute; the message says what in the pod's spec may be the
    /// cause. It goes away when the sampler is heard.
    NotHeardFrom,
    /// The store's certificate is not signed by a CA that the sampler trusts.
    CertificateUntrusted,
    /// The profile is over 32 MiB.
    ProfileTooLarge,
    /// The sampler reported that it stored a profile, but the store has none.
    ProfileMissing,
    /// The stored profile does not have the size in the receipt.
    SizeMismatch,
    /// The stored profile does not have the SHA-256 in the receipt.
    ChecksumMismatch,
    /// The stored object is not a profile of phpprof, or is over its limits.
    InvalidProfile,
    /// The operator could not read the pod from the API server in time.
    ObserveFailed,
    /// The store did not answer in time, so the operator could not verify the profile.
    StoreUnavailable,
}

impl TargetReason {
    /// The reason that a sampler's receipt names, if it is one that a sampler may give.
    pub fn of_receipt(reason: &str) -> Option<Self> {
        use TargetReason::*;
        let known = [
            Internal,
            Usage,
            NoPhpFound,
            UnsupportedVersion,
            NoEngineSymbols,
            LayoutMismatch,
            PermissionDenied,
            FileCapabilities,
            NotDumpable,
            YamaRestricted,
            SeccompRestricted,
            OtherUserNamespace,
            GVisor,
            UploadDeadlineExceeded,
            UploadRefused,
            SourceNotPod,
            RelayUnreachable,
            CertificateUntrusted,
            ProfileTooLarge,
            TargetExited,
            Cancelled,
        ];
        known.into_iter().find(|known| known.to_string() == reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for TargetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Each value of an enum of the API, with the comment on it.
pub fn documented<T: JsonSchema + DeserializeOwned>() -> Vec<(T, String)> {
    let schema = schema_for!(T);
    let variants = schema.get("oneOf").and_then(Value::as_array);
    let documented = |variant: &Value| {
        let value = T::deserialize(variant.get("const")?).ok()?;
        let comment = variant.get("description")?.as_str()?;
        Some((value, comment.replace('\n', " ")))
    };
    variants
        .into_iter()
        .flatten()
        .filter_map(documented)
        .collect()
}
