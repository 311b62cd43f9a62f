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
    /// Held back: spec.suspend is true, and no sampler was started.
    Suspended,
    /// Held back: as many requests or samplers run as the administrator allows at the same time; the message has its place in the line.
    Queued,
    /// Held back: the administrator, or the namespace's label phpprof.dev/profiling=disabled, has stopped profiling.
    ProfilingDisabled,
    /// In progress: pods are chosen, and no sampler runs yet.
    Starting,
    /// In progress: samplers run.
    Sampling,
    /// In progress: every sampler has ended; profiles are verified and merged.
    Collecting,
    /// In progress: the store does not answer; it is tried again until the message's deadline.
    WaitingForStore,
    /// Complete: every chosen pod's profile is in the merged one; of pods that went during a long run, what had been stored until then.
    Complete,
    /// Complete: the merged profile is stored, but at least one chosen pod is not in it; `status.targets` says why.
    SomeTargetsFailed,
    /// Complete: the pods were profiled, but no PHP work was seen in them.
    NoSamples,
    /// Complete: the request was cancelled, or profiling was stopped; what was sampled until then is in the merged profile.
    Cancelled,
    /// Refused: the request was cancelled before it was accepted.
    CancelledBeforeStart,
    /// Refused: the namespace does not carry the label phpprof.dev/profiling=enabled.
    NamespaceNotEnabled,
    /// Refused: durationSeconds is over the administrator's limit.
    DurationOverLimit,
    /// Refused: samplesPerSecond is over the administrator's limit.
    RateOverLimit,
    /// Refused: the namespace's profiles take as much of the store as the administrator allows.
    StorageQuotaExceeded,
    /// Refused: it waited for its turn for too long.
    QueueTimeout,
    /// Refused: the workload that workloadRef names does not exist.
    WorkloadNotFound,
    /// Refused: the workload has neither a /scale subresource nor a selector, or the operator may not read it.
    WorkloadNotSupported,
    /// Refused: the target names no pod.
    NoPodsMatched,
    /// Refused: pods match, but none is ready.
    NoPodsReady,
    /// Refused: no ready pod has the container, or it does not run.
    ContainerNotFound,
    /// Refused: every ready pod already has as many of our ephemeral containers as it may have; they go when the pod is replaced.
    EphemeralContainerBudgetSpent,
    /// Refused: resident samplers of the matching pods have ended a moment ago, as those of a container that is restarted again and again; the message
    /// has when the next one may be added.
    ResidentSamplerBackOff,
    /// Refused: samplerMode is Resident, and the administrator does not allow it for who created the request.
    ResidentNotAllowed,
    /// Refused: uploadMode is Direct, and the operator's store cannot sign create-only writes.
    DirectNotSupported,
    /// Failed: the API server did not say what the request's acceptance depends on; the message has its words.
    ObserveFailed,
    /// Failed: no chosen pod gave a profile; `status.targets` says why.
    AllTargetsFailed,
    /// Failed: pods were profiled, but they could not be merged; the message says why. Their own profiles are in the store.
    MergeFailed,
    /// Failed: the store did not answer for too long.
    StoreUnavailable,
}

/// What a [`Reason`] says of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Neither accepted nor refused yet.
    Held,
    /// Accepted, and not over.
    InProgress,
    /// Over, as it was asked for or nearly so.
    Complete,
    /// Failed before anything was started.
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
            | EphemeralContainerBudgetSpent
            | ResidentSamplerBackOff
            | ResidentNotAllowed
            | DirectNotSupported => Outcome::Refused,
            ObserveFailed | AllTargetsFailed | MergeFailed | StoreUnavailable => Outcome::Failed,
        }
    }
}

/// Why there is no profile of a pod, or only its beginning.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum TargetReason {
    /// Admission refused the sampler's container: the pod's user is root, which needs SYS_PTRACE, and Pod Security does not allow it.
    PodSecurityDenied,
    /// Admission refused SYS_PTRACE, and the pod does not say which user PHP runs as.
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
    /// The container that runs PHP ended, and the sampler with it.
    TargetExited,
    /// The request was cancelled before this pod's first sample.
    Cancelled,
    /// The sampler ended without a receipt, for instance killed for want of memory.
    SamplerKilled,
    /// A fault of the sampler itself.
    Internal,
    /// The sampler refused its flags or grants: its image does not fit this operator.
    Usage,
    /// No process of the container maps a PHP engine.
    NoPhpFound,
    /// A PHP version that the sampler does not know.
    UnsupportedVersion,
    /// A PHP engine without symbols in .dynsym, such as a static binary.
    NoEngineSymbols,
    /// A known PHP version whose live structures do not hold together.
    LayoutMismatch,
    /// The kernel refused to read PHP's memory: it runs as another user than the sampler, or a security module such as AppArmor forbids it.
    PermissionDenied,
    /// The PHP process has capabilities of its own, from its file for instance, and cannot be read by its own user.
    FileCapabilities,
    /// The PHP process is not dumpable, as an FPM worker that has changed its user, and cannot be read by its own user.
    NotDumpable,
    /// The node's kernel.yama.ptrace_scope forbids the sampler to read PHP's memory.
    YamaRestricted,
    /// The pod's seccomp profile refuses both ways to PHP's memory.
    SeccompRestricted,
    /// PHP runs in a user namespace in which the sampler has no rights.
    OtherUserNamespace,
    /// The pod runs on gVisor, whose kernel does not let PHP's memory be read.
    GVisor,
    /// The profile was not stored in time; the message has the last error.
    UploadDeadlineExceeded,
    /// The store refused the profile for good.
    UploadRefused,
    /// The relay saw the upload come from an address that is not the pod's; the message has both.
    SourceNotPod,
    /// The resident sampler did not reach the relay; the message has the last error.
    RelayUnreachable,
    /// The store's certificate is not signed by a CA that the sampler trusts.
    CertificateUntrusted,
    /// The profile is over 32 MiB.
    ProfileTooLarge,
    /// The sampler says that it stored a profile, but the store has none.
    ProfileMissing,
    /// What the store has is not of the size that the receipt names.
    SizeMismatch,
    /// What the store has does not have the SHA-256 that the receipt names.
    ChecksumMismatch,
    /// What the store has is not a profile of phpprof, or not one within bounds.
    InvalidProfile,
    /// The API server did not show the pod to the operator until it was too late.
    ObserveFailed,
    /// The store did not answer the operator in time, so that the profile could not be verified.
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
