//! The requests of a comparison: those that its spec names, and those that it creates.
//!
//! Invariant: what is created follows from the comparison alone, so creating it again creates
//! nothing else.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};
use phpprof_crds::{
    ComparedRequest, ComparisonSide, ProfileComparison, ProfileComparisonStatus, ProfileRequest,
    REQUESTED_BY, RequestLabel,
};
use serde_json::json;

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideName {
    /// The earlier release.
    Before,
    /// The later one.
    After,
}

impl SideName {
    /// Both, in order.
    pub const BOTH: [Self; 2] = [Self::Before, Self::After];

    /// As in the spec.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    /// The spec of this side.
    #[must_use]
    pub fn spec(self, comparison: &ProfileComparison) -> &ComparisonSide {
        match self {
            Self::Before => &comparison.spec.before,
            Self::After => &comparison.spec.after,
        }
    }

    /// What the status says of this side.
    #[must_use]
    pub fn status(self, status: &ProfileComparisonStatus) -> &ComparedRequest {
        match self {
            Self::Before => &status.before,
            Self::After => &status.after,
        }
    }

    /// The same, to change it.
    pub fn status_mut(self, status: &mut ProfileComparisonStatus) -> &mut ComparedRequest {
        match self {
            Self::Before => &mut status.before,
            Self::After => &mut status.after,
        }
    }

    /// Whether the comparison creates this side's request.
    #[must_use]
    pub fn is_created(self, comparison: &ProfileComparison) -> bool {
        self.spec(comparison).target.is_some()
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Before => Self::After,
            Self::After => Self::Before,
        }
    }

    /// The name of this side's request; empty of a stored run that is not chosen yet.
    #[must_use]
    pub fn request_name(self, comparison: &ProfileComparison) -> String {
        let spec = self.spec(comparison);
        match (&spec.request, &spec.archive) {
            (Some(request), _) => request.clone(),
            // It is chosen once, and the status has it.
            (None, Some(_)) => {
                let status = comparison.status.as_ref();
                status.map_or_else(String::new, |it| self.status(it).request.clone())
            }
            (None, None) => format!("{}-{}", comparison.name_any(), self.words()),
        }
    }
}

/// The request of a side with a target. It lists HTTP requests by route, because a verdict needs
/// them.
///
/// # Errors
/// The request has another form, which is a bug.
pub fn request_of(
    comparison: &ProfileComparison,
    side: SideName,
) -> Result<ProfileRequest, serde_json::Error> {
    let spec = &comparison.spec;
    let mut request: ProfileRequest = serde_json::from_value(json!({
        "apiVersion": ProfileRequest::api_version(&()),
        "kind": ProfileRequest::kind(&()),
        "metadata": {
            "name": side.request_name(comparison),
            "namespace": comparison.namespace(),
        },
        "spec": {
            "target": side.spec(comparison).target,
            "durationSeconds": spec.duration(),
            "samplesPerSecond": spec.rate(),
            "labels": [RequestLabel::Route],
            "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
        },
    }))?;
    // Who may have a resident sampler, and whom events name, is who created the comparison.
    let annotations = comparison.annotations();
    if let Some(by) = annotations.get(REQUESTED_BY) {
        request
            .annotations_mut()
            .insert(REQUESTED_BY.to_owned(), by.clone());
    }
    request.metadata.owner_references = Some(vec![owner(comparison)]);
    Ok(request)
}

/// The request of a stored run, as far as a comparison needs it. It may have been deleted, and only
/// what has a list of HTTP requests by route is chosen.
///
/// # Errors
/// The request has another form, which is a bug.
pub fn stored_request(
    comparison: &ProfileComparison,
    side: SideName,
    status: &ProfileComparisonStatus,
    namespace_uid: &str,
) -> Result<ProfileRequest, serde_json::Error> {
    let chosen = side.status(status);
    let run = side.spec(comparison).archive.as_ref();
    serde_json::from_value(json!({
        "apiVersion": ProfileRequest::api_version(&()),
        "kind": ProfileRequest::kind(&()),
        "metadata": {
            "name": chosen.request,
            "namespace": comparison.namespace(),
            "uid": chosen.request_uid,
        },
        "spec": {
            "target": {"workloadRef": run.map(|it| &it.workload_ref)},
            "labels": [RequestLabel::Route],
        },
        "status": {
            "namespaceUID": namespace_uid,
            "completionTime": status.start_time,
            "profile": {"url": "", "samples": 0, "sizeBytes": 0},
        },
    }))
}

/// Without `blockOwnerDeletion`, which would need the right to update the comparison's finalizers.
pub(super) fn owner(comparison: &ProfileComparison) -> OwnerReference {
    OwnerReference {
        api_version: ProfileComparison::api_version(&()).into_owned(),
        kind: ProfileComparison::kind(&()).into_owned(),
        name: comparison.name_any(),
        uid: comparison.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Whether the comparison has created this request.
#[must_use]
pub fn is_owned(request: &ProfileRequest, comparison: &ProfileComparison) -> bool {
    is_controlled(&request.metadata, comparison)
}

/// Whether an object says that the comparison is its controller.
pub(super) fn is_controlled(metadata: &ObjectMeta, comparison: &ProfileComparison) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    let uid = comparison.uid().unwrap_or_default();
    let is_owner = |owner: &OwnerReference| owner.controller == Some(true) && owner.uid == uid;
    !uid.is_empty() && owners.into_iter().any(is_owner)
}
