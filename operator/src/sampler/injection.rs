//! What is decided of a sampler and the pod that gets it, as values.

use std::net::IpAddr;

use jiff::Timestamp;
use phpprof_crds::{Filter, RequestLabel, UploadMode};
pub use phpprof_decide::mode::Mode;
pub use phpprof_decide::pod::{SAMPLER_PREFIX, bare_id};

/// A sampler and the pod that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub subject: Subject,
    pub ephemeral_container_name: String,
    pub mode: Mode,
    pub task: Task,
}

/// The container that is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    /// What the pod is seen as where nothing changes that.
    pub pod_addresses: Vec<IpAddr>,
    pub container_name: String,
    /// With the runtime's scheme.
    pub container_id: String,
}

/// What a sampler is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// One run.
    Once(Box<Run>),
    /// It stays, and asks for its runs.
    Resident(Residence),
}

/// One request, as far as one pod is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub object_key: String,
    /// How often it stores what it has sampled so far, and under which keys, in their order; none in a short run.
    pub checkpoint_seconds: i32,
    pub checkpoint_keys: Vec<String>,
    /// Of its list of HTTP requests, where it makes one.
    pub requests_key: Option<String>,
    pub upload_mode: UploadMode,
    pub duration_seconds: i32,
    pub samples_per_second: i32,
    pub include_idle: bool,
    /// What heaps do is told too.
    pub heap: bool,
    pub is_snapshot: bool,
    /// Each second is brought to the relay, too.
    pub is_live: bool,
    /// What is told and kept of HTTP requests.
    pub labels: Vec<RequestLabel>,
    pub filter: Option<Filter>,
    pub not_after: Timestamp,
    pub upload_until: Timestamp,
}

/// What a resident sampler is given at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residence {
    /// The relay must have answered it once by then, counted from its start.
    pub first_answer_seconds: i64,
    /// It ends where it had no run for so long.
    pub idle_seconds: i64,
    /// It may ask with what its pod's object shows until then.
    pub ask_until: Timestamp,
}
