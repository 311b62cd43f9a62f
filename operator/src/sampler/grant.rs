//! What lets a sampler store its profile, as its environment has it.

use phpprof_crds::UploadRoute;
use serde::Serialize;

/// A create-only write of one key, for whoever holds it, and where to ask whether to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub route: UploadRoute,
    pub method: String,
    pub url: String,
    pub headers: std::collections::BTreeMap<String, String>,
    /// Empty for a checkpoint: its sampler asks where its whole profile belongs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop: String,
    /// Where it brings each second of a live request; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub live: String,
    /// Of the server's key; empty where a certificate authority vouches for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
}
