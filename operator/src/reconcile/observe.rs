//! Reads everything that `decide` needs for one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, PartialObjectMeta};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{NAMESPACE_LABEL, ProfileRequest, RequestReason};
use phpprof_decide::namespace::{by_label, is_disabled, is_enabled};
use phpprof_decide::pod::view;
use phpprof_decide::select::candidates;

use crate::lifecycle::observed::{
    Admission, Halt, ObservedCluster, PodView, RequestRefusal, StoreWrites,
};
use crate::lifecycle::queue::QueuePosition;
use crate::lifecycle::status::is_terminal;
use crate::reconcile::calls::call;
use crate::reconcile::context::Context;
use crate::reconcile::ledger::LedgerEntry;
use crate::reconcile::resolve::{NamedPods, Unresolved, Versions, resolve, version, versions};
use crate::reconcile::watches::{WatchError, reference};
use crate::storage::store::{ProfileStore, StoreError};

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("reading namespace {0} failed")]
    Namespace(String, #[source] kube::Error),
    #[error("resolving the target failed")]
    Target(#[source] kube::Error),
    #[error("reading the size of the stored profiles of namespace {0} failed")]
    Store(String, #[source] StoreError),
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("the API server has a newer state of the target's pods than its watch shows")]
    Behind,
}

/// The state of the cluster that concerns the request. A finished request needs none.
pub async fn observe(
    context: &Context,
    request: &ProfileRequest,
) -> Result<ObservedCluster, ObserveError> {
    let status = request.status.clone().unwrap_or_default();
    let remembered = context.ledger().get(request).map(LedgerEntry::remembered);
    let remembered = remembered.unwrap_or_default();
    if request.metadata.deletion_timestamp.is_some() || status.completion_time.is_some() {
        return Ok(remembered);
    }
    let held_back = request.spec.suspend || request.spec.cancel;
    if status.start_time.is_none() && held_back {
        return Ok(ObservedCluster::default());
    }
    let halted = context
        .cluster
        .halts
        .of(&request.namespace().unwrap_or_default());
    if status.start_time.is_none() {
        return candidate(context, request, halted).await;
    }
    if status.targets.iter().all(is_terminal) {
        // The rest of the work needs only the store.
        return Ok(remembered);
    }
    let is_chosen = |pod: &Arc<Pod>| {
        let uid = pod.metadata.uid.as_deref();
        let mut targets = status.targets.iter();
        targets.any(|target| Some(target.pod_uid.as_str()) == uid)
    };
    let pods = pods(context, request).await?;
    let pods = pods.iter().filter(|pod| is_chosen(pod));
    let pods = pods.map(|pod| view(pod)).map(|pod| (pod.uid.clone(), pod));
    let mut pods: BTreeMap<String, PodView> = pods.collect();
    let (now, mut ledger) = (context.now(), context.ledger());
    let entry = ledger.entry(request);
    pods.values_mut().for_each(|pod| entry.complete(pod, now));
    let silent_since = status.targets.iter().filter_map(|target| {
        let pod = pods.get(&target.pod_uid)?;
        let heard = context.contact.heard.last(&pod.uid);
        let since = entry.silent_since(target, pod, heard, now)?;
        Some((pod.uid.clone(), since))
    });
    Ok(ObservedCluster {
        silent_since: silent_since.collect(),
        pods,
        halted,
        ..remembered
    })
}

/// The pods of the request's namespace, which are watched from now on.
async fn pods(context: &Context, request: &ProfileRequest) -> Result<Vec<Arc<Pod>>, WatchError> {
    let subscribe = || context.cluster.watches.subscribe(&reference(request));
    let subscription = context.ledger().entry(request).pods(subscribe);
    subscription.pods().await
}

/// What the acceptance of a request depends on: its namespace's label, then its turn, and only then
/// the pods.
async fn candidate(
    context: &Context,
    request: &ProfileRequest,
    halted: Option<Halt>,
) -> Result<ObservedCluster, ObserveError> {
    let stopped = |halted| ObservedCluster {
        halted: Some(halted),
        ..ObservedCluster::default()
    };
    if let Some(halt) = halted {
        return Ok(stopped(halt));
    }
    let namespace = request.namespace().unwrap_or_default();
    let (namespace_enabled, namespace_uid) = match context.cluster.halts.enabled(&namespace) {
        Some(uid) => (true, uid),
        None => {
            let metadata = metadata(context, &namespace).await?;
            let label = metadata.labels().get(NAMESPACE_LABEL).map(String::as_str);
            if is_disabled(label) {
                return Ok(stopped(Halt::Stopped(by_label())));
            }
            let uid = metadata.uid().unwrap_or_default();
            (is_enabled(label), uid)
        }
    };
    let mut admission = Admission {
        namespace_uid,
        namespace_enabled,
        stored_bytes: 0,
        store: store_writes(&context.storage.store),
        samplers: BTreeMap::new(),
        waits_since: context.ledger().entry(request).candidate(context.now()),
        matched: Ok(Vec::new()),
    };
    if may_be_profiled(context, &admission) {
        admission.stored_bytes = stored_bytes(context, &namespace).await?;
    }
    let mut observed = ObservedCluster {
        admission: Some(admission),
        ..ObservedCluster::default()
    };
    confirm(context, request, &mut observed);
    if let Some(admission) = &mut observed.admission
        && may_be_profiled(context, admission)
    {
        admission.matched = matched(context, &namespace, request).await?;
    }
    Ok(observed)
}

/// What a store is known to do with a write of an existing object.
fn store_writes(store: &ProfileStore) -> StoreWrites {
    let health = store.health();
    match (store.is_refused(), health.writes.is_unsafe()) {
        (true, _) => StoreWrites::Refused(health.words()),
        (false, true) => StoreWrites::ByOperator,
        (false, false) => StoreWrites::CreateOnly,
    }
}

/// Whether the namespace allows new profiles.
fn may_be_profiled(context: &Context, admission: &Admission) -> bool {
    let is_open = admission.namespace_enabled || !context.policy.limits.namespace_opt_in;
    is_open && !context.policy.limits.is_full(admission.stored_bytes)
}

/// Makes no call if there is no limit.
async fn stored_bytes(context: &Context, namespace: &str) -> Result<u64, ObserveError> {
    let Some(allowed) = context.policy.limits.bytes_of_namespace else {
        return Ok(0);
    };
    let counted = context
        .storage
        .usage
        .bytes(namespace, allowed, context.now())
        .await;
    counted.map_err(|error| ObserveError::Store(namespace.to_owned(), error))
}

/// Checks again what may have changed since: whether it is still the request's turn, and how many
/// samplers each node has.
pub fn confirm(context: &Context, request: &ProfileRequest, observed: &mut ObservedCluster) {
    let Some(admission) = &mut observed.admission else {
        return;
    };
    let (fleet, uid) = (context.fleet(), request.uid().unwrap_or_default());
    admission.samplers = fleet.samplers;
    // A request that will be refused does not wait for its turn.
    if may_be_profiled(context, admission)
        && let QueuePosition::Wait { place, of } = fleet.line.turn(&uid)
    {
        let now = context.now();
        let queued = context.ledger().entry(request).queued(place, of, now);
        *observed = ObservedCluster {
            queued: Some(queued),
            ..ObservedCluster::default()
        };
    }
}

async fn metadata(
    context: &Context,
    namespace: &str,
) -> Result<PartialObjectMeta<Namespace>, ObserveError> {
    let namespaces = Api::<Namespace>::all(context.cluster.client.clone());
    let asked = call(|| namespaces.get_metadata(namespace)).await;
    asked.map_err(|error| ObserveError::Namespace(namespace.to_owned(), error))
}

async fn matched(
    context: &Context,
    namespace: &str,
    request: &ProfileRequest,
) -> Result<Result<Vec<PodView>, RequestRefusal>, ObserveError> {
    let (client, target) = (&context.cluster.client, &request.spec.target);
    let named = match resolve(client, namespace, target).await {
        Ok(named) => named,
        Err(Unresolved::Refused(refusal)) => return Ok(Err(refusal)),
        Err(Unresolved::Failed(error)) => return Err(ObserveError::Target(error)),
    };
    let pods = pods(context, request).await?;
    let is_named = |pod: &PodView| match &named {
        NamedPods::Pod(name) => pod.name == *name,
        NamedPods::Pods(listed) => listed.contains_key(&pod.uid),
    };
    let views = pods.iter().map(|pod| view(pod)).filter(is_named);
    let mut matched: Vec<PodView> = views.collect();
    matched.sort_by(|one, other| one.name.cmp(&other.name));
    if candidates(target, &matched).is_ok() {
        return Ok(Ok(matched));
    }
    // The request would be refused, which is final. So the watch has to show all that the API
    // server has.
    let listed = match named {
        NamedPods::Pods(listed) => listed,
        NamedPods::Pod(name) => {
            let only = ListParams::default().fields(&format!("metadata.name={name}"));
            let listed = versions(client, namespace, only).await;
            let listed = listed.map_err(ObserveError::Target)?;
            if listed.is_empty() {
                return Ok(Err(RequestRefusal {
                    reason: RequestReason::NoPodsMatched,
                    message: format!("pod {name} does not exist in namespace {namespace}"),
                }));
            }
            listed
        }
    };
    if is_behind(&pods, &listed) {
        Err(ObserveError::Behind)
    } else {
        Ok(Ok(matched))
    }
}

/// Whether a watch with these pods lacks one of those listed, or its listed version.
fn is_behind(pods: &[Arc<Pod>], listed: &Versions) -> bool {
    let shown: Versions = pods.iter().filter_map(|pod| version(&**pod)).collect();
    let is_shown = |(uid, version): (&String, &Option<u64>)| {
        shown.get(uid).is_some_and(|shown| shown >= version)
    };
    !listed.iter().all(is_shown)
}

#[cfg(test)]
mod tests;
