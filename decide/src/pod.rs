//! The relevant parts of a pod, from the API server's object.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStatus, EphemeralContainer, Pod, PodStatus,
};
use kube::ResourceExt as _;

use crate::names;

/// The prefix of the names of phpprof's ephemeral containers.
pub const SAMPLER_PREFIX: &str = "phpprof-";
/// The prefix of the names of resident samplers, which stay in their pod.
pub const RESIDENT_PREFIX: &str = "phpprof-resident-";
/// The annotation with the container to use if a request names none.
pub const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// The annotation of a mirror pod, which shows a static pod of a kubelet
/// (`pkg/apis/core/annotation_key_constants.go`).
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The relevant parts of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodView {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`: a newer pod of the same name has a different one.
    pub uid: String,
    /// `spec.nodeName`; empty until the pod is scheduled.
    pub node: String,
    /// `status.podIPs`; the node's addresses if the pod uses the node's network.
    pub addresses: Vec<IpAddr>,
    /// The condition `Ready` is `True`.
    pub ready: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// It shows a static pod, to which the API server adds no ephemeral container.
    pub is_static: bool,
    /// Its containers share one PID namespace, so none of them ends with another one's PID 1.
    pub shares_processes: bool,
    /// Why the pod may know no names of the cluster, as far as its spec says.
    pub names_trouble: Option<String>,
    /// The annotation kubectl.kubernetes.io/default-container.
    pub default_container: Option<String>,
    /// The containers that run as long as the pod does: those of its spec, in its order, then its
    /// native sidecars. Other init containers and ephemeral ones are not among them.
    pub containers: Vec<ContainerView>,
    /// All of phpprof's ephemeral containers, of any request, by name.
    pub samplers: BTreeMap<String, SamplerView>,
}

impl PodView {
    /// The application's container of this name.
    pub fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers
            .iter()
            .find(|container| container.name == name)
    }
}

/// The relevant parts of an application's container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerView {
    /// As the pod's spec has it.
    pub name: String,
    /// As the pod's spec has it.
    pub image: String,
    /// With the runtime's scheme; empty if it has never run.
    pub id: String,
    /// Its state is `running`: it does not wait to start and has not ended.
    pub running: bool,
    /// The user that it runs as, if the pod says it.
    pub uid: Option<i64>,
    /// The group that it runs as, if the pod says it.
    pub gid: Option<i64>,
}

/// The relevant parts of a sampler's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerView {
    /// The sampler's task.
    pub kind: SamplerKind,
    /// Its state, as the kubelet reports it.
    pub state: SamplerState,
}

/// A sampler's task, as its arguments say. Nobody can change these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// One run.
    Once(SamplerDeadlines),
    /// It stays, for one target container.
    Resident {
        /// The target container's id, without the runtime's scheme.
        container_id: String,
    },
    /// The arguments are not phpprof's.
    Foreign,
}

/// The deadlines of a sampler with one run, from its own arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerDeadlines {
    /// A container that starts later exits at once (`--not-after`).
    pub not_after: Timestamp,
    /// Its grants expire then (`--upload-until`).
    pub upload_until: Timestamp,
}

/// The state of a sampler's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SamplerState {
    /// Not started; reason and message are the kubelet's, or empty.
    Waiting {
        /// For instance `ImagePullBackOff`.
        reason: String,
        /// The kubelet's error.
        message: String,
    },
    /// It has started and not ended.
    Running,
    /// The container wrote the message, so it is not trusted.
    Ended {
        /// From the table of the contract, if the sampler ended by itself.
        exit_code: i32,
        /// The receipt, or what the kubelet kept of it.
        message: String,
        /// By the node's clock.
        at: Option<Timestamp>,
    },
}

/// The relevant parts of a pod.
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
        is_static: pod.annotations().contains_key(MIRROR),
        shares_processes: pod.spec.as_ref().is_some_and(|spec| {
            spec.share_process_namespace == Some(true) || spec.host_pid == Some(true)
        }),
        names_trouble: names::trouble(pod),
        default_container: pod.annotations().get(DEFAULT_CONTAINER).cloned(),
        containers: containers(pod, &status),
        samplers: samplers(
            pod,
            status
                .ephemeral_container_statuses
                .as_deref()
                .unwrap_or_default(),
        ),
    }
}

/// The pod's addresses. A pod in its node's network has the node's (`status.podIPs`).
fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let addresses = status.pod_ips.iter().flatten();
    addresses.filter_map(|pod| pod.ip.parse().ok()).collect()
}

/// Whether an init container is a native sidecar: it keeps running next to the pod's containers
/// (Kubernetes 1.29, the type `Container`).
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

fn containers(pod: &Pod, status: &PodStatus) -> Vec<ContainerView> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let pod_context = spec.security_context.clone().unwrap_or_default();
    // The names of init containers and of others are different.
    let statuses = || {
        let of_containers = status.container_statuses.iter().flatten();
        of_containers.chain(status.init_container_statuses.iter().flatten())
    };
    let of_container = |container: &Container| {
        let status = statuses().find(|status| status.name == container.name);
        let user = status.and_then(|status| status.user.as_ref()?.linux.as_ref());
        let context = container.security_context.clone().unwrap_or_default();
        ContainerView {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
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
    let init_containers = spec.init_containers.iter().flatten();
    let sidecars = init_containers.filter(|container| is_sidecar(container));
    let all = spec.containers.iter().chain(sidecars);
    all.map(of_container).collect()
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
            kind: kind(container.args.as_deref().unwrap_or_default()),
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

/// Reads the arguments that the operator's `sampler::container` writes.
fn kind(args: &[String]) -> SamplerKind {
    let value = |flag: &str| args.iter().find_map(|arg| arg.strip_prefix(flag));
    let second = |flag: &str| Timestamp::from_second(value(flag)?.parse().ok()?).ok();
    let deadlines = || {
        Some(SamplerDeadlines {
            not_after: second("--not-after=")?,
            upload_until: second("--upload-until=")?,
        })
    };
    match args.first().map(String::as_str) {
        Some("record") => deadlines().map_or(SamplerKind::Foreign, SamplerKind::Once),
        Some("resident") => match value("--container-id=") {
            Some(id) => SamplerKind::Resident {
                container_id: id.to_owned(),
            },
            None => SamplerKind::Foreign,
        },
        _ => SamplerKind::Foreign,
    }
}

/// A container's id without the runtime's scheme.
pub fn bare_id(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::api_pod;

    #[test]
    fn pod_view_has_what_matters() {
        insta::assert_debug_snapshot!(view(&api_pod()));
    }
}
