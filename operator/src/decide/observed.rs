//! The observed state as plain values: everything that `decide` may know of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
pub use phpprof_decide::Refusal;
pub use phpprof_decide::pod::{PodView, SamplerDeadlines, SamplerKind, SamplerState, SamplerView};

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
    /// What the store had last of the receipts of resident samplers, by the uid of the pod.
    pub receipts: BTreeMap<String, ReceiptRead>,
}

/// What the store had of a run's receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRead {
    /// Whatever was put there; nothing where there is none yet.
    pub message: Option<String>,
    pub at: Timestamp,
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
