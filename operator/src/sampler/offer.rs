//! What a resident sampler and the relay say to each other: its question, and the runs that it is offered (`contract/runs.json`).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::sampler::grant::Grant;

/// A resident sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub namespace: String,
    pub pod_uid: String,
    /// As `source::named` writes them.
    pub pod_addresses: String,
    pub ephemeral_container_name: String,
}

/// What lets a sampler ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ask {
    pub url: String,
    pub headers: BTreeMap<String, String>,
    /// Of the relay's keys.
    pub pins: Vec<String>,
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub ask_again_seconds: i64,
    /// The next question is kept open for so long, until there is something to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<i64>,
    pub lease_seconds: i64,
    pub ask: Ask,
    pub runs: Vec<OfferedRun>,
}

/// A run, as the container of a sampler of one run would be given it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OfferedRun {
    /// Of its profile: the run's name.
    pub key: String,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub receipt: Grant,
}
