//! What a resident sampler and the relay tell each other: the question, and the offered runs
//! (`contract/runs.json`).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sampler::grant::KeyGrant;

/// A resident sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentPod {
    pub namespace: String,
    pub pod_uid: String,
    /// In the format of `source::named`.
    pub pod_addresses: String,
    pub ephemeral_container_name: String,
}

/// What a sampler needs to ask.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct PollGrant {
    pub url: String,
    pub headers: BTreeMap<String, String>,
    /// Pins of the relay's keys.
    pub pins: Vec<String>,
}

/// Only what is no grant.
impl std::fmt::Debug for PollGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// The answer to a resident sampler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunsOffer {
    pub ask_again_seconds: i64,
    /// The relay may hold the next question for this time, until there is something new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<i64>,
    pub lease_seconds: i64,
    pub ask: PollGrant,
    pub runs: Vec<OfferedRun>,
}

/// A run, with the arguments that the container of a one-time sampler would get.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct OfferedRun {
    /// The key of its profile, which is the run's name.
    pub key: String,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub receipt: KeyGrant,
}

/// Only what is not a grant.
impl std::fmt::Debug for OfferedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfferedRun")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
