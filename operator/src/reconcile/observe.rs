//! Reads what `decide` has to know of one request.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{NAMESPACE_ENABLED, NAMESPACE_LABEL, ProfileRequest, Reason};

use crate::decide::observed::{Admission, Observed, PodView, Refusal, SamplerState, SamplerView};
use crate::reconcile::context::Context;
use crate::reconcile::resolve::{Named, Unresolved, resolve};
use crate::reconcile::view::view;
use crate::reconcile::watches::{RequestRef, WatchError};

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("reading namespace {0} failed")]
    Namespace(String, #[source] kube::Error),
    #[error("resolving the target failed")]
    Target(#[source] kube::Error),
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// The cluster as far as the request is concerned; a finished request needs nothing.
pub async fn observe(
    context: &Context,
    request: &ProfileRequest,
    reference: &RequestRef,
) -> Result<Observed, ObserveError> {
    let status = request.status.clone().unwrap_or_default();
    let uid = request.uid().unwrap_or_default();
    let store_trouble = context.expectations.trouble(&uid);
    if request.metadata.deletion_timestamp.is_some() || status.completion_time.is_some() {
        return Ok(Observed {
            store_trouble,
            ..Observed::default()
        });
    }
    let held_back = request.spec.suspend || request.spec.cancel;
    if status.start_time.is_none() && held_back {
        return Ok(Observed::default());
    }
    if status.start_time.is_none() {
        let admission = Some(admission(context, request, reference).await?);
        return Ok(Observed {
            admission,
            ..Observed::default()
        });
    }
    let pods = context
        .watches
        .pods(&request.namespace().unwrap_or_default(), reference)
        .await?;
    let chosen = |pod: &Arc<Pod>| {
        let uid = pod.metadata.uid.as_deref();
        status
            .targets
            .iter()
            .any(|target| Some(target.pod_uid.as_str()) == uid)
    };
    let view_of = |pod: &Arc<Pod>| with_recent_injection(context, &uid, view(pod));
    let pods = pods
        .iter()
        .filter(|pod| chosen(pod))
        .map(view_of)
        .map(|pod| (pod.uid.clone(), pod));
    Ok(Observed {
        pods: pods.collect(),
        store_trouble,
        under_way: context.jobs.under_way(&uid),
        stopped: context.expectations.stopped(&uid),
        ..Observed::default()
    })
}

/// A watch is a moment behind: what was injected since must not be injected again.
fn with_recent_injection(context: &Context, request_uid: &str, mut pod: PodView) -> PodView {
    if let Some(injected) = context.expectations.injected(request_uid, &pod.uid) {
        let state = SamplerState::Waiting {
            reason: String::new(),
            message: String::new(),
        };
        let sampler = SamplerView {
            deadlines: Some(injected.deadlines),
            state,
        };
        pod.samplers.entry(injected.name).or_insert(sampler);
    }
    pod
}

async fn admission(
    context: &Context,
    request: &ProfileRequest,
    reference: &RequestRef,
) -> Result<Admission, ObserveError> {
    let name = request.namespace().unwrap_or_default();
    let namespace = Api::<Namespace>::all(context.client.clone())
        .get_metadata(&name)
        .await;
    let namespace = namespace.map_err(|error| ObserveError::Namespace(name.clone(), error))?;
    let namespace_enabled = namespace
        .labels()
        .get(NAMESPACE_LABEL)
        .is_some_and(|value| value == NAMESPACE_ENABLED);
    if context.limits.namespace_opt_in && !namespace_enabled {
        return Ok(Admission {
            namespace_enabled,
            matched: Ok(Vec::new()),
        });
    }
    let matched = matched(context, &name, request, reference).await?;
    Ok(Admission {
        namespace_enabled,
        matched,
    })
}

async fn matched(
    context: &Context,
    namespace: &str,
    request: &ProfileRequest,
    reference: &RequestRef,
) -> Result<Result<Vec<PodView>, Refusal>, ObserveError> {
    let named = match resolve(&context.client, namespace, &request.spec.target).await {
        Ok(named) => named,
        Err(Unresolved::Refused(refusal)) => return Ok(Err(refusal)),
        Err(Unresolved::Failed(error)) => return Err(ObserveError::Target(error)),
    };
    let pods = context.watches.pods(namespace, reference).await?;
    let views: BTreeMap<String, PodView> = pods
        .iter()
        .map(|pod| view(pod))
        .map(|pod| (pod.name.clone(), pod))
        .collect();
    let matched: Vec<PodView> = match named {
        Named::Pod(name) => views.get(&name).cloned().into_iter().collect(),
        Named::Uids(uids) => views
            .into_values()
            .filter(|pod| uids.contains(&pod.uid))
            .collect(),
    };
    if matched.is_empty() {
        let message = match &request.spec.target.pod_name {
            Some(pod) => {
                format!("pod {pod} does not exist in namespace {namespace}; see kubectl get pods")
            }
            None => format!(
                "the target's pods in namespace {namespace} have gone; apply the request again"
            ),
        };
        return Ok(Err(Refusal {
            reason: Reason::NoPodsMatched,
            message,
        }));
    }
    Ok(Ok(matched))
}
