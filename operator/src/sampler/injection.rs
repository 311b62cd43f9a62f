//! What is decided about a sampler and its pod, as values.

use std::net::IpAddr;

use jiff::Timestamp;
use phpprof_crds::{Filter, RequestLabel, UploadMode};
pub use phpprof_decide::mode::ReadMode;
pub use phpprof_decide::pod::{SAMPLER_PREFIX, bare_id};

/// A sampler and its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub subject: Subject,
    pub ephemeral_container_name: String,
    pub mode: ReadMode,
    pub task: Task,
}

/// The container that is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    /// The addresses that the pod's connections have, if nothing translates them.
    pub pod_addresses: Vec<IpAddr>,
    pub container_name: String,
    /// With the container runtime's scheme.
    pub container_id: String,
}

/// The task of a sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// One run.
    Once(Box<PodRun>),
    /// It stays in the pod and asks for runs.
    Resident(Residence),
}

/// A request's work for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRun {
    pub object_key: String,
    /// The seconds between two checkpoints, and their keys, oldest first. Empty in a short run.
    pub checkpoint_seconds: i32,
    /// When each checkpoint is due, in seconds of sampling.
    pub checkpoint_times: Vec<i32>,
    pub checkpoint_keys: Vec<String>,
    /// The key of its list of HTTP requests, if it makes one.
    pub requests_key: Option<String>,
    pub upload_mode: UploadMode,
    pub duration_seconds: i32,
    pub samples_per_second: i32,
    pub include_idle: bool,
    /// Also records what the heaps do.
    pub heap: bool,
    /// Also shows suspended fibers.
    pub include_suspended: bool,
    pub is_snapshot: bool,
    /// It shows what is in the heaps instead.
    pub is_heap_snapshot: bool,
    /// It sends each second to the relay, too.
    pub is_live: bool,
    /// The labels and the filter of HTTP requests.
    pub labels: Vec<RequestLabel>,
    pub filter: Option<Filter>,
    pub not_after: Timestamp,
    pub upload_until: Timestamp,
}

/// What a resident sampler gets at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residence {
    /// The relay must answer it within this time after its start.
    pub first_answer_seconds: i64,
    /// It ends after this time without a run.
    pub idle_seconds: i64,
    /// Until when it may ask with the credential in its pod's object.
    pub ask_until: Timestamp,
}
