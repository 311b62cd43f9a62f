//! The observed state as plain values: everything that `decide` may know of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
pub use phpprof_decide::RequestRefusal;
pub use phpprof_decide::pod::{PodView, SamplerDeadlines, SamplerKind, SamplerState, SamplerView};

use crate::lifecycle::effect::JobKey;

/// The cluster as far as one request is concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedCluster {
    /// Only for a request that is not accepted yet.
    pub admission: Option<Admission>,
    /// Pods of the request's targets, by uid. A pod that is not in the map does not exist.
    pub pods: BTreeMap<String, PodView>,
    /// The store failed a moment ago.
    pub store_trouble: Option<StoreTrouble>,
    /// Why no sampler is added now.
    pub halted: Option<Halt>,
    /// Only for a request that waits for its turn.
    pub queued: Option<Queued>,
    /// The cluster could not be observed.
    pub blind: Option<Blind>,
    /// What jobs work on that have begun and whose outcome is not known yet.
    pub under_way: BTreeSet<JobKey>,
    /// Uids of pods whose samplers were told to stop.
    pub stopped: BTreeSet<String>,
    /// Since when nothing was heard from the sampler that runs in each pod, by the uid of the pod.
    pub silent_since: BTreeMap<String, Timestamp>,
    /// The receipts of resident samplers' runs as last read from the store, by the uid of the pod.
    pub receipts: BTreeMap<String, ReceiptRead>,
}

/// Why no request is accepted and no sampler is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The administrator or the namespace's label has stopped profiling, as the text says. Samplers
    /// that run stop too.
    Stopped(String),
    /// The operator has not read yet whether the administrator has stopped profiling. Samplers that
    /// run continue.
    Unknown,
}

impl Halt {
    /// Why, for a status.
    pub fn why(&self) -> &str {
        match self {
            Halt::Stopped(why) => why,
            Halt::Unknown => {
                "the operator has not read yet whether the administrator has stopped profiling"
            }
        }
    }
}

/// The receipt of a run as read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRead {
    /// The object's content, whatever it is; `None` if there is none yet.
    pub message: Option<String>,
    pub at: Timestamp,
}

/// What a request's acceptance depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// The uid of the request's namespace.
    pub namespace_uid: String,
    /// Whether the namespace has the opt-in label.
    pub namespace_enabled: bool,
    /// Bytes that the namespace has in the store; 0 if it has no limit.
    pub stored_bytes: u64,
    /// What may be written to the store.
    pub store: StoreWrites,
    /// Samplers of all requests, by node.
    pub samplers: BTreeMap<String, usize>,
    /// When the operator first saw the request.
    pub waits_since: Timestamp,
    /// The pods that match the target, or why there can be none.
    pub matched: Result<Vec<PodView>, RequestRefusal>,
}

/// What may be written to the store, as far as its answers have shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreWrites {
    /// New objects, also with a grant. A store of which nothing is known counts as such: each write
    /// has the precondition.
    #[default]
    CreateOnly,
    /// The store would overwrite, and the administrator allows it: objects by the operator alone,
    /// which looks first.
    ByOperator,
    /// The store would overwrite, and the administrator does not allow it. Has what was found.
    Refused(&'static str),
}

/// The store did not answer. This is kept in memory only, so a restarted operator tries at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTrouble {
    pub message: String,
    pub retry_at: Timestamp,
}

/// A request's place in the queue, as last written to its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub place: usize,
    pub of: usize,
    pub since: Timestamp,
}

/// The API server did not give what a decision needs. This is kept in memory only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// The API server's message.
    pub message: String,
    pub since: Timestamp,
    pub retry_at: Timestamp,
}
