//! The request of an alert.
//!
//! Invariant: what is created follows from the trigger and the alert alone, so a repeated alert
//! creates nothing else.

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use phpprof_crds::{ProfileRequest, ProfileTrigger, REQUESTED_BY, TRIGGER_LABEL};

use crate::trigger::alerts::FiringAlert;

/// Bytes of the hash in a name. Of 50 requests, two have the same one in 10 of 10^12 cases.
const HASH: usize = 6;

/// The name of an alert's request. A later firing of the same alert has another one.
#[must_use]
pub fn request_name(trigger: &ProfileTrigger, alert: &FiringAlert) -> String {
    let uid = trigger.uid().unwrap_or_default();
    let of = format!("{uid}/{}/{}", alert.fingerprint, alert.starts_at);
    let hash = digest(&SHA256, of.as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .take(HASH)
        .map(|it| format!("{it:02x}"))
        .collect();
    format!("{}-{hash}", trigger.name_any())
}

/// The request of this name, by the trigger's template.
#[must_use]
pub fn request_of(trigger: &ProfileTrigger, name: &str) -> ProfileRequest {
    let mut request = ProfileRequest::new(name, trigger.spec.template.clone());
    request.metadata.namespace = trigger.namespace();
    let label = (TRIGGER_LABEL.to_owned(), trigger.name_any());
    request.labels_mut().extend([label]);
    // Whose rights a policy has checked, and whom events name, is who wrote the trigger.
    if let Some(by) = trigger.annotations().get(REQUESTED_BY) {
        let by = (REQUESTED_BY.to_owned(), by.clone());
        request.annotations_mut().extend([by]);
    }
    request.metadata.owner_references = Some(vec![owner(trigger)]);
    request
}

/// Without `blockOwnerDeletion`, which would need the right to update the trigger's finalizers.
fn owner(trigger: &ProfileTrigger) -> OwnerReference {
    OwnerReference {
        api_version: ProfileTrigger::api_version(&()).into_owned(),
        kind: ProfileTrigger::kind(&()).into_owned(),
        name: trigger.name_any(),
        uid: trigger.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Whether the trigger has created this request.
#[must_use]
pub fn is_created_by(request: &ProfileRequest, trigger: &ProfileTrigger) -> bool {
    let uid = trigger.uid().unwrap_or_default();
    let is_owner = |owner: &OwnerReference| owner.controller == Some(true) && owner.uid == uid;
    !uid.is_empty() && request.owner_references().iter().any(is_owner)
}
