//! What is decided of a sampler and the pod that gets it, as values.

use std::net::IpAddr;

use jiff::Timestamp;
use phpprof_crds::UploadMode;

/// What the names of our ephemeral containers begin with.
pub const SAMPLER_PREFIX: &str = "phpprof-";

/// A sampler and the pod that gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    /// What the pod is seen as where nothing changes that.
    pub pod_addresses: Vec<IpAddr>,
    pub container_name: String,
    /// With the runtime's scheme.
    pub container_id: String,
    pub ephemeral_container_name: String,
    pub object_key: String,
    /// How often it stores what it has sampled so far, and under which keys, in their order; none in a short run.
    pub checkpoint_seconds: i32,
    pub checkpoint_keys: Vec<String>,
    pub upload_mode: UploadMode,
    pub duration_seconds: i32,
    pub samples_per_second: i32,
    pub include_idle: bool,
    pub not_after: Timestamp,
    pub upload_until: Timestamp,
    pub mode: Mode,
}

/// The two ways to be allowed to read the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The target's uid and gid, no capability: passes Pod Security `restricted`.
    SameUser { uid: i64, gid: i64 },
    /// Root with SYS_PTRACE and nothing else.
    Ptrace { user_known: bool },
}
