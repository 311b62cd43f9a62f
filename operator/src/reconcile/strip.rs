//! Strips pods before the watch keeps them.

use k8s_openapi::api::core::v1::{EphemeralContainer, Pod};
use phpprof_decide::pod::{DEFAULT_CONTAINER, MIRROR, SAMPLER_PREFIX, is_sidecar};

/// Drops what the operator does not use, above all the environment, so that grants stay in the API
/// server.
pub fn strip(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    pod.metadata.owner_references = None;
    pod.metadata.labels = None;
    pod.metadata.annotations = pod.metadata.annotations.take().map(|mut annotations| {
        annotations.retain(|key, _| [DEFAULT_CONTAINER, MIRROR].contains(&key.as_str()));
        annotations
    });
    if let Some(spec) = &mut pod.spec {
        let mut kept = k8s_openapi::api::core::v1::PodSpec {
            node_name: spec.node_name.take(),
            security_context: spec.security_context.take(),
            host_network: spec.host_network,
            host_pid: spec.host_pid,
            share_process_namespace: spec.share_process_namespace,
            dns_policy: spec.dns_policy.take(),
            dns_config: spec.dns_config.take(),
            ..Default::default()
        };
        kept.containers = spec.containers.drain(..).map(bare_container).collect();
        kept.init_containers = spec.init_containers.take().map(|containers| {
            let sidecars = containers.into_iter().filter(is_sidecar);
            sidecars.map(bare_container).collect()
        });
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
            init_container_statuses: status.init_container_statuses.take(),
            ephemeral_container_statuses: status.ephemeral_container_statuses.take(),
            ..Default::default()
        };
        if let Some(conditions) = &mut kept.conditions {
            conditions.retain(|condition| condition.type_ == "Ready");
        }
        // Only those of native sidecars matter; a pod may have many others.
        let is_kept = |name: &String| {
            let init_containers = pod.spec.iter().flat_map(|spec| &spec.init_containers);
            init_containers.flatten().any(|it| it.name == *name)
        };
        if let Some(statuses) = &mut kept.init_container_statuses {
            statuses.retain(|status| is_kept(&status.name));
        }
        *status = kept;
    }
}

fn bare_container(
    container: k8s_openapi::api::core::v1::Container,
) -> k8s_openapi::api::core::v1::Container {
    k8s_openapi::api::core::v1::Container {
        name: container.name,
        image: container.image,
        restart_policy: container.restart_policy,
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
    use phpprof_decide::pod::view;
    use phpprof_decide::testing::api_pod;

    use super::*;

    #[test]
    fn stripping_changes_nothing_that_matters() {
        let mut stripped = api_pod();
        strip(&mut stripped);
        assert_eq!(view(&stripped), view(&api_pod()));
    }

    #[test]
    fn no_environment_is_kept() {
        let mut stripped = api_pod();
        strip(&mut stripped);
        let text = serde_json::to_string(&stripped).unwrap();
        assert!(
            !text.contains("secret") && !text.contains("SECRET"),
            "{text}"
        );
    }
}
