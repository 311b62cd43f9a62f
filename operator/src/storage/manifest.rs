//! manifest.json: everything that is known of a request's profiles, beside them in the store.
//!
//! Invariant: it follows from the request alone, so that writing it twice writes the same bytes.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, ProfileResult, Target, TargetStatus};
use serde::Serialize;

use crate::decide::checkpoints::leftovers;
use crate::decide::limits::later;
use crate::sampler::object_keys::stop_key;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    version: u32,
    namespace: String,
    name: String,
    uid: String,
    #[serde(rename = "namespaceUID", skip_serializing_if = "Option::is_none")]
    namespace_uid: Option<&'a str>,
    target: &'a Target,
    duration_seconds: i32,
    start_time: Timestamp,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<Merged<'a>>,
    /// Objects that told samplers to stop, if there was one to tell over the store.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_keys: Vec<String>,
    /// Objects that samplers of long runs may have stored on their way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoint_keys: Vec<String>,
    targets: &'a [TargetStatus],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Merged<'a> {
    object_key: &'a str,
    samples: i64,
    size_bytes: i64,
}

/// The manifest's bytes; the merged profile goes with its key, where there is one.
pub fn manifest(request: &ProfileRequest, merged: Option<(&str, &ProfileResult)>) -> Vec<u8> {
    let status = request.status.as_ref();
    let start_time = status
        .and_then(|status| status.start_time.as_ref())
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let targets = status
        .map(|status| status.targets.as_slice())
        .unwrap_or_default();
    let stopped = request.spec.cancel || request.metadata.deletion_timestamp.is_some();
    let keys = targets.iter().filter(|_| stopped);
    let retention = SignedDuration::from_secs(request.spec.profile_retention_seconds.into());
    let manifest = Manifest {
        version: 1,
        namespace: request.namespace().unwrap_or_default(),
        name: request.name_any(),
        uid: request.uid().unwrap_or_default(),
        namespace_uid: status.and_then(|status| status.namespace_uid.as_deref()),
        target: &request.spec.target,
        duration_seconds: request.spec.duration_seconds,
        start_time,
        expires_at: later(start_time, retention),
        merged: merged.map(|(object_key, merged)| Merged {
            object_key,
            samples: merged.samples,
            size_bytes: merged.size_bytes,
        }),
        stop_keys: keys.map(|target| stop_key(&target.object_key)).collect(),
        checkpoint_keys: leftovers(request),
        targets,
    };
    // Strings, numbers and lists always serialise.
    serde_json::to_vec_pretty(&manifest).unwrap_or_default()
}
