//! What the API server says about a workload, its namespace, its operator and this user's rights.
//!
//! It changes nothing: it checks rights with reviews, and admission with a dry run.
//!
//! Invariant: a refused read differs from a missing object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Selector};
use kube::discovery::ApiResource;
use phpprof_crds::{NAMESPACE_LABEL, ProfileTarget, WorkloadRef};
use phpprof_decide::admission::{NotAdded, not_added};
use phpprof_decide::pod::view;
use serde_json::json;

use super::checks::{
    Allowed, DryRunAnswer, HEAP, ObservedRelease, OperatorFacts, PATCH_PODS, PROFILE, StoreFacts,
    StoredSample, Unseen, argument, first, nothing, sampler_mode,
};
use crate::connect::Cluster;
use crate::failure::Failure;
use crate::request::RequestView;
use crate::results;
use crate::target::plural;

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Names that begin with phpprof- are the operator's.
const NAME: &str = "doctor-of-phpprof";
/// How many requests are searched for one with a profile.
const MOST_REQUESTS: u32 = 200;

/// Fails only if the API server does not answer at all.
pub async fn observe(
    cluster: &Cluster,
    target: &ProfileTarget,
) -> Result<ObservedRelease, Failure> {
    let api = api(cluster).await?;
    let pods = pods(cluster, target).await;
    let runtime_classes = pods.as_deref().map(runtime_classes).unwrap_or_default();
    let pods = pods.map(|pods| pods.iter().map(view).collect());
    let mut observed = ObservedRelease {
        suggest: cluster.suggest.clone(),
        namespace: cluster.namespace.clone(),
        target: words(target),
        api,
        rights: rights(cluster).await,
        namespace_labels: namespace(cluster).await,
        operator: operator(cluster).await,
        store: store(cluster).await,
        last_stored: last_stored(cluster).await,
        reach: results::reach(cluster).await,
        pods,
        runtime_classes,
        spec: target.clone(),
        dry_run: DryRunAnswer::NotTried("no ready pod to try it on".to_owned()),
    };
    observed.dry_run = dry_run(cluster, &observed).await;
    Ok(observed)
}

/// What concerns no workload. Fails only if the API server does not answer at all.
pub async fn observe_release(cluster: &Cluster) -> Result<ObservedRelease, Failure> {
    Ok(ObservedRelease {
        suggest: cluster.suggest.clone(),
        namespace: cluster.namespace.clone(),
        target: String::new(),
        api: api(cluster).await?,
        rights: Vec::new(),
        namespace_labels: None,
        operator: operator(cluster).await,
        store: store(cluster).await,
        last_stored: None,
        reach: results::reach(cluster).await,
        pods: Ok(Vec::new()),
        runtime_classes: BTreeMap::new(),
        spec: ProfileTarget::default(),
        dry_run: DryRunAnswer::NotTried("there is no workload".to_owned()),
    })
}

fn words(target: &ProfileTarget) -> String {
    match (&target.pod_name, &target.workload_ref) {
        (Some(pod), _) => format!("pod {pod}"),
        (_, Some(workload)) => format!("{} {}", workload.kind, workload.name),
        _ => String::new(),
    }
}

async fn api(cluster: &Cluster) -> Result<Allowed, Failure> {
    match cluster.client.list_api_groups().await {
        Ok(groups) => Ok(Some(
            groups
                .groups
                .iter()
                .any(|group| group.name == "phpprof.dev"),
        )),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(Failure::of_api(&cluster.suggest, "list API groups", &error)),
    }
}

async fn rights(cluster: &Cluster) -> Vec<(&'static str, Allowed)> {
    let own = &cluster.namespace;
    let wanted = [
        (
            "create profilerequests",
            "create",
            "phpprof.dev",
            "profilerequests",
            "",
            own,
        ),
        (
            PROFILE,
            "profile",
            "phpprof.dev",
            "profilerequests",
            "",
            own,
        ),
        (HEAP, "heap", "phpprof.dev", "profilerequests", "", own),
        (PATCH_PODS, "patch", "", "pods", "ephemeralcontainers", own),
        (
            "get profilerequests",
            "get",
            "phpprof.dev",
            "profilerequests",
            "",
            own,
        ),
        (
            "create services/proxy of the operator",
            "create",
            "",
            "services",
            "proxy",
            &cluster.operator_namespace,
        ),
        (
            "get services/proxy of the operator",
            "get",
            "",
            "services",
            "proxy",
            &cluster.operator_namespace,
        ),
    ];
    let mut rights = Vec::new();
    for (right, verb, group, resource, subresource, namespace) in wanted {
        let name = (resource == "services").then(|| format!("{}:results", cluster.operator_name));
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(subresource.to_owned()).filter(|subresource| !subresource.is_empty()),
            namespace: Some(namespace.clone()),
            name,
            ..ResourceAttributes::default()
        };
        rights.push((right, allowed(cluster, attributes).await));
    }
    rights
}

pub async fn allowed(cluster: &Cluster, attributes: ResourceAttributes) -> Allowed {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await.ok()?;
    answer.status.map(|status| status.allowed)
}

async fn namespace(cluster: &Cluster) -> Option<(Option<String>, Option<String>)> {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = namespaces.get(&cluster.namespace).await.ok()?;
    let label = |name: &str| namespace.labels().get(name).cloned();
    Some((label(NAMESPACE_LABEL), label(ENFORCE)))
}

pub async fn operator(cluster: &Cluster) -> Result<OperatorFacts, String> {
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), &cluster.operator_namespace);
    let place = format!(
        "{} in {}",
        cluster.operator_name, cluster.operator_namespace
    );
    let deployment =
        deployments
            .get(&cluster.operator_name)
            .await
            .map_err(|error| match error {
                kube::Error::Api(status) if status.code == 403 => {
                    format!("you may not read deployment {place}")
                }
                kube::Error::Api(status) if status.code == 404 => {
                    format!("there is no deployment {place}")
                }
                error => format!("deployment {place} cannot be read: {error}"),
            })?;
    let pod = deployment
        .spec
        .and_then(|spec| spec.template.spec)
        .unwrap_or_default();
    let container = pod.containers.into_iter().next().unwrap_or_default();
    Ok(OperatorFacts {
        ready: deployment
            .status
            .and_then(|status| status.ready_replicas)
            .unwrap_or(0),
        image: container.image.unwrap_or_default(),
        arguments: container.args.unwrap_or_default(),
    })
}

/// How the operator finds its store: it writes that into a ConfigMap next to its Deployment.
async fn store(cluster: &Cluster) -> Result<StoreFacts, String> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &cluster.operator_namespace);
    let name = format!("{}-status", cluster.operator_name);
    let map = maps.get(&name).await.map_err(|error| error.to_string())?;
    let data = map.data.unwrap_or_default();
    let told = data.get("store").ok_or("the operator has not looked yet")?;
    serde_json::from_str(told).map_err(|error| error.to_string())
}

/// The newest request with a stored profile among some of the namespace's, if this user may list
/// them.
async fn last_stored(cluster: &Cluster) -> Option<StoredSample> {
    let some = ListParams::default().limit(MOST_REQUESTS);
    let listed = cluster.requests().list(&some).await.ok()?;
    let stored = listed.items.iter().map(RequestView::of);
    let stored = stored.filter(|request| request.at("/status/profile").is_object());
    let now = Timestamp::now();
    let (name, age) = stored
        .map(|request| (request.name(), request.age(now)))
        .min_by_key(|(_, age)| *age)?;
    Some(StoredSample { name, age })
}

/// The pods of a target, whatever their state.
pub async fn pods(cluster: &Cluster, target: &ProfileTarget) -> Result<Vec<Pod>, Unseen> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let refused = |error: kube::Error| match error {
        kube::Error::Api(status) if status.code == 404 => Unseen::Missing(format!(
            "there is no {} in {}",
            words(target),
            cluster.namespace
        )),
        kube::Error::Api(status) => Unseen::Hidden(status.message.clone()),
        error => Unseen::Hidden(error.to_string()),
    };
    Ok(match (&target.pod_name, &target.workload_ref) {
        (Some(name), _) => vec![api.get(name).await.map_err(refused)?],
        (None, Some(workload)) => {
            let labels = selector(cluster, workload).await.map_err(refused)?;
            let Some(labels) = labels else {
                return Err(Unseen::Missing(format!(
                    "{} has no selector",
                    words(target)
                )));
            };
            api.list(&ListParams::default().labels(&labels))
                .await
                .map_err(refused)?
                .items
        }
        (None, None) => Vec::new(),
    })
}

/// The runtime classes of the pods that name one, by the pod's uid.
fn runtime_classes(pods: &[Pod]) -> BTreeMap<String, String> {
    let class = |pod: &Pod| {
        let class = pod.spec.as_ref()?.runtime_class_name.clone()?;
        Some((pod.uid()?, class))
    };
    pods.iter().filter_map(class).collect()
}

/// The labels of a workload's pods.
async fn selector(cluster: &Cluster, workload: &WorkloadRef) -> kube::Result<Option<String>> {
    let (group, version) = workload
        .api_version
        .split_once('/')
        .unwrap_or(("", &workload.api_version));
    let kind = GroupVersionKind::gvk(group, version, &workload.kind);
    let resource = match plural(workload) {
        Some(plural) => ApiResource::from_gvk_with_plural(&kind, plural),
        None => ApiResource::from_gvk(&kind),
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    let object = api.get(&workload.name).await?;
    let spec = &object.data["spec"]["selector"];
    // A ReplicationController's selector is the labels themselves.
    let labels = if spec["matchLabels"].is_object() || spec["matchExpressions"].is_array() {
        spec.clone()
    } else {
        json!({"matchLabels": spec})
    };
    let labels: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector> =
        serde_json::from_value(labels).ok();
    Ok(labels
        .and_then(|labels| Selector::try_from(labels).ok())
        .map(|selector| selector.to_string())
        .filter(|labels| !labels.is_empty()))
}

/// Admission's answer to a container like the operator's. Nothing is added.
async fn dry_run(cluster: &Cluster, observed: &ObservedRelease) -> DryRunAnswer {
    let (Some((pod, found)), Some(mode)) = (first(observed), sampler_mode(observed)) else {
        return DryRunAnswer::NotTried(nothing(observed).to_owned());
    };
    if observed
        .rights
        .iter()
        .any(|(right, allowed)| *right == PATCH_PODS && *allowed == Some(false))
    {
        return DryRunAnswer::NotTried(format!("you may not {PATCH_PODS}"));
    }
    let image = argument(observed, "--sampler-image=");
    let patch = json!({"spec": {"ephemeralContainers": [{
        "name": NAME,
        "image": image.unwrap_or(concat!("phpprof.dev/phpprof:", env!("CARGO_PKG_VERSION"))),
        "targetContainerName": found.container.name,
        "securityContext": mode.security_context(),
    }]}});
    let parameters = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    match api
        .patch_ephemeral_containers(&pod.name, &parameters, &Patch::Strategic(patch))
        .await
    {
        Ok(_) => DryRunAnswer::Accepted,
        Err(kube::Error::Api(status)) => {
            let said = status.message.clone();
            match not_added(&status, said, NAME, mode) {
                NotAdded::Final(reason, message) => DryRunAnswer::Refused(reason, message),
                NotAdded::Unknown => DryRunAnswer::NotTried(
                    "a webhook of the cluster does not support dry runs".to_owned(),
                ),
                NotAdded::AlreadyThere => {
                    DryRunAnswer::NotTried(format!("the pod has a container {NAME}"))
                }
                NotAdded::TryAgain(message) => DryRunAnswer::NotTried(message),
            }
        }
        Err(error) => DryRunAnswer::NotTried(error.to_string()),
    }
}
