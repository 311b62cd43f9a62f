//! The closed list of reasons: of the conditions and events of a request, a comparison or a
//! trigger, and of a pod without a profile.
//!
//! Generated from contract/reasons.yaml by `make generate`; do not edit.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason of a request's conditions.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestReason {
    /// Held back: spec.suspend is true, and no sampler has started.
    Suspended,
    /// Held back: the administrator's limits on running requests or samplers are reached; the
    /// message has the request's place in the queue.
    Queued,
    /// Held back: the administrator, or the namespace's label phpprof.dev/profiling=disabled, has
    /// stopped profiling.
    ProfilingDisabled,
    /// In progress: pods are chosen, and no sampler runs yet.
    Starting,
    /// In progress: samplers run.
    Sampling,
    /// In progress: every sampler has ended; the operator verifies and merges profiles.
    Collecting,
    /// In progress: the store does not answer; the operator retries until the deadline in the
    /// message.
    WaitingForStore,
    /// Complete: every chosen pod's profile is in the merged one; for a pod that went away during a
    /// long run, its last checkpoint.
    Complete,
    /// Complete: the merged profile is stored, but at least one chosen pod is not in it;
    /// `status.targets` says why.
    SomeTargetsFailed,
    /// Complete: the pods were profiled, but PHP did no work in them.
    NoSamples,
    /// Complete: the request was cancelled, or profiling was stopped; what was sampled until then
    /// is in the merged profile.
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
    /// Refused: the workload has neither a /scale subresource nor a selector, or the operator may
    /// not read it.
    WorkloadNotSupported,
    /// Refused: the target names no pod.
    NoPodsMatched,
    /// Refused: pods match, but none is ready.
    NoPodsReady,
    /// Refused: no ready pod has the container, or the container does not run.
    ContainerNotFound,
    /// Refused: the request names no container, a ready pod has several, and not exactly one of
    /// them is named after PHP; the message has their names.
    ContainerAmbiguous,
    /// Refused: every ready pod is a static pod, to which Kubernetes adds no ephemeral container.
    StaticPod,
    /// Refused: every ready pod has reached its limit of phpprof's ephemeral containers; they go
    /// when the pod is replaced.
    EphemeralContainerBudgetSpent,
    /// Refused: resident samplers of the matching pods ended a moment ago, for instance because
    /// their container restarts again and again; the message says when the next one may be added.
    ResidentSamplerBackOff,
    /// Refused: samplerMode is Resident, and the administrator does not allow it for the request's
    /// creator.
    ResidentNotAllowed,
    /// Refused: uploadMode is Direct, and the operator's store cannot sign create-only writes.
    DirectNotSupported,
    /// Refused: the operator's store overwrites objects although a write forbids it, and the
    /// administrator does not allow profiles there.
    StoreOverwrites,
    /// Failed: the operator could not read from the API server what it needs to accept the request;
    /// the message has the error.
    ObserveFailed,
    /// Failed: no chosen pod gave a profile; `status.targets` says why.
    AllTargetsFailed,
    /// Failed: pods were profiled, but their profiles could not be merged; the message says why.
    /// Each pod's profile is in the store.
    MergeFailed,
    /// Failed: the store did not answer until the deadline.
    StoreUnavailable,
}

/// What a [`RequestReason`] says about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
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

impl RequestReason {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Suspended,
        Self::Queued,
        Self::ProfilingDisabled,
        Self::Starting,
        Self::Sampling,
        Self::Collecting,
        Self::WaitingForStore,
        Self::Complete,
        Self::SomeTargetsFailed,
        Self::NoSamples,
        Self::Cancelled,
        Self::CancelledBeforeStart,
        Self::NamespaceNotEnabled,
        Self::DurationOverLimit,
        Self::RateOverLimit,
        Self::StorageQuotaExceeded,
        Self::QueueTimeout,
        Self::WorkloadNotFound,
        Self::WorkloadNotSupported,
        Self::NoPodsMatched,
        Self::NoPodsReady,
        Self::ContainerNotFound,
        Self::ContainerAmbiguous,
        Self::StaticPod,
        Self::EphemeralContainerBudgetSpent,
        Self::ResidentSamplerBackOff,
        Self::ResidentNotAllowed,
        Self::DirectNotSupported,
        Self::StoreOverwrites,
        Self::ObserveFailed,
        Self::AllTargetsFailed,
        Self::MergeFailed,
        Self::StoreUnavailable,
    ];

    /// Which conditions are true with it.
    pub fn outcome(self) -> RequestOutcome {
        match self {
            Self::Suspended => RequestOutcome::Held,
            Self::Queued => RequestOutcome::Held,
            Self::ProfilingDisabled => RequestOutcome::Held,
            Self::Starting => RequestOutcome::InProgress,
            Self::Sampling => RequestOutcome::InProgress,
            Self::Collecting => RequestOutcome::InProgress,
            Self::WaitingForStore => RequestOutcome::InProgress,
            Self::Complete => RequestOutcome::Complete,
            Self::SomeTargetsFailed => RequestOutcome::Complete,
            Self::NoSamples => RequestOutcome::Complete,
            Self::Cancelled => RequestOutcome::Complete,
            Self::CancelledBeforeStart => RequestOutcome::Refused,
            Self::NamespaceNotEnabled => RequestOutcome::Refused,
            Self::DurationOverLimit => RequestOutcome::Refused,
            Self::RateOverLimit => RequestOutcome::Refused,
            Self::StorageQuotaExceeded => RequestOutcome::Refused,
            Self::QueueTimeout => RequestOutcome::Refused,
            Self::WorkloadNotFound => RequestOutcome::Refused,
            Self::WorkloadNotSupported => RequestOutcome::Refused,
            Self::NoPodsMatched => RequestOutcome::Refused,
            Self::NoPodsReady => RequestOutcome::Refused,
            Self::ContainerNotFound => RequestOutcome::Refused,
            Self::ContainerAmbiguous => RequestOutcome::Refused,
            Self::StaticPod => RequestOutcome::Refused,
            Self::EphemeralContainerBudgetSpent => RequestOutcome::Refused,
            Self::ResidentSamplerBackOff => RequestOutcome::Refused,
            Self::ResidentNotAllowed => RequestOutcome::Refused,
            Self::DirectNotSupported => RequestOutcome::Refused,
            Self::StoreOverwrites => RequestOutcome::Refused,
            Self::ObserveFailed => RequestOutcome::Failed,
            Self::AllTargetsFailed => RequestOutcome::Failed,
            Self::MergeFailed => RequestOutcome::Failed,
            Self::StoreUnavailable => RequestOutcome::Failed,
        }
    }

    /// What it says, for users.
    #[rustfmt::skip] // One reason a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Suspended => "Held back: spec.suspend is true, and no sampler has started.",
            Self::Queued => "Held back: the administrator's limits on running requests or samplers are reached; the message has the request's place in the queue.",
            Self::ProfilingDisabled => "Held back: the administrator, or the namespace's label phpprof.dev/profiling=disabled, has stopped profiling.",
            Self::Starting => "In progress: pods are chosen, and no sampler runs yet.",
            Self::Sampling => "In progress: samplers run.",
            Self::Collecting => "In progress: every sampler has ended; the operator verifies and merges profiles.",
            Self::WaitingForStore => "In progress: the store does not answer; the operator retries until the deadline in the message.",
            Self::Complete => "Complete: every chosen pod's profile is in the merged one; for a pod that went away during a long run, its last checkpoint.",
            Self::SomeTargetsFailed => "Complete: the merged profile is stored, but at least one chosen pod is not in it; `status.targets` says why.",
            Self::NoSamples => "Complete: the pods were profiled, but PHP did no work in them.",
            Self::Cancelled => "Complete: the request was cancelled, or profiling was stopped; what was sampled until then is in the merged profile.",
            Self::CancelledBeforeStart => "Refused: the request was cancelled before it was accepted.",
            Self::NamespaceNotEnabled => "Refused: the namespace does not have the label phpprof.dev/profiling=enabled.",
            Self::DurationOverLimit => "Refused: durationSeconds is over the administrator's limit.",
            Self::RateOverLimit => "Refused: samplesPerSecond is over the administrator's limit.",
            Self::StorageQuotaExceeded => "Refused: the namespace's stored profiles have reached the administrator's limit.",
            Self::QueueTimeout => "Refused: the request waited too long for its turn.",
            Self::WorkloadNotFound => "Refused: the workload that workloadRef names does not exist.",
            Self::WorkloadNotSupported => "Refused: the workload has neither a /scale subresource nor a selector, or the operator may not read it.",
            Self::NoPodsMatched => "Refused: the target names no pod.",
            Self::NoPodsReady => "Refused: pods match, but none is ready.",
            Self::ContainerNotFound => "Refused: no ready pod has the container, or the container does not run.",
            Self::ContainerAmbiguous => "Refused: the request names no container, a ready pod has several, and not exactly one of them is named after PHP; the message has their names.",
            Self::StaticPod => "Refused: every ready pod is a static pod, to which Kubernetes adds no ephemeral container.",
            Self::EphemeralContainerBudgetSpent => "Refused: every ready pod has reached its limit of phpprof's ephemeral containers; they go when the pod is replaced.",
            Self::ResidentSamplerBackOff => "Refused: resident samplers of the matching pods ended a moment ago, for instance because their container restarts again and again; the message says when the next one may be added.",
            Self::ResidentNotAllowed => "Refused: samplerMode is Resident, and the administrator does not allow it for the request's creator.",
            Self::DirectNotSupported => "Refused: uploadMode is Direct, and the operator's store cannot sign create-only writes.",
            Self::StoreOverwrites => "Refused: the operator's store overwrites objects although a write forbids it, and the administrator does not allow profiles there.",
            Self::ObserveFailed => "Failed: the operator could not read from the API server what it needs to accept the request; the message has the error.",
            Self::AllTargetsFailed => "Failed: no chosen pod gave a profile; `status.targets` says why.",
            Self::MergeFailed => "Failed: pods were profiled, but their profiles could not be merged; the message says why. Each pod's profile is in the store.",
            Self::StoreUnavailable => "Failed: the store did not answer until the deadline.",
        }
    }

    /// What to do about it; none if the request goes on, or ended as the user wanted.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Suspended => Some("Set spec.suspend to false: kubectl patch pprof NAME --type=merge -p '{\"spec\":{\"suspend\":false}}'"),
            Self::Queued => Some("It starts by itself. The administrator may raise limits.requestsPerNamespace, limits.requests or limits.samplersPerNode in the chart."),
            Self::ProfilingDisabled => Some("Ask the administrator why (killSwitch in the chart). If the namespace has the label phpprof.dev/profiling=disabled: kubectl label namespace NAME phpprof.dev/profiling=enabled --overwrite"),
            Self::Starting => None,
            Self::Sampling => None,
            Self::Collecting => None,
            Self::WaitingForStore => Some("Check the store and the operator's credentials; the operator's log has the errors."),
            Self::Complete => None,
            Self::SomeTargetsFailed => Some("The profile holds the other pods. Look at the reasons of the pods that failed."),
            Self::NoSamples => Some("Profile under load or for longer, or set includeIdle (--include-idle), which shows where PHP waits."),
            Self::Cancelled => None,
            Self::CancelledBeforeStart => Some("Create another request; nothing was started."),
            Self::NamespaceNotEnabled => Some("Enable it: kubectl label namespace NAME phpprof.dev/profiling=enabled"),
            Self::DurationOverLimit => Some("Set a lower durationSeconds (--duration), or raise limits.durationSeconds in the chart."),
            Self::RateOverLimit => Some("Set a lower samplesPerSecond (--samples-per-second), or raise limits.samplesPerSecond in the chart."),
            Self::StorageQuotaExceeded => Some("Wait until profiles expire, keep them for a shorter time (profileRetentionSeconds), or ask the administrator to raise limits.storageBytesPerNamespace in the chart."),
            Self::QueueTimeout => Some("Create another request, or fewer at the same time; the administrator may raise limits.requestsPerNamespace, limits.requests, limits.samplersPerNode or queueTimeoutSeconds in the chart."),
            Self::WorkloadNotFound => Some("Check its kind, name and namespace: kubectl api-resources; kubectl get deploy,sts,ds,job"),
            Self::WorkloadNotSupported => Some("Select pods with target.selector (--selector), or let the operator read that kind (rbac.workloads in the chart)."),
            Self::NoPodsMatched => Some("Compare the target with kubectl get pods --show-labels"),
            Self::NoPodsReady => Some("Create another request when a pod is ready; kubectl describe pod says why none is."),
            Self::ContainerNotFound => Some("Name the container that runs PHP in target.containerName (--container); kubectl phpprof doctor lists them."),
            Self::ContainerAmbiguous => Some("Name the container that runs PHP in target.containerName (--container), or in the pods' annotation kubectl.kubernetes.io/default-container."),
            Self::StaticPod => Some("Run PHP in a pod of a workload (Deployment, DaemonSet), or profile it on the node with phpprof record."),
            Self::EphemeralContainerBudgetSpent => Some("Replace the pods (kubectl rollout restart), target others, or raise limits.ephemeralContainers in the chart."),
            Self::ResidentSamplerBackOff => Some("Find out why the container restarts (kubectl describe pod), or request a new sampler: samplerMode Once (--sampler-mode)."),
            Self::ResidentNotAllowed => Some("Leave samplerMode out (--sampler-mode), or ask the administrator to add the account to resident.users in the chart."),
            Self::DirectNotSupported => Some("Leave uploadMode out, or set it to Auto or Relay."),
            Self::StoreOverwrites => Some("Use a store that supports If-None-Match (docs/guides/install.md), or ask the administrator to set store.allowOverwrite in the chart; docs/security.md says what that weakens."),
            Self::ObserveFailed => Some("Create another request when the API server answers; the operator's log has the errors."),
            Self::AllTargetsFailed => Some("Look at the reasons of the pods."),
            Self::MergeFailed => Some("Read each pod's own profile: kubectl phpprof download NAME --pod POD"),
            Self::StoreUnavailable => Some("Check the store and the operator's credentials, then create another request."),
        }
    }
}

/// Reason of a comparison's conditions and verdict.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum ComparisonReason {
    /// In progress: the comparison is a template, which is never run; /verdict of the operator
    /// starts comparisons like it.
    Template,
    /// In progress: a side's request is not finished, or does not exist yet; the message says
    /// which.
    WaitingForRequests,
    /// In progress: both profiles are stored; the operator compares them.
    Comparing,
    /// In progress: the store does not answer; the operator retries until the deadline in the
    /// message.
    WaitingForStore,
    /// Decided: the time of an HTTP request has changed by more than chance, and by more than is
    /// accepted.
    TimeChanged,
    /// Decided: the functions in status.functions together have changed by more than chance, and by
    /// more than is accepted.
    FunctionsChanged,
    /// Decided: HTTP requests of a route take more time than its limits in spec.routes allow, by
    /// more than chance; the message says which.
    RouteSlower,
    /// Decided: time only moved from some functions to others below the same caller, as after a
    /// rename.
    OnlyMoved,
    /// Decided: the change is not larger than maxIncreasePercent or minMilliseconds.
    Accepted,
    /// Decided: no difference is larger than chance.
    WithinChance,
    /// Inconclusive: a change of visiblePercent could not have been seen; the message has the
    /// smallest one that could.
    CouldNotSee,
    /// Inconclusive: of a route in spec.routes, a change of visiblePercent or of its limit could
    /// not have been seen; the message has the smallest one that could.
    RouteNotSeen,
    /// Inconclusive: a side has too few HTTP requests of a route in spec.routes, or none.
    RouteNotCompared,
    /// Inconclusive: requests take more time, but PHP compiled and loaded more than before, and
    /// that is most of the change.
    WarmingUp,
    /// Inconclusive: no route has enough HTTP requests on both sides.
    TooFewRequests,
    /// Inconclusive: HTTP requests are too short for the rate: not all of them were seen.
    RequestsTooShort,
    /// Inconclusive: no time of this measure was sampled, or not enough to know its error.
    NotMeasured,
    /// Inconclusive: the list of HTTP requests of a side is missing, or does not say how much their
    /// time varies.
    NoCells,
    /// Inconclusive: the request of a side does not exist, or was deleted before its profile was
    /// compared.
    RequestNotFound,
    /// Inconclusive: the archive has no run of the side's workload that ended before the time and
    /// can be compared; the message says what it looked for.
    NoStoredRun,
    /// Inconclusive: the request of a side ended without a profile; the message has its reason.
    RequestFailed,
    /// Inconclusive: the API server refused the request of a side; the message has its words.
    RequestRefused,
    /// Inconclusive: a request of the name NAME-before or NAME-after exists, and does not belong to
    /// the comparison.
    RequestNameTaken,
    /// Inconclusive: the profiles were not recorded alike, so a comparison would say how they were
    /// recorded; the message says what differs.
    ProfilesUnlike,
    /// Inconclusive: a profile is larger than the operator compares; the message has the limit.
    TooLargeToCompare,
    /// Inconclusive: the profile of a side is not in the store any more.
    ProfileGone,
    /// Inconclusive: a stored profile, or its list of HTTP requests, cannot be read; the message
    /// says why.
    UnreadableProfile,
    /// Inconclusive: the store did not answer until the deadline.
    StoreTimeout,
    /// Inconclusive: spec.cancel was set before there was a verdict.
    ComparisonCancelled,
    /// Note: the pods of a side differ from each other, so each pod counts once.
    PodsDiffer,
    /// Note: some of the time is of functions without room for a name, whose changes show in the
    /// time of an HTTP request only.
    WithoutNames,
    /// Note: a request has a profile, but not of all that it was to have; the message has its
    /// reason.
    RequestIncomplete,
    /// Note: both sides are targets, but did not run at the same time, for instance because one
    /// waited in the queue.
    RunsApart,
    /// Note: the profiles were not recorded alike, and force is set.
    UnlikeByForce,
    /// Note: a profile does not say everything about how it was recorded.
    NotAllChecked,
}

/// What a [`ComparisonReason`] says about the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonOutcome {
    /// There is none yet.
    InProgress,
    /// It is Better, Worse or NoChange.
    Decided,
    /// It is Inconclusive.
    Inconclusive,
    /// It accompanies another reason.
    Note,
}

impl ComparisonReason {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Template,
        Self::WaitingForRequests,
        Self::Comparing,
        Self::WaitingForStore,
        Self::TimeChanged,
        Self::FunctionsChanged,
        Self::RouteSlower,
        Self::OnlyMoved,
        Self::Accepted,
        Self::WithinChance,
        Self::CouldNotSee,
        Self::RouteNotSeen,
        Self::RouteNotCompared,
        Self::WarmingUp,
        Self::TooFewRequests,
        Self::RequestsTooShort,
        Self::NotMeasured,
        Self::NoCells,
        Self::RequestNotFound,
        Self::NoStoredRun,
        Self::RequestFailed,
        Self::RequestRefused,
        Self::RequestNameTaken,
        Self::ProfilesUnlike,
        Self::TooLargeToCompare,
        Self::ProfileGone,
        Self::UnreadableProfile,
        Self::StoreTimeout,
        Self::ComparisonCancelled,
        Self::PodsDiffer,
        Self::WithoutNames,
        Self::RequestIncomplete,
        Self::RunsApart,
        Self::UnlikeByForce,
        Self::NotAllChecked,
    ];

    /// What it says about the verdict.
    pub fn outcome(self) -> ComparisonOutcome {
        match self {
            Self::Template => ComparisonOutcome::InProgress,
            Self::WaitingForRequests => ComparisonOutcome::InProgress,
            Self::Comparing => ComparisonOutcome::InProgress,
            Self::WaitingForStore => ComparisonOutcome::InProgress,
            Self::TimeChanged => ComparisonOutcome::Decided,
            Self::FunctionsChanged => ComparisonOutcome::Decided,
            Self::RouteSlower => ComparisonOutcome::Decided,
            Self::OnlyMoved => ComparisonOutcome::Decided,
            Self::Accepted => ComparisonOutcome::Decided,
            Self::WithinChance => ComparisonOutcome::Decided,
            Self::CouldNotSee => ComparisonOutcome::Inconclusive,
            Self::RouteNotSeen => ComparisonOutcome::Inconclusive,
            Self::RouteNotCompared => ComparisonOutcome::Inconclusive,
            Self::WarmingUp => ComparisonOutcome::Inconclusive,
            Self::TooFewRequests => ComparisonOutcome::Inconclusive,
            Self::RequestsTooShort => ComparisonOutcome::Inconclusive,
            Self::NotMeasured => ComparisonOutcome::Inconclusive,
            Self::NoCells => ComparisonOutcome::Inconclusive,
            Self::RequestNotFound => ComparisonOutcome::Inconclusive,
            Self::NoStoredRun => ComparisonOutcome::Inconclusive,
            Self::RequestFailed => ComparisonOutcome::Inconclusive,
            Self::RequestRefused => ComparisonOutcome::Inconclusive,
            Self::RequestNameTaken => ComparisonOutcome::Inconclusive,
            Self::ProfilesUnlike => ComparisonOutcome::Inconclusive,
            Self::TooLargeToCompare => ComparisonOutcome::Inconclusive,
            Self::ProfileGone => ComparisonOutcome::Inconclusive,
            Self::UnreadableProfile => ComparisonOutcome::Inconclusive,
            Self::StoreTimeout => ComparisonOutcome::Inconclusive,
            Self::ComparisonCancelled => ComparisonOutcome::Inconclusive,
            Self::PodsDiffer => ComparisonOutcome::Note,
            Self::WithoutNames => ComparisonOutcome::Note,
            Self::RequestIncomplete => ComparisonOutcome::Note,
            Self::RunsApart => ComparisonOutcome::Note,
            Self::UnlikeByForce => ComparisonOutcome::Note,
            Self::NotAllChecked => ComparisonOutcome::Note,
        }
    }

    /// What it says, for users.
    #[rustfmt::skip] // One reason a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Template => "In progress: the comparison is a template, which is never run; /verdict of the operator starts comparisons like it.",
            Self::WaitingForRequests => "In progress: a side's request is not finished, or does not exist yet; the message says which.",
            Self::Comparing => "In progress: both profiles are stored; the operator compares them.",
            Self::WaitingForStore => "In progress: the store does not answer; the operator retries until the deadline in the message.",
            Self::TimeChanged => "Decided: the time of an HTTP request has changed by more than chance, and by more than is accepted.",
            Self::FunctionsChanged => "Decided: the functions in status.functions together have changed by more than chance, and by more than is accepted.",
            Self::RouteSlower => "Decided: HTTP requests of a route take more time than its limits in spec.routes allow, by more than chance; the message says which.",
            Self::OnlyMoved => "Decided: time only moved from some functions to others below the same caller, as after a rename.",
            Self::Accepted => "Decided: the change is not larger than maxIncreasePercent or minMilliseconds.",
            Self::WithinChance => "Decided: no difference is larger than chance.",
            Self::CouldNotSee => "Inconclusive: a change of visiblePercent could not have been seen; the message has the smallest one that could.",
            Self::RouteNotSeen => "Inconclusive: of a route in spec.routes, a change of visiblePercent or of its limit could not have been seen; the message has the smallest one that could.",
            Self::RouteNotCompared => "Inconclusive: a side has too few HTTP requests of a route in spec.routes, or none.",
            Self::WarmingUp => "Inconclusive: requests take more time, but PHP compiled and loaded more than before, and that is most of the change.",
            Self::TooFewRequests => "Inconclusive: no route has enough HTTP requests on both sides.",
            Self::RequestsTooShort => "Inconclusive: HTTP requests are too short for the rate: not all of them were seen.",
            Self::NotMeasured => "Inconclusive: no time of this measure was sampled, or not enough to know its error.",
            Self::NoCells => "Inconclusive: the list of HTTP requests of a side is missing, or does not say how much their time varies.",
            Self::RequestNotFound => "Inconclusive: the request of a side does not exist, or was deleted before its profile was compared.",
            Self::NoStoredRun => "Inconclusive: the archive has no run of the side's workload that ended before the time and can be compared; the message says what it looked for.",
            Self::RequestFailed => "Inconclusive: the request of a side ended without a profile; the message has its reason.",
            Self::RequestRefused => "Inconclusive: the API server refused the request of a side; the message has its words.",
            Self::RequestNameTaken => "Inconclusive: a request of the name NAME-before or NAME-after exists, and does not belong to the comparison.",
            Self::ProfilesUnlike => "Inconclusive: the profiles were not recorded alike, so a comparison would say how they were recorded; the message says what differs.",
            Self::TooLargeToCompare => "Inconclusive: a profile is larger than the operator compares; the message has the limit.",
            Self::ProfileGone => "Inconclusive: the profile of a side is not in the store any more.",
            Self::UnreadableProfile => "Inconclusive: a stored profile, or its list of HTTP requests, cannot be read; the message says why.",
            Self::StoreTimeout => "Inconclusive: the store did not answer until the deadline.",
            Self::ComparisonCancelled => "Inconclusive: spec.cancel was set before there was a verdict.",
            Self::PodsDiffer => "Note: the pods of a side differ from each other, so each pod counts once.",
            Self::WithoutNames => "Note: some of the time is of functions without room for a name, whose changes show in the time of an HTTP request only.",
            Self::RequestIncomplete => "Note: a request has a profile, but not of all that it was to have; the message has its reason.",
            Self::RunsApart => "Note: both sides are targets, but did not run at the same time, for instance because one waited in the queue.",
            Self::UnlikeByForce => "Note: the profiles were not recorded alike, and force is set.",
            Self::NotAllChecked => "Note: a profile does not say everything about how it was recorded.",
        }
    }

    /// What to do about it; none if the request goes on, or ended as the user wanted.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Template => None,
            Self::WaitingForRequests => None,
            Self::Comparing => None,
            Self::WaitingForStore => Some("Check the store and the operator's credentials; the operator's log has the errors."),
            Self::TimeChanged => None,
            Self::FunctionsChanged => None,
            Self::RouteSlower => None,
            Self::OnlyMoved => None,
            Self::Accepted => None,
            Self::WithinChance => None,
            Self::CouldNotSee => Some("Profile both for longer (durationSeconds) or more pods of both (maxPods), or accept less with visiblePercent (--visible)."),
            Self::RouteNotSeen => Some("Profile both for longer (durationSeconds) or more pods of both (maxPods), or accept more of this route (maxIncreasePercent)."),
            Self::RouteNotCompared => Some("Compare the route's name with those in status.routes and status.routesNotCompared; profile both for longer, under load, or leave the route out."),
            Self::WarmingUp => Some("Profile the later release again once its caches are full."),
            Self::TooFewRequests => Some("Profile both for longer, under load."),
            Self::RequestsTooShort => Some("Profile both at a higher rate (samplesPerSecond)."),
            Self::NotMeasured => Some("Profile both for longer, under load."),
            Self::NoCells => Some("Profile both with this release and the label Route. kubectl phpprof verdict BEFORE AFTER compares by samples alone."),
            Self::RequestNotFound => Some("Name a request of this namespace (kubectl get pprof), or let the comparison create it: set target instead of request."),
            Self::NoStoredRun => Some("Look at kubectl phpprof list --stored. Record the workload with the label Route, for instance by a schedule, or name a later time in before."),
            Self::RequestFailed => Some("Look at the request's reason; kubectl phpprof explain REASON says what to do. Then create another comparison."),
            Self::RequestRefused => Some("Change what the message names, then create another comparison."),
            Self::RequestNameTaken => Some("Give the comparison another name, or name that request in request instead of target."),
            Self::ProfilesUnlike => Some("Record both alike, or set force (--force)."),
            Self::TooLargeToCompare => Some("Compare them with kubectl phpprof verdict BEFORE AFTER, or profile fewer pods."),
            Self::ProfileGone => Some("Profile again. A request's profileRetentionSeconds says how long its profile stays."),
            Self::UnreadableProfile => Some("Profile again. If that does not help, compare with kubectl phpprof verdict BEFORE AFTER, and report it."),
            Self::StoreTimeout => Some("Check the store and the operator's credentials, then create another comparison."),
            Self::ComparisonCancelled => Some("Create another comparison."),
            Self::PodsDiffer => Some("Profile more pods of both (maxPods)."),
            Self::WithoutNames => None,
            Self::RequestIncomplete => None,
            Self::RunsApart => Some("Compare again, or see that both had the same load."),
            Self::UnlikeByForce => None,
            Self::NotAllChecked => None,
        }
    }
}

/// Reason of a trigger's condition.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum TriggerReason {
    /// Fired: an alert with the labels has started a request; status.requests has its name.
    RequestCreated,
    /// Repeated: all alerts with the labels had started a request before; status.requests has its
    /// name.
    AlertRepeated,
    /// Not fired: alerts were received, but none that fires has the labels in
    /// when.alert.matchLabels; the message says which label is missing.
    NoAlertMatched,
    /// Not fired: spec.suspend is true.
    TriggerSuspended,
    /// Not fired: the administrator, or the namespace's label phpprof.dev/profiling=disabled, has
    /// stopped profiling.
    ProfilingStopped,
    /// Not fired: the last request is less than spec.backOffSeconds old; the message says until
    /// when no other one is created.
    BackingOff,
    /// Not fired: there were spec.limit.requests requests within spec.limit.windowSeconds; the
    /// message says until when no other one is created.
    LimitReached,
    /// Not fired: the API server refused the request; the message has its words.
    CreationRefused,
    /// Not fired: a request has the name that follows from the alert, and does not belong to the
    /// trigger.
    NameTaken,
    /// Not fired: the API server did not answer when the request was to be created.
    CreationFailed,
}

/// What a [`TriggerReason`] says about the trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerOutcome {
    /// It has created a request.
    Fired,
    /// The request exists already.
    Repeated,
    /// It has created none.
    NotFired,
}

impl TriggerReason {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::RequestCreated,
        Self::AlertRepeated,
        Self::NoAlertMatched,
        Self::TriggerSuspended,
        Self::ProfilingStopped,
        Self::BackingOff,
        Self::LimitReached,
        Self::CreationRefused,
        Self::NameTaken,
        Self::CreationFailed,
    ];

    /// What it says about the trigger.
    pub fn outcome(self) -> TriggerOutcome {
        match self {
            Self::RequestCreated => TriggerOutcome::Fired,
            Self::AlertRepeated => TriggerOutcome::Repeated,
            Self::NoAlertMatched => TriggerOutcome::NotFired,
            Self::TriggerSuspended => TriggerOutcome::NotFired,
            Self::ProfilingStopped => TriggerOutcome::NotFired,
            Self::BackingOff => TriggerOutcome::NotFired,
            Self::LimitReached => TriggerOutcome::NotFired,
            Self::CreationRefused => TriggerOutcome::NotFired,
            Self::NameTaken => TriggerOutcome::NotFired,
            Self::CreationFailed => TriggerOutcome::NotFired,
        }
    }

    /// What it says, for users.
    #[rustfmt::skip] // One reason a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::RequestCreated => "Fired: an alert with the labels has started a request; status.requests has its name.",
            Self::AlertRepeated => "Repeated: all alerts with the labels had started a request before; status.requests has its name.",
            Self::NoAlertMatched => "Not fired: alerts were received, but none that fires has the labels in when.alert.matchLabels; the message says which label is missing.",
            Self::TriggerSuspended => "Not fired: spec.suspend is true.",
            Self::ProfilingStopped => "Not fired: the administrator, or the namespace's label phpprof.dev/profiling=disabled, has stopped profiling.",
            Self::BackingOff => "Not fired: the last request is less than spec.backOffSeconds old; the message says until when no other one is created.",
            Self::LimitReached => "Not fired: there were spec.limit.requests requests within spec.limit.windowSeconds; the message says until when no other one is created.",
            Self::CreationRefused => "Not fired: the API server refused the request; the message has its words.",
            Self::NameTaken => "Not fired: a request has the name that follows from the alert, and does not belong to the trigger.",
            Self::CreationFailed => "Not fired: the API server did not answer when the request was to be created.",
        }
    }

    /// What to do about it; none if the request goes on, or ended as the user wanted.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::RequestCreated => None,
            Self::AlertRepeated => None,
            Self::NoAlertMatched => Some("Compare matchLabels with the labels of the alert as Alertmanager has them (amtool alert query, or its page), and see that the route of the receiver gets this alert."),
            Self::TriggerSuspended => Some("Set spec.suspend to false: kubectl patch ptrg NAME --type=merge -p '{\"spec\":{\"suspend\":false}}'"),
            Self::ProfilingStopped => Some("Ask the administrator why (killSwitch in the chart). If the namespace has the label phpprof.dev/profiling=disabled: kubectl label namespace NAME phpprof.dev/profiling=enabled --overwrite"),
            Self::BackingOff => Some("Wait: an alert that still fires then starts one when Alertmanager sends it again (group_interval, repeat_interval). Or set a lower spec.backOffSeconds."),
            Self::LimitReached => Some("Look at the requests that there are (status.requests), match fewer alerts in when.alert.matchLabels, or set a higher spec.limit."),
            Self::CreationRefused => Some("Change in spec.template what the message names."),
            Self::NameTaken => Some("Delete that request, or give the trigger another name."),
            Self::CreationFailed => Some("It is tried again when Alertmanager sends the alert again, which it does within minutes. The operator's log has the error."),
        }
    }
}

/// Why there is no profile of a pod, or only its beginning.
#[derive(
    JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
pub enum TargetReason {
    /// Admission refused the sampler's container: PHP runs as root, so the sampler needs
    /// SYS_PTRACE, and Pod Security does not allow it.
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
    /// The container that runs PHP ended: the kernel then kills every process of its PID namespace,
    /// the sampler included, at once.
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
    /// The kernel did not let the sampler read PHP's memory: PHP runs as another user, or a
    /// security module such as AppArmor forbids it.
    PermissionDenied,
    /// The PHP process has capabilities of its own, for instance from its file, so its own user
    /// cannot read it.
    FileCapabilities,
    /// The PHP process is not dumpable, for instance an FPM worker that has changed its user, so
    /// its own user cannot read it.
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
    /// The upload came to the relay from an address that is not the pod's; the message has both
    /// addresses.
    SourceNotPod,
    /// The resident sampler could not reach the relay; the message has the last error.
    RelayUnreachable,
    /// In progress: the sampler runs, but the operator has heard nothing from it for half a minute;
    /// the message says what in the pod's spec may be the cause. It goes away when the sampler is
    /// heard.
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
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::PodSecurityDenied,
        Self::UserUnknown,
        Self::InjectionRefused,
        Self::ImagePullFailed,
        Self::ContainerCreateFailed,
        Self::StartDeadlineExceeded,
        Self::PodDeleted,
        Self::TargetRestarted,
        Self::TargetExited,
        Self::Cancelled,
        Self::SamplerKilled,
        Self::Internal,
        Self::Usage,
        Self::NoPhpFound,
        Self::UnsupportedVersion,
        Self::NoEngineSymbols,
        Self::LayoutMismatch,
        Self::PermissionDenied,
        Self::FileCapabilities,
        Self::NotDumpable,
        Self::YamaRestricted,
        Self::SeccompRestricted,
        Self::OtherUserNamespace,
        Self::GVisor,
        Self::UploadDeadlineExceeded,
        Self::UploadRefused,
        Self::SourceNotPod,
        Self::RelayUnreachable,
        Self::NotHeardFrom,
        Self::CertificateUntrusted,
        Self::ProfileTooLarge,
        Self::ProfileMissing,
        Self::SizeMismatch,
        Self::ChecksumMismatch,
        Self::InvalidProfile,
        Self::ObserveFailed,
        Self::StoreUnavailable,
    ];

    /// What it says, for users.
    #[rustfmt::skip] // One reason a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::PodSecurityDenied => "Admission refused the sampler's container: PHP runs as root, so the sampler needs SYS_PTRACE, and Pod Security does not allow it.",
            Self::UserUnknown => "Admission refused SYS_PTRACE, and the pod does not name the user that PHP runs as.",
            Self::InjectionRefused => "The API server or a webhook refused the sampler's container for another reason.",
            Self::ImagePullFailed => "The pod's node could not pull the sampler's image.",
            Self::ContainerCreateFailed => "The pod's node could not create the sampler's container.",
            Self::StartDeadlineExceeded => "The sampler did not start in time.",
            Self::PodDeleted => "The pod was deleted or replaced before its profile was stored.",
            Self::TargetRestarted => "The container that runs PHP was restarted, and the sampler ended with it.",
            Self::TargetExited => "The container that runs PHP ended: the kernel then kills every process of its PID namespace, the sampler included, at once.",
            Self::Cancelled => "The request was cancelled before this pod's first sample.",
            Self::SamplerKilled => "The sampler ended without a receipt, for instance because it was killed when memory ran out.",
            Self::Internal => "A bug in the sampler.",
            Self::Usage => "The sampler refused its flags or grants: its image does not fit this operator.",
            Self::NoPhpFound => "No process of the container maps a PHP engine.",
            Self::UnsupportedVersion => "The sampler does not know this PHP version.",
            Self::NoEngineSymbols => "The PHP engine has no symbols in .dynsym, for instance a static binary.",
            Self::LayoutMismatch => "The PHP version is known, but its structures in memory do not match it.",
            Self::PermissionDenied => "The kernel did not let the sampler read PHP's memory: PHP runs as another user, or a security module such as AppArmor forbids it.",
            Self::FileCapabilities => "The PHP process has capabilities of its own, for instance from its file, so its own user cannot read it.",
            Self::NotDumpable => "The PHP process is not dumpable, for instance an FPM worker that has changed its user, so its own user cannot read it.",
            Self::YamaRestricted => "The node's kernel.yama.ptrace_scope does not let the sampler read PHP's memory.",
            Self::SeccompRestricted => "The pod's seccomp profile refuses both ways to read PHP's memory.",
            Self::OtherUserNamespace => "PHP runs in a user namespace in which the sampler has no rights.",
            Self::GVisor => "The pod runs on gVisor, whose kernel does not let the sampler read PHP's memory.",
            Self::UploadDeadlineExceeded => "The profile was not stored in time; the message has the last error.",
            Self::UploadRefused => "The store refused the profile for good.",
            Self::SourceNotPod => "The upload came to the relay from an address that is not the pod's; the message has both addresses.",
            Self::RelayUnreachable => "The resident sampler could not reach the relay; the message has the last error.",
            Self::NotHeardFrom => "In progress: the sampler runs, but the operator has heard nothing from it for half a minute; the message says what in the pod's spec may be the cause. It goes away when the sampler is heard.",
            Self::CertificateUntrusted => "The store's certificate is not signed by a CA that the sampler trusts.",
            Self::ProfileTooLarge => "The profile is over 32 MiB.",
            Self::ProfileMissing => "The sampler reported that it stored a profile, but the store has none.",
            Self::SizeMismatch => "The stored profile does not have the size in the receipt.",
            Self::ChecksumMismatch => "The stored profile does not have the SHA-256 in the receipt.",
            Self::InvalidProfile => "The stored object is not a profile of phpprof, or is over its limits.",
            Self::ObserveFailed => "The operator could not read the pod from the API server in time.",
            Self::StoreUnavailable => "The store did not answer in time, so the operator could not verify the profile.",
        }
    }

    /// What to do about it. Every reason has something: whoever reads it has no profile of the pod.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::PodSecurityDenied => "Run PHP as an ordinary user, or profile it in a namespace that allows SYS_PTRACE. If the message names another container of the pod, replace the pod.",
            Self::UserUnknown => "Set the user that PHP runs as in target.runAsUser (--run-as-user; kubectl exec POD -- id shows it), or in the pod's security context.",
            Self::InjectionRefused => "Let the API server and its webhooks accept ephemeral containers named phpprof-…. If the pod has one of that name that is not the operator's, replace the pod.",
            Self::ImagePullFailed => "Let the nodes pull the sampler's image: check images.sampler in the chart and the pod's imagePullSecrets.",
            Self::ContainerCreateFailed => "Check the node; kubectl describe pod has the error.",
            Self::StartDeadlineExceeded => "Create another request, and check the node (kubectl describe pod); a slow image pull needs a larger startSlackSeconds in the chart.",
            Self::PodDeleted => "Create another request; it chooses among the pods that exist then.",
            Self::TargetRestarted => "Create another request; kubectl describe pod says why the container restarted.",
            Self::TargetExited => "Create another request, maybe for a shorter time; kubectl describe pod says why the container ended.",
            Self::Cancelled => "Create another request.",
            Self::SamplerKilled => "Create another request; kubectl describe pod says how the sampler ended. The pod may have reached its memory limit.",
            Self::Internal => "Please report it with the output of kubectl phpprof logs NAME.",
            Self::Usage => "Use a sampler image of the operator's version: images.sampler in the chart.",
            Self::NoPhpFound => "Name the container that runs PHP in target.containerName (--container), or create another request when PHP runs.",
            Self::UnsupportedVersion => "Use a newer phpprof; the message has the version.",
            Self::NoEngineSymbols => "Use a PHP that has its symbols in .dynsym, as all packaged ones have.",
            Self::LayoutMismatch => "The engine seems to be patched. Please report it with the output of php -i.",
            Self::PermissionDenied => "Set target.runAsUser and target.runAsGroup (--run-as-user, --run-as-group) to the ids of PHP, or leave both out if SYS_PTRACE is allowed. If the message names a security module, look for its denial in the kernel's log on the node (dmesg).",
            Self::FileCapabilities => "Remove the capabilities from PHP's file (setcap -r), or profile where SYS_PTRACE is allowed, without target.runAsUser.",
            Self::NotDumpable => "Set process.dumpable = yes in php-fpm's pool, start PHP as its user, or profile where SYS_PTRACE is allowed, without target.runAsUser.",
            Self::YamaRestricted => "Profile where SYS_PTRACE is allowed, without target.runAsUser, or set kernel.yama.ptrace_scope=0 on the node; only a reboot can lower it from 3.",
            Self::SeccompRestricted => "Let the node's default seccomp profile (kubelet, containerd) allow process_vm_readv or pread64.",
            Self::OtherUserNamespace => "Profile a pod whose container does not create a user namespace.",
            Self::GVisor => "Profile the workload with another runtimeClassName.",
            Self::UploadDeadlineExceeded => "Let the pods reach the store, or the operator as a relay (uploadMode): check network policies, DNS and the store itself.",
            Self::UploadRefused => "Check the operator's credentials and the node's clock; the message has the HTTP status.",
            Self::SourceNotPod => "If masquerading or a mesh changes addresses, set relay.verifySource to Warn in the chart. Otherwise, somebody else has used the pod's grant.",
            Self::RelayUnreachable => "Let the pods reach the operator's relay: check network policies and DNS. If samplerMode is Auto, the next request gets a new sampler.",
            Self::NotHeardFrom => "Let the pods reach the operator's relay, TCP port 8443: kubectl phpprof logs NAME has the sampler's error. If it is the name: set dnsPolicy to ClusterFirstWithHostNet or ClusterFirst.",
            Self::CertificateUntrusted => "Set store.caBundle in the chart to the CA that signed the store's certificate. That certificate must not be a CA's own, and its key has to be RSA, P-256 or P-384.",
            Self::ProfileTooLarge => "Sample for a shorter time.",
            Self::ProfileMissing => "Create another request; somebody removed the object, or the store lost it.",
            Self::SizeMismatch => "Create another request; another object has the profile's key.",
            Self::ChecksumMismatch => "Create another request; another object has the profile's key.",
            Self::InvalidProfile => "Use a sampler image of the operator's version; a hostile pod can cause this too.",
            Self::ObserveFailed => "Create another request when the API server answers; the operator's log has the errors.",
            Self::StoreUnavailable => "Check the store and the operator's credentials, then create another request.",
        }
    }

    /// The reason that a sampler's receipt names, if it is one that a sampler may give.
    pub fn of_receipt(reason: &str) -> Option<Self> {
        match reason {
            "TargetExited" => Some(Self::TargetExited),
            "Cancelled" => Some(Self::Cancelled),
            "Internal" => Some(Self::Internal),
            "Usage" => Some(Self::Usage),
            "NoPhpFound" => Some(Self::NoPhpFound),
            "UnsupportedVersion" => Some(Self::UnsupportedVersion),
            "NoEngineSymbols" => Some(Self::NoEngineSymbols),
            "LayoutMismatch" => Some(Self::LayoutMismatch),
            "PermissionDenied" => Some(Self::PermissionDenied),
            "FileCapabilities" => Some(Self::FileCapabilities),
            "NotDumpable" => Some(Self::NotDumpable),
            "YamaRestricted" => Some(Self::YamaRestricted),
            "SeccompRestricted" => Some(Self::SeccompRestricted),
            "OtherUserNamespace" => Some(Self::OtherUserNamespace),
            "GVisor" => Some(Self::GVisor),
            "UploadDeadlineExceeded" => Some(Self::UploadDeadlineExceeded),
            "UploadRefused" => Some(Self::UploadRefused),
            "SourceNotPod" => Some(Self::SourceNotPod),
            "RelayUnreachable" => Some(Self::RelayUnreachable),
            "CertificateUntrusted" => Some(Self::CertificateUntrusted),
            "ProfileTooLarge" => Some(Self::ProfileTooLarge),
            _ => None,
        }
    }
}

/// What an event of a request reports.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventReason {
    /// The operator has accepted the request; the note has its message, and who requested it.
    Accepted,
    /// Samplers were added to pods; the note says to how many.
    Injected,
    /// A pod's profile is stored, but is only a part of what was requested; the note has the pod's
    /// reason.
    Uploaded,
    /// There is no profile of a pod; the note has the pod's reason.
    TargetFailed,
    /// The request is complete; a Warning has the reason why its profile lacks something.
    Complete,
    /// The request was refused or has failed; the note has its reason.
    Failed,
    /// The merged profile was pushed to Pyroscope.
    Pushed,
    /// The merged profile, or a part of it, was not pushed to Pyroscope; the note has the error.
    PushFailed,
    /// The merged profile was pushed by OTLP; the note says how many profiles it is there.
    OtlpPushed,
    /// The merged profile, or a part of it, was not pushed by OTLP; the note has the error.
    OtlpPushFailed,
    /// The request is an annotation in Grafana.
    Annotated,
    /// Grafana did not take the annotation; the note has the error.
    AnnotationFailed,
    /// Nothing was sent to Pyroscope, by OTLP and to Grafana, because too many requests were
    /// waiting to be sent.
    NotSent,
    /// The requests of a comparison's targets, or a request of a trigger, were created; the note
    /// has their names.
    RequestsCreated,
    /// The comparison has a verdict; the note has it. It is a Warning if HTTP requests take more
    /// time.
    Decided,
    /// The comparison has ended without a verdict; the note has its reason.
    Undecided,
}

impl EventReason {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Accepted,
        Self::Injected,
        Self::Uploaded,
        Self::TargetFailed,
        Self::Complete,
        Self::Failed,
        Self::Pushed,
        Self::PushFailed,
        Self::OtlpPushed,
        Self::OtlpPushFailed,
        Self::Annotated,
        Self::AnnotationFailed,
        Self::NotSent,
        Self::RequestsCreated,
        Self::Decided,
        Self::Undecided,
    ];

    /// What it says, for users.
    #[rustfmt::skip] // One reason a line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Accepted => "the operator has accepted the request; the note has its message, and who requested it.",
            Self::Injected => "samplers were added to pods; the note says to how many.",
            Self::Uploaded => "a pod's profile is stored, but is only a part of what was requested; the note has the pod's reason.",
            Self::TargetFailed => "there is no profile of a pod; the note has the pod's reason.",
            Self::Complete => "the request is complete; a Warning has the reason why its profile lacks something.",
            Self::Failed => "the request was refused or has failed; the note has its reason.",
            Self::Pushed => "the merged profile was pushed to Pyroscope.",
            Self::PushFailed => "the merged profile, or a part of it, was not pushed to Pyroscope; the note has the error.",
            Self::OtlpPushed => "the merged profile was pushed by OTLP; the note says how many profiles it is there.",
            Self::OtlpPushFailed => "the merged profile, or a part of it, was not pushed by OTLP; the note has the error.",
            Self::Annotated => "the request is an annotation in Grafana.",
            Self::AnnotationFailed => "Grafana did not take the annotation; the note has the error.",
            Self::NotSent => "nothing was sent to Pyroscope, by OTLP and to Grafana, because too many requests were waiting to be sent.",
            Self::RequestsCreated => "the requests of a comparison's targets, or a request of a trigger, were created; the note has their names.",
            Self::Decided => "the comparison has a verdict; the note has it. It is a Warning if HTTP requests take more time.",
            Self::Undecided => "the comparison has ended without a verdict; the note has its reason.",
        }
    }

    /// What to do about it; none if the request goes on, or ended as the user wanted.
    #[rustfmt::skip] // One reason a line.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Accepted => None,
            Self::Injected => None,
            Self::Uploaded => Some("Look at the pod's reason; kubectl phpprof explain REASON says what to do."),
            Self::TargetFailed => Some("Look at the pod's reason; kubectl phpprof explain REASON says what to do."),
            Self::Complete => None,
            Self::Failed => Some("Look at the request's reason; kubectl phpprof explain REASON says what to do."),
            Self::Pushed => None,
            Self::PushFailed => Some("Check the address and the credentials in the chart (pyroscope), and Pyroscope's log. The profile is in the store: kubectl phpprof download NAME"),
            Self::OtlpPushed => None,
            Self::OtlpPushFailed => Some("Check the endpoint, the protocol and the headers in the chart (export.otlp), and the receiver's log: a Collector needs the feature gate service.profilesSupport. The profile is in the store: kubectl phpprof download NAME"),
            Self::Annotated => None,
            Self::AnnotationFailed => Some("Check the address and the token in the chart (grafana), and the rights of its service account."),
            Self::NotSent => Some("Find out which of these services is slow: the events of other requests have the errors. The profile is in the store: kubectl phpprof download NAME"),
            Self::RequestsCreated => None,
            Self::Decided => None,
            Self::Undecided => Some("Look at the comparison's reason; kubectl phpprof explain REASON says what to do."),
        }
    }
}

impl fmt::Display for RequestReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for ComparisonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for TriggerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for TargetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
