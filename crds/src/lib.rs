//! API types of phpprof.dev: ProfileRequest, its conditions, reasons and label keys,
//! ProfileArchive, ProfileComparison and ProfileTrigger.
//!
//! It does not talk to a cluster and decides nothing; `operator/` does.
//!
//! Invariant: what the schema or a CEL rule can refuse is refused there; no field is ignored by the
//! operator.

#![warn(clippy::match_bool)]

mod archive;
mod bounded;
mod chain;
mod comparison;
mod comparison_status;
mod reason;
pub mod reference;
mod request;
mod secret;
mod status;
mod trigger;
mod trigger_status;

pub use archive::{ARCHIVE, ProfileArchive, ProfileArchiveSpec, ProfileArchiveStatus};
pub use chain::chain;
pub use comparison::{
    ComparedRoute, ComparisonMeasure, ComparisonSide, ProfileComparison, ProfileComparisonSpec,
    StoredRun,
};
pub use comparison_status::{
    ComparedRequest, ComparedTime, ComparisonVerdict, FunctionInFile, FunctionVerdict,
    MovedFunctions, ProfileComparisonStatus, RouteVerdict, UncomparedRoute, VerdictReason,
};
pub use reason::{
    ComparisonOutcome, ComparisonReason, EventReason, RequestOutcome, RequestReason, TargetReason,
    TriggerOutcome, TriggerReason,
};
pub use request::{
    Filter, ProfileMode, ProfileRequest, ProfileRequestSpec, ProfileTarget, RequestLabel,
    SamplerMode, UploadMode, WorkloadRef,
};
pub use secret::Secret;
pub use status::{
    ContainerChoice, MissedProcesses, PhpRuntime, ProfileLink, ProfileQuality,
    ProfileRequestStatus, ProfileResult, TargetState, TargetStatus, UploadRoute,
};
pub use trigger::{
    AlertCondition, ProfileTrigger, ProfileTriggerSpec, TriggerCondition, TriggerLimit,
};
pub use trigger_status::{ProfileTriggerStatus, SeenAlert, TriggeredRequest};

/// The namespace label that lets requests of that namespace be accepted.
pub const NAMESPACE_LABEL: &str = "phpprof.dev/profiling";
/// The value of [`NAMESPACE_LABEL`] that opts in.
pub const NAMESPACE_ENABLED: &str = "enabled";
/// The value of [`NAMESPACE_LABEL`] that stops what runs and holds what is asked for.
pub const NAMESPACE_DISABLED: &str = "disabled";
/// Who has asked for a request, as the API server knows them: an annotation that a policy of the
/// chart holds true.
pub const REQUESTED_BY: &str = "phpprof.dev/requested-by";
/// The label of a request with the name of the ProfileTrigger that has created it.
pub const TRIGGER_LABEL: &str = "phpprof.dev/trigger";

/// Condition types of a ProfileRequest; `kubectl wait --for=condition=…` works on each.
pub mod condition {
    /// Whether samplers are, or were, to be started for it.
    pub const ACCEPTED: &str = "Accepted";
    /// Whether it has ended, and with a profile where there is anything to show.
    pub const COMPLETE: &str = "Complete";
    /// Whether it has ended without a profile.
    pub const FAILED: &str = "Failed";
}

/// Condition types of a ProfileComparison.
pub mod comparison_condition {
    /// Whether it has ended.
    pub const COMPLETE: &str = "Complete";
    /// Whether HTTP requests take more time than is accepted; unknown without a verdict.
    pub const REGRESSED: &str = "Regressed";
}

/// The condition type of a ProfileTrigger.
pub mod trigger_condition {
    /// Whether the last alerts with its labels have started a request.
    pub const FIRED: &str = "Fired";
}

/// The CustomResourceDefinition of a kind as YAML, with a line that says where it comes from.
pub fn crd_yaml<K: kube::CustomResourceExt>() -> Result<String, serde_yaml::Error> {
    let yaml = serde_yaml::to_string(&K::crd())?;
    Ok(format!(
        "# Generated from crds/src by `make generate`; do not edit.\n{yaml}"
    ))
}
