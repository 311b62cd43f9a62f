//! manifest.json: everything that is known of a request's profiles, beside them in the store.
//!
//! Invariant: it follows from the request's status alone, so that writing it twice writes the same bytes.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, ProfileResult, TargetStatus};
use serde::Serialize;

use crate::limits::later;

/// Profiles are kept at least this long, counted from the start of the request.
const RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    version: u32,
    namespace: String,
    name: String,
    uid: String,
    start_time: Timestamp,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<Merged<'a>>,
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
    let manifest = Manifest {
        version: 1,
        namespace: request.namespace().unwrap_or_default(),
        name: request.name_any(),
        uid: request.uid().unwrap_or_default(),
        start_time,
        expires_at: later(start_time, RETENTION),
        merged: merged.map(|(object_key, merged)| Merged {
            object_key,
            samples: merged.samples,
            size_bytes: merged.size_bytes,
        }),
        targets: status
            .map(|status| status.targets.as_slice())
            .unwrap_or_default(),
    };
    // Strings, numbers and lists always serialise.
    serde_json::to_vec_pretty(&manifest).unwrap_or_default()
}
