//! The state of all requests together: which run, which wait, and how many samplers each node has.
//!
//! Invariant: a request that this operator has accepted or finished counts as such at once, even if the watch is behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use phpprof_crds::ProfileRequest;

use crate::decide::queue::{Line, Places, Waiting};
use crate::decide::status::{is_running, is_terminal};
use crate::reconcile::context::Context;
use crate::reconcile::watches::RequestRef;

/// The current state.
pub struct Fleet {
    pub line: Line,
    /// Samplers that run or are about to, by node.
    pub samplers: BTreeMap<String, usize>,
    references: HashMap<String, RequestRef>,
}

impl Fleet {
    pub fn of(context: &Context) -> Self {
        let known = context.requests.all();
        let known = known.iter().filter_map(|request| request.0.as_ref().ok());
        let mut running: HashMap<String, Arc<ProfileRequest>> = HashMap::new();
        let (mut waiting, mut references) = (Vec::new(), HashMap::new());
        let ended = context.running.ended();
        for request in known {
            let uid = request.uid().unwrap_or_default();
            if is_running(request) && !ended.contains(&uid) {
                running.insert(uid, Arc::new(request.clone()));
            } else if may_run(request) {
                references.insert(uid, reference(request));
                waiting.push(in_line(request));
            }
        }
        running.extend(context.running.all());
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
            of_namespace: context.limits.requests_of_namespace,
            of_cluster: context.limits.requests_of_cluster,
        };
        Fleet {
            line: Line::of(waiting, &counts, &context.running.served(), places),
            samplers,
            references,
        }
    }

    /// Triggers a reconciliation of the requests whose turn it is, because a place is free.
    pub fn call_next(context: &Context) {
        let fleet = Fleet::of(context);
        for next in fleet.line.next() {
            if let Some(reference) = fleet.references.get(&next.uid) {
                context.watches.look_again(reference.clone());
            }
        }
    }
}

/// Whether the request needs a place.
fn may_run(request: &ProfileRequest) -> bool {
    let status = request.status.as_ref();
    let is_new = status.is_none_or(|it| it.start_time.is_none() && it.completion_time.is_none());
    let stays = request.metadata.deletion_timestamp.is_none();
    is_new && stays && !request.spec.suspend && !request.spec.cancel
}

fn in_line(request: &ProfileRequest) -> Waiting {
    let created = request.metadata.creation_timestamp.as_ref();
    Waiting {
        created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        namespace: request.namespace().unwrap_or_default(),
        uid: request.uid().unwrap_or_default(),
    }
}

/// The reference that triggers the controller for a request.
pub(crate) fn reference(request: &ProfileRequest) -> RequestRef {
    ObjectRef::new(&request.name_any()).within(&request.namespace().unwrap_or_default())
}
