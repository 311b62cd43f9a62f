//! What `observe` found out, as plain values: everything that `decide` may know of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use phpprof_crds::Reason;

use crate::decide::effect::Job;

/// The cluster as far as one request is concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Only for a request that is not accepted yet.
    pub admission: Option<Admission>,
    /// Pods of the request's targets by uid; those that are not here do not exist.
    pub pods: BTreeMap<String, PodView>,
    /// The store failed a moment ago.
    pub store_trouble: Option<StoreTrouble>,
    /// Why nothing is profiled now, in words: the administrator, or whose namespace it is, has stopped it.
    pub halted: Option<String>,
    /// Only for a request whose turn it is not.
    pub queued: Option<Queued>,
    /// Nothing of the cluster could be observed.
    pub blind: Option<Blind>,
    /// Work that was begun and whose outcome is not known yet.
    pub under_way: BTreeSet<Job>,
    /// Uids of pods whose samplers were told to stop.
    pub stopped: BTreeSet<String>,
}

/// What a request's acceptance depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// The uid of the request's namespace.
    pub namespace_uid: String,
    /// The namespace carries the opt-in label.
    pub namespace_enabled: bool,
    /// Of the namespace, in the store; 0 where there is no limit for it.
    pub stored_bytes: u64,
    /// Samplers of all requests, by node.
    pub samplers: BTreeMap<String, usize>,
    /// When the request was seen first.
    pub waits_since: Timestamp,
    /// The pods that the target names, or why there can be none.
    pub matched: Result<Vec<PodView>, Refusal>,
}

/// Why a request is refused, in the words of its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    pub message: String,
}

/// The store did not answer; kept in memory only, so that a restart tries at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    pub message: String,
    pub retry_at: Timestamp,
}

/// A request's place in the line, as it was told last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub place: usize,
    pub of: usize,
    pub since: Timestamp,
}

/// The API server did not say what a decision needs; kept in memory only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// With the API server's words.
    pub message: String,
    pub since: Timestamp,
    pub retry_at: Timestamp,
}

/// What matters of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub uid: String,
    pub node: String,
    pub addresses: Vec<IpAddr>,
    pub ready: bool,
    pub deleting: bool,
    /// The annotation kubectl.kubernetes.io/default-container.
    pub default_container: Option<String>,
    pub containers: Vec<ContainerView>,
    /// Every ephemeral container of ours, of any request, by name.
    pub samplers: BTreeMap<String, SamplerView>,
}

impl PodView {
    pub fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers
            .iter()
            .find(|container| container.name == name)
    }
}

/// What matters of an application's container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerView {
    pub name: String,
    /// With the runtime's scheme; empty where it never ran.
    pub id: String,
    pub running: bool,
    /// What it runs as, as far as the pod says it.
    pub uid: Option<i64>,
    pub gid: Option<i64>,
}

/// What matters of a sampler's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerView {
    /// From its arguments, which nobody can change; absent where they are not ours.
    pub deadlines: Option<SamplerDeadlines>,
    pub state: SamplerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerDeadlines {
    pub not_after: Timestamp,
    pub upload_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SamplerState {
    /// Not started; reason and message are the kubelet's, or empty.
    Waiting {
        reason: String,
        message: String,
    },
    Running,
    /// The message is whatever the container wrote: not trusted.
    Ended {
        exit_code: i32,
        message: String,
        at: Option<Timestamp>,
    },
}
