//! The state of all requests together: which run, which wait, and how many samplers each node has.
//!
//! Invariant: a request that this operator has accepted or finished counts as such at once, even if
//! the watch is behind. It is pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DeserializeGuard;
use phpprof_crds::ProfileRequest;
use phpprof_decide::limits::AdminLimits;

use crate::lifecycle::queue::{Places, RequestQueue, WaitingRequest};
use crate::lifecycle::status::{is_running, is_terminal};
use crate::reconcile::ledger::Ledger;
use crate::reconcile::watches::{RequestRef, reference};

/// The current state.
pub struct Fleet {
    pub line: RequestQueue,
    /// Samplers that run or are about to, by node.
    pub samplers: BTreeMap<String, usize>,
    references: HashMap<String, RequestRef>,
}

impl Fleet {
    /// From the requests that the watch has shown, and from what the operator knows better.
    pub fn of(
        known: &[Arc<DeserializeGuard<ProfileRequest>>],
        ledger: &Ledger,
        limits: &AdminLimits,
    ) -> Self {
        let known = known.iter().filter_map(|request| request.0.as_ref().ok());
        let mut running: HashMap<String, &ProfileRequest> = HashMap::new();
        let (mut waiting, mut references) = (Vec::new(), HashMap::new());
        let ended = ledger.ended();
        for request in known {
            let uid = request.uid().unwrap_or_default();
            if is_running(request) && !ended.contains(&*uid) {
                running.insert(uid, request);
            } else if may_run(request) {
                references.insert(uid, reference(request));
                waiting.push(in_line(request));
            }
        }
        let own = ledger.running();
        running.extend(own.map(|request| (request.uid().unwrap_or_default(), request)));
        waiting.retain(|one| !running.contains_key(&one.uid));
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut samplers: BTreeMap<String, usize> = BTreeMap::new();
        for request in running.values() {
            *counts
                .entry(request.namespace().unwrap_or_default())
                .or_default() += 1;
            let targets = request.status.iter().flat_map(|status| &status.targets);
            for target in targets.filter(|target| !is_terminal(target)) {
                *samplers.entry(target.node_name.clone()).or_default() += 1;
            }
        }
        let places = Places {
            of_namespace: limits.requests_of_namespace,
            of_cluster: limits.requests_of_cluster,
        };
        Fleet {
            line: RequestQueue::of(waiting, &counts, &ledger.served(), places),
            samplers,
            references,
        }
    }

    /// The requests whose turn it is.
    pub fn next(&self) -> impl Iterator<Item = &RequestRef> {
        let next = self.line.next();
        next.filter_map(|next| self.references.get(&next.uid))
    }
}

/// Whether the request needs a place.
fn may_run(request: &ProfileRequest) -> bool {
    let status = request.status.as_ref();
    let is_new = status.is_none_or(|it| it.start_time.is_none() && it.completion_time.is_none());
    let stays = request.metadata.deletion_timestamp.is_none();
    is_new && stays && !request.spec.suspend && !request.spec.cancel
}

fn in_line(request: &ProfileRequest) -> WaitingRequest {
    let created = request.metadata.creation_timestamp.as_ref();
    WaitingRequest {
        created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        namespace: request.namespace().unwrap_or_default(),
        uid: request.uid().unwrap_or_default(),
    }
}
