//! Out of the API server's Pod into [`PodView`], and the stripping of pods before they are kept.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStatus, EphemeralContainer, Pod, PodStatus,
};
use kube::ResourceExt as _;

use crate::decide::observed::{
    ContainerView, PodView, SamplerDeadlines, SamplerState, SamplerView,
};
use crate::sampler::injection::SAMPLER_PREFIX;

const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// What matters of a pod.
pub fn view(pod: &Pod) -> PodView {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.clone().unwrap_or_default();
    PodView {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        node: pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default(),
        addresses: addresses(&status),
        ready: conditions
            .iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        default_container: pod.annotations().get(DEFAULT_CONTAINER).cloned(),
        containers: containers(pod, &status.container_statuses.unwrap_or_default()),
        samplers: samplers(
            pod,
            &status.ephemeral_container_statuses.unwrap_or_default(),
        ),
    }
}

/// Of a pod in its node's network these are the node's (`status.podIPs`).
fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let addresses = status.pod_ips.iter().flatten();
    addresses.filter_map(|pod| pod.ip.parse().ok()).collect()
}

fn containers(pod: &Pod, statuses: &[ContainerStatus]) -> Vec<ContainerView> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let pod_context = spec.security_context.clone().unwrap_or_default();
    let of_container = |container: &k8s_openapi::api::core::v1::Container| {
        let status = statuses.iter().find(|status| status.name == container.name);
        let user = status.and_then(|status| status.user.as_ref()?.linux.as_ref());
        let context = container.security_context.clone().unwrap_or_default();
        ContainerView {
            name: container.name.clone(),
            id: status
                .and_then(|status| status.container_id.clone())
                .unwrap_or_default(),
            running: status.is_some_and(|status| state(status).running.is_some()),
            uid: user
                .map(|user| user.uid)
                .or(context.run_as_user)
                .or(pod_context.run_as_user),
            gid: user
                .map(|user| user.gid)
                .or(context.run_as_group)
                .or(pod_context.run_as_group),
        }
    };
    spec.containers.iter().map(of_container).collect()
}

fn samplers(pod: &Pod, statuses: &[ContainerStatus]) -> BTreeMap<String, SamplerView> {
    let ephemeral = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.ephemeral_containers.as_ref());
    let ours = ephemeral
        .into_iter()
        .flatten()
        .filter(|container| container.name.starts_with(SAMPLER_PREFIX));
    let of_container = |container: &EphemeralContainer| {
        let status = statuses.iter().find(|status| status.name == container.name);
        let sampler = SamplerView {
            deadlines: deadlines(container.args.as_deref().unwrap_or_default()),
            state: status.map_or_else(waiting, |status| sampler_state(state(status))),
        };
        (container.name.clone(), sampler)
    };
    ours.map(of_container).collect()
}

fn waiting() -> SamplerState {
    SamplerState::Waiting {
        reason: String::new(),
        message: String::new(),
    }
}

fn state(status: &ContainerStatus) -> ContainerState {
    status.state.clone().unwrap_or_default()
}

fn sampler_state(state: ContainerState) -> SamplerState {
    match (state.terminated, state.running, state.waiting) {
        (Some(ended), _, _) => SamplerState::Ended {
            exit_code: ended.exit_code,
            message: ended.message.unwrap_or_default(),
            at: ended.finished_at.map(|time| time.0),
        },
        (None, Some(_), _) => SamplerState::Running,
        (None, None, Some(waiting)) => SamplerState::Waiting {
            reason: waiting.reason.unwrap_or_default(),
            message: waiting.message.unwrap_or_default(),
        },
        (None, None, None) => waiting(),
    }
}

fn deadlines(args: &[String]) -> Option<SamplerDeadlines> {
    let second = |flag: &str| {
        let value = args.iter().find_map(|arg| arg.strip_prefix(flag))?;
        Timestamp::from_second(value.parse().ok()?).ok()
    };
    Some(SamplerDeadlines {
        not_after: second("--not-after=")?,
        upload_until: second("--upload-until=")?,
    })
}

/// Drops what is never looked at, above all the environment: grants stay in the API server.
pub fn strip(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    pod.metadata.owner_references = None;
    pod.metadata.labels = None;
    pod.metadata.annotations = pod.metadata.annotations.take().map(|mut annotations| {
        annotations.retain(|key, _| key == DEFAULT_CONTAINER);
        annotations
    });
    if let Some(spec) = &mut pod.spec {
        let mut kept = k8s_openapi::api::core::v1::PodSpec {
            node_name: spec.node_name.take(),
            security_context: spec.security_context.take(),
            ..Default::default()
        };
        kept.containers = spec.containers.drain(..).map(bare_container).collect();
        kept.ephemeral_containers = spec.ephemeral_containers.take().map(|containers| {
            containers
                .into_iter()
                .map(bare_ephemeral_container)
                .collect()
        });
        *spec = kept;
    }
    if let Some(status) = &mut pod.status {
        let mut kept = k8s_openapi::api::core::v1::PodStatus {
            conditions: status.conditions.take(),
            pod_ips: status.pod_ips.take(),
            container_statuses: status.container_statuses.take(),
            ephemeral_container_statuses: status.ephemeral_container_statuses.take(),
            ..Default::default()
        };
        if let Some(conditions) = &mut kept.conditions {
            conditions.retain(|condition| condition.type_ == "Ready");
        }
        *status = kept;
    }
}

fn bare_container(
    container: k8s_openapi::api::core::v1::Container,
) -> k8s_openapi::api::core::v1::Container {
    k8s_openapi::api::core::v1::Container {
        name: container.name,
        security_context: container.security_context,
        ..Default::default()
    }
}

fn bare_ephemeral_container(container: EphemeralContainer) -> EphemeralContainer {
    let ours = container.name.starts_with(SAMPLER_PREFIX);
    EphemeralContainer {
        args: container.args.filter(|_| ours),
        name: container.name,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "uid": "u1", "labels": {"app": "web"}, "annotations": {DEFAULT_CONTAINER: "fpm", "x": "y"}},
            "spec": {
                "nodeName": "n1", "securityContext": {"runAsUser": 1000, "runAsGroup": 1001},
                "containers": [
                    {"name": "nginx", "env": [{"name": "SECRET", "value": "s"}], "securityContext": {"runAsUser": 101}},
                    {"name": "fpm"},
                ],
                "ephemeralContainers": [
                    {"name": "debugger", "args": ["sh"]},
                    {"name": "phpprof-0b1c2d3e-0", "env": [{"name": "PHPPROF_GRANTS", "value": "secret"}],
                     "args": ["record", "--not-after=1790000090", "--upload-until=1790000690"]},
                ],
            },
            "status": {
                "podIPs": [{"ip": "10.244.0.5"}, {"ip": "fd00::5"}, {"ip": "x"}], "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
                "containerStatuses": [
                    {"name": "fpm", "image": "", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://4f9c",
                     "state": {"running": {}}, "user": {"linux": {"uid": 33, "gid": 34}}},
                ],
                "ephemeralContainerStatuses": [
                    {"name": "phpprof-0b1c2d3e-0", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                     "state": {"terminated": {"exitCode": 0, "message": "{}", "finishedAt": "2026-09-21T14:13:20Z"}}},
                ],
            },
        }))
        .expect("a pod")
    }

    #[test]
    fn a_pod_is_seen_with_what_matters_of_it() {
        insta::assert_debug_snapshot!(view(&pod()));
    }

    #[test]
    fn stripping_changes_nothing_that_matters() {
        let mut stripped = pod();
        strip(&mut stripped);
        assert_eq!(view(&stripped), view(&pod()));
    }

    #[test]
    fn no_environment_is_kept() {
        let mut stripped = pod();
        strip(&mut stripped);
        let text = serde_json::to_string(&stripped).unwrap();
        assert!(
            !text.contains("secret") && !text.contains("SECRET"),
            "{text}"
        );
    }
}
