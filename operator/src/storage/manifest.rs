//! manifest.json: everything that is known about a request's profiles, stored next to them. Also
//! reads it again.
//!
//! Invariant: it follows from the request alone, so writing it twice writes the same bytes.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{
    ProfileRequest, ProfileResult, ProfileTarget, REQUESTED_BY, TargetState, TargetStatus,
};
use phpprof_decide::limits::later;
use serde::{Deserialize, Serialize};

use crate::lifecycle::checkpoints::{leftovers, whole_key};
use crate::sampler::object_keys::{MERGED, REQUESTS, stop_key};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    version: u32,
    namespace: String,
    name: String,
    uid: String,
    #[serde(rename = "namespaceUID", skip_serializing_if = "Option::is_none")]
    namespace_uid: Option<&'a str>,
    target: &'a ProfileTarget,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<&'a str>,
    duration_seconds: i32,
    start_time: Timestamp,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<MergedEntry<'a>>,
    /// The list of the pods' HTTP requests, beside the merged profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<StoredRequestList<'a>>,
    /// Objects that tell samplers to stop. They may exist whoever stopped them: the request, the
    /// administrator or the namespace's label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_keys: Vec<String>,
    /// Objects that samplers of long runs may have stored during the run, and receipts of resident
    /// samplers' runs. If the request was deleted, also what a merge that was under way stores
    /// after this manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoint_keys: Vec<String>,
    targets: &'a [TargetStatus],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MergedEntry<'a> {
    object_key: &'a str,
    samples: i64,
    size_bytes: i64,
}

/// A stored list of requests.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRequestList<'a> {
    pub object_key: &'a str,
    pub size_bytes: u64,
    /// The number of pods whose list is in it.
    pub pods: usize,
}

/// Enough for a hundred targets, their receipts and the keys of their checkpoints.
pub const LARGEST_MANIFEST: u64 = 4 << 20;

/// The part of a manifest that says what is stored of a request. Manifests of older operators have
/// neither target nor duration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRequest {
    pub name: String,
    pub uid: String,
    #[serde(default)]
    pub target: Option<ProfileTarget>,
    /// The name of the user who asked for it, if the request says it.
    #[serde(default)]
    pub requested_by: Option<String>,
    #[serde(default)]
    pub duration_seconds: Option<i32>,
    pub start_time: Timestamp,
    pub expires_at: Timestamp,
    #[serde(default)]
    pub merged: Option<StoredMerged>,
    /// Present if requests were listed.
    #[serde(default)]
    pub requests: Option<StoredRequests>,
    #[serde(default)]
    targets: Vec<StoredTarget>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredMerged {
    pub samples: i64,
    pub size_bytes: i64,
}

/// Only its presence matters.
#[derive(Deserialize)]
pub struct StoredRequests {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredTarget {
    pub pod_name: String,
    pub container_name: String,
    pub state: TargetState,
    #[serde(default)]
    pub object_key: String,
    #[serde(default)]
    pub samples: Option<i64>,
    #[serde(default)]
    pub size_bytes: Option<i64>,
}

impl StoredRequest {
    /// `None` if it is not a manifest of phpprof.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The targets that have a profile.
    pub fn uploaded(&self) -> impl Iterator<Item = &StoredTarget> {
        let targets = self.targets.iter();
        targets.filter(|target| target.state == TargetState::Uploaded)
    }
}

/// The manifest's bytes. It has the keys of the merged profile and the list of requests, if they
/// exist.
pub fn manifest(
    request: &ProfileRequest,
    merged: Option<(&str, &ProfileResult)>,
    requests: Option<StoredRequestList<'_>>,
) -> Vec<u8> {
    let status = request.status.as_ref();
    let start_time = status
        .and_then(|status| status.start_time.as_ref())
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let targets = status
        .map(|status| status.targets.as_slice())
        .unwrap_or_default();
    let stop = |target: &TargetStatus| stop_key(&whole_key(&target.object_key));
    let is_deleted = request.metadata.deletion_timestamp.is_some();
    let late = is_deleted.then(|| merged_beside(targets));
    let retention = SignedDuration::from_secs(request.spec.profile_retention_seconds.into());
    let manifest = Manifest {
        version: 1,
        namespace: request.namespace().unwrap_or_default(),
        name: request.name_any(),
        uid: request.uid().unwrap_or_default(),
        namespace_uid: status.and_then(|status| status.namespace_uid.as_deref()),
        target: &request.spec.target,
        requested_by: request.annotations().get(REQUESTED_BY).map(String::as_str),
        duration_seconds: request.spec.duration_seconds,
        start_time,
        expires_at: later(start_time, retention),
        merged: merged.map(|(object_key, merged)| MergedEntry {
            object_key,
            samples: merged.samples,
            size_bytes: merged.size_bytes,
        }),
        requests,
        stop_keys: targets.iter().map(stop).collect(),
        checkpoint_keys: [leftovers(request), late.unwrap_or_default()].concat(),
        targets,
    };
    // Serialising strings, numbers and lists cannot fail.
    serde_json::to_vec_pretty(&manifest).unwrap_or_default()
}

/// What a merge stores next to the profiles of these pods.
fn merged_beside(targets: &[TargetStatus]) -> Vec<String> {
    let mut folders = targets.iter().map(|it| it.object_key.rsplit_once('/'));
    let folder = folders.find_map(|split| Some(split?.0));
    let keys = folder.map(|folder| [MERGED, REQUESTS].map(|file| format!("{folder}/{file}")));
    keys.into_iter().flatten().collect()
}
