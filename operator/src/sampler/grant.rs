//! What lets a sampler store its profile, in the format of its environment.

use phpprof_crds::UploadRoute;
use serde::Serialize;

/// Lets its holder write one key, which must not exist, and ask whether to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub route: UploadRoute,
    pub method: String,
    pub url: String,
    pub headers: std::collections::BTreeMap<String, String>,
    /// Where to ask whether to stop. Empty for a checkpoint: its sampler asks at the grant of the whole profile.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stop: String,
    /// Where to send each second of a live request; otherwise empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub live: String,
    /// Pins of the server's key. Empty if a certificate authority vouches for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pins: Vec<String>,
}
