//! Resolves a target to the pods that it names.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, Selector};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind};
use kube::{Client, ResourceExt};
use phpprof_crds::{ProfileTarget, RequestReason, WorkloadRef};

use crate::lifecycle::observed::RequestRefusal;
use crate::reconcile::calls::{call, call_for_page};
use crate::reconcile::watches::PAGE;

/// Which pods of the namespace a target names.
pub enum NamedPods {
    Pod(String),
    Pods(Versions),
}

/// The versions of pods, by uid. The API server counts them up, so a newer version is a greater
/// number.
pub type Versions = HashMap<String, Option<u64>>;

/// The uid of a pod, and its version.
pub fn version(pod: &impl ResourceExt) -> Option<(String, Option<u64>)> {
    let version = pod.resource_version();
    Some((pod.uid()?, version.and_then(|number| number.parse().ok())))
}

/// Why there are no pods: the target is refused for good, or the API server did not answer.
pub enum Unresolved {
    Refused(RequestRefusal),
    Failed(kube::Error),
}

impl From<kube::Error> for Unresolved {
    fn from(error: kube::Error) -> Self {
        Unresolved::Failed(error)
    }
}

fn refuse<T>(reason: RequestReason, message: String) -> Result<T, Unresolved> {
    Err(Unresolved::Refused(RequestRefusal { reason, message }))
}

/// Asks the API server for the pods that the target names.
pub async fn resolve(
    client: &Client,
    namespace: &str,
    target: &ProfileTarget,
) -> Result<NamedPods, Unresolved> {
    if let Some(name) = &target.pod_name {
        return Ok(NamedPods::Pod(name.clone()));
    }
    let selector = match (&target.selector, &target.workload_ref) {
        (Some(selector), _) => labels(selector.clone())?,
        (None, Some(workload)) => selector_of(client, namespace, workload).await?,
        (None, None) => {
            return refuse(
                RequestReason::NoPodsMatched,
                "the target names nothing".to_owned(),
            );
        }
    };
    let listed = versions(client, namespace, ListParams::default().labels(&selector)).await;
    let pods = match listed {
        Ok(pods) => pods,
        Err(kube::Error::Api(status)) if status.code == 400 => {
            return refuse(
                RequestReason::NoPodsMatched,
                format!("the selector {selector} is not valid: {}", status.message),
            );
        }
        Err(error) => return Err(error.into()),
    };
    if pods.is_empty() {
        return refuse(
            RequestReason::NoPodsMatched,
            format!("no pod of namespace {namespace} matches {selector}"),
        );
    }
    Ok(NamedPods::Pods(pods))
}

/// Lists in pages, so that few objects are in memory at once.
pub async fn versions(
    client: &Client,
    namespace: &str,
    which: ListParams,
) -> Result<Versions, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut params = which.limit(PAGE);
    let mut versions = Versions::new();
    loop {
        let page = call_for_page(|| pods.list_metadata(&params)).await?;
        versions.extend(page.items.iter().filter_map(version));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(versions),
        }
    }
}

fn labels(selector: LabelSelector) -> Result<String, Unresolved> {
    match Selector::try_from(selector) {
        Ok(selector) => Ok(selector.to_string()),
        Err(error) => refuse(
            RequestReason::NoPodsMatched,
            format!("the selector is not valid: {error}"),
        ),
    }
}

async fn selector_of(
    client: &Client,
    namespace: &str,
    workload: &WorkloadRef,
) -> Result<String, Unresolved> {
    let (resource, capabilities) = discover(client, workload).await?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let scalable = capabilities
        .subresources
        .iter()
        .any(|(resource, _)| resource.plural.ends_with("scale"));
    let selector = if scalable {
        let scale = call(|| api.get_scale(&workload.name))
            .await
            .map_err(|error| unreadable(error, workload))?;
        scale.status.and_then(|status| status.selector)
    } else {
        let object = call(|| api.get(&workload.name))
            .await
            .map_err(|error| unreadable(error, workload))?;
        let selector = serde_json::from_value(object.data["spec"]["selector"].clone());
        selector.ok().map(labels).transpose()?
    };
    match selector.filter(|selector| !selector.is_empty()) {
        Some(selector) => Ok(selector),
        None => {
            let what = format!("{}/{}", workload.kind, workload.name);
            refuse(
                RequestReason::WorkloadNotSupported,
                format!("{what} does not have a selector for its pods"),
            )
        }
    }
}

async fn discover(
    client: &Client,
    workload: &WorkloadRef,
) -> Result<(ApiResource, ApiCapabilities), Unresolved> {
    let WorkloadRef {
        api_version, kind, ..
    } = workload;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let unknown = format!("this cluster has no namespaced kind {kind} in {api_version}");
    let wanted = GroupVersionKind::gvk(group, version, kind);
    match call(|| pinned_kind(client, &wanted)).await {
        Ok((resource, capabilities)) if capabilities.scope == Scope::Namespaced => {
            Ok((resource, capabilities))
        }
        Ok(_) | Err(kube::Error::Discovery(_)) => refuse(RequestReason::WorkloadNotFound, unknown),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            refuse(RequestReason::WorkloadNotFound, unknown)
        }
        Err(error) => Err(error.into()),
    }
}

fn unreadable(error: kube::Error, workload: &WorkloadRef) -> Unresolved {
    let what = format!("{} {}", workload.kind, workload.name);
    let (reason, message) = match &error {
        kube::Error::Api(status) if status.code == 404 => (
            RequestReason::WorkloadNotFound,
            format!("{what} does not exist in this namespace"),
        ),
        kube::Error::Api(status) if status.code == 403 => (
            RequestReason::WorkloadNotSupported,
            format!("the operator may not read {what}: {}", status.message),
        ),
        _ => return Unresolved::Failed(error),
    };
    Unresolved::Refused(RequestRefusal { reason, message })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reconcile::calls::OBJECTS;
    use crate::testing::api::ApiServer;

    #[tokio::test]
    async fn a_page_of_pods_keeps_within_its_room() {
        let pod = json!({"metadata": {"name": "web", "uid": "u1", "resourceVersion": "7"}});
        let server = ApiServer::new([vec![pod], vec![]], json!({}));
        let which = ListParams::default().labels("app=web");
        let found = versions(&server.client(), "shop", which).await.unwrap();
        assert_eq!(found, [("u1".to_owned(), Some(7))].into());
        assert_eq!(server.limits(), [OBJECTS]);
    }
}
