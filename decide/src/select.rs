//! Chooses which of a target's pods are profiled, and in which container.

use std::collections::{BTreeMap, HashMap};

use phpprof_crds::{ContainerChoice, ProfileTarget, RequestReason};

use crate::RequestRefusal;
use crate::container::{FoundContainer, NotFound, php_container};
use crate::limits::AdminLimits;
use crate::pod::{ContainerView, PodView};
use crate::resident::{Serving, ServingSampler};

/// A pod to profile, its container, and the sampler that serves the request there.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// The pod at the time of the choice.
    pub pod: PodView,
    /// The container that runs PHP.
    pub container: ContainerView,
    /// Why this container.
    pub choice: ContainerChoice,
    /// The sampler that serves the request in this pod.
    pub sampler: ServingSampler,
}

/// The pods to profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// At least one; at most `maxPods` of the request and `pods` of the limits.
    pub chosen: Vec<Chosen>,
    /// A note for the user about an accepted request.
    pub note: String,
}

/// A pod that may be chosen.
#[derive(Clone)]
struct Candidate<'a> {
    pod: &'a PodView,
    found: FoundContainer<'a>,
    sampler: ServingSampler,
    rank: (usize, String),
}

impl Candidate<'_> {
    /// Whether the pod already has its sampler.
    fn is_served(&self) -> bool {
        matches!(
            self.sampler,
            ServingSampler::Resident { is_there: true, .. }
        )
    }

    fn chosen(self) -> Chosen {
        Chosen {
            pod: self.pod.clone(),
            container: self.found.container.clone(),
            choice: self.found.choice,
            sampler: self.sampler,
        }
    }
}

/// Ready pods whose container runs, spread over nodes, by rank. If the nodes have room for fewer
/// pods than they would have when idle, the request waits.
pub fn select(
    target: &ProfileTarget,
    pods: &[PodView],
    samplers: &BTreeMap<String, usize>,
    limits: &AdminLimits,
    serving: &Serving<'_>,
) -> Result<Selection, RequestRefusal> {
    let affordable = servable(candidates(target, pods)?, limits, serving)?;
    let wanted = target.max_pods.min(limits.pods).max(0) as usize;
    let capped = limits.pods < target.max_pods && affordable.len() > wanted;
    let note = if capped {
        format!(
            "; the administrator allows at most {} pods per request",
            limits.pods
        )
    } else {
        String::new()
    };
    let most = limits.samplers_of_node;
    let chosen = spread(affordable.clone(), wanted, &with_room(samplers, most));
    let idle = spread(affordable, wanted, &with_room(&BTreeMap::new(), most));
    if chosen.len() < idle.len() {
        let (free, wanted) = (chosen.len(), idle.len());
        return refuse(
            RequestReason::Queued,
            format!(
                "nodes of the matching pods have room for {free} of {wanted} samplers; each node may run {most} at the same time"
            ),
        );
    }
    let chosen = chosen.into_iter().map(Candidate::chosen).collect();
    Ok(Selection { chosen, note })
}

/// A pod that is ready, and its container that runs PHP, which runs.
pub type PodAndContainer<'a> = (&'a PodView, FoundContainer<'a>);

/// Ready pods with their container, which runs.
///
/// # Errors
/// There is no such pod, or nothing tells which container of one of them runs PHP.
pub fn candidates<'a>(
    target: &ProfileTarget,
    pods: &'a [PodView],
) -> Result<Vec<PodAndContainer<'a>>, RequestRefusal> {
    let ready: Vec<&PodView> = pods
        .iter()
        .filter(|pod| pod.ready && !pod.deleting)
        .collect();
    let Some(&first) = ready.first() else {
        let matched = pods.len();
        return refuse(
            RequestReason::NoPodsReady,
            format!("none of the {matched} matching pods is ready"),
        );
    };
    let ready = not_static(ready)?;
    let mut running = Vec::new();
    for pod in &ready {
        match php_container(target, pod) {
            Ok(found) if found.container.running => running.push((*pod, found)),
            Ok(_) | Err(NotFound::NoSuchContainer(_)) => {}
            // Whether a request is refused does not depend on which of the pods would be chosen.
            Err(why @ NotFound::Ambiguous { .. }) => {
                return refuse(RequestReason::ContainerAmbiguous, why.to_string());
            }
        }
    }
    if running.is_empty() {
        refuse(
            RequestReason::ContainerNotFound,
            no_container(target, first),
        )
    } else {
        Ok(running)
    }
}

/// The API server refuses ephemeral containers for static pods, whose objects only mirror what a
/// kubelet reads from a file (`ValidatePodEphemeralContainersUpdate`).
fn not_static(ready: Vec<&PodView>) -> Result<Vec<&PodView>, RequestRefusal> {
    let (fixed, other): (Vec<_>, Vec<_>) = ready.into_iter().partition(|pod| pod.is_static);
    match (other.is_empty(), fixed.first()) {
        (true, Some(first)) => refuse(
            RequestReason::StaticPod,
            format!(
                "pod {} is a static pod of node {}, and the API server does not add ephemeral containers to such a pod",
                first.name, first.node
            ),
        ),
        _ => Ok(other),
    }
}

/// The candidates that have had fewer samplers than a pod may have in its life.
///
/// # Errors
/// There is no such pod.
pub fn affordable<'a>(
    mut candidates: Vec<PodAndContainer<'a>>,
    limits: &AdminLimits,
) -> Result<Vec<PodAndContainer<'a>>, RequestRefusal> {
    candidates.retain(|(pod, _)| is_affordable(pod, limits));
    if candidates.is_empty() {
        budget_spent(limits)
    } else {
        Ok(candidates)
    }
}

/// The candidates that may have one more ephemeral container now, or need none.
fn servable<'a>(
    candidates: Vec<PodAndContainer<'a>>,
    limits: &AdminLimits,
    serving: &Serving<'_>,
) -> Result<Vec<Candidate<'a>>, RequestRefusal> {
    let candidate = |(pod, found): PodAndContainer<'a>| Candidate {
        pod,
        found,
        sampler: serving.sampler(pod, found.container),
        rank: serving.rank(pod),
    };
    let all: Vec<Candidate> = candidates.into_iter().map(candidate).collect();
    let back_offs = all.iter().filter_map(|one| match one.sampler {
        ServingSampler::NotBefore(instant) => Some(instant),
        _ => None,
    });
    let next = back_offs.min();
    let is_servable = |one: &Candidate| match one.sampler {
        ServingSampler::NotBefore(_) => false,
        _ => one.is_served() || is_affordable(one.pod, limits),
    };
    let servable: Vec<Candidate> = all.into_iter().filter(is_servable).collect();
    match next {
        _ if !servable.is_empty() => Ok(servable),
        Some(next) => refuse(
            RequestReason::ResidentSamplerBackOff,
            format!(
                "the pods' resident samplers ended repeatedly; the next one may be added at {next:.0}"
            ),
        ),
        None => budget_spent(limits),
    }
}

fn is_affordable(pod: &PodView, limits: &AdminLimits) -> bool {
    pod.samplers.len() < limits.ephemeral_containers
}

fn budget_spent<T>(limits: &AdminLimits) -> Result<T, RequestRefusal> {
    let budget = limits.ephemeral_containers;
    refuse(
        RequestReason::EphemeralContainerBudgetSpent,
        format!("every matching pod already has {budget} ephemeral containers of phpprof"),
    )
}

/// The number of samplers that a node has room for.
fn with_room(samplers: &BTreeMap<String, usize>, most: usize) -> impl Fn(&str) -> usize {
    move |node| most.saturating_sub(samplers.get(node).copied().unwrap_or(0))
}

fn refuse<T>(reason: RequestReason, message: String) -> Result<T, RequestRefusal> {
    Err(RequestRefusal { reason, message })
}

/// The container that is meant does not exist in any ready pod, or does not run there.
fn no_container(target: &ProfileTarget, pod: &PodView) -> String {
    let wanted = match php_container(target, pod) {
        Ok(found) => found.container.name.clone(),
        Err(NotFound::NoSuchContainer(name)) => name,
        Err(NotFound::Ambiguous { .. }) => String::new(),
    };
    let names = pod.containers.iter().map(|it| it.name.as_str());
    format!(
        "no ready pod has a running container {wanted}; pod {} has {}",
        pod.name,
        names.collect::<Vec<_>>().join(", "),
    )
}

/// Takes the next pod from the node that has given the fewest so far, so that one busy node does
/// not represent all.
fn spread<'a>(
    mut pods: Vec<Candidate<'a>>,
    wanted: usize,
    room: &impl Fn(&str) -> usize,
) -> Vec<Candidate<'a>> {
    let mut given: HashMap<String, usize> = HashMap::new();
    let mut chosen = Vec::new();
    while chosen.len() < wanted {
        let of_node = |node: &str| given.get(node).copied().unwrap_or(0);
        pods.retain(|one| of_node(&one.pod.node) < room(&one.pod.node));
        let next = pods
            .iter()
            .enumerate()
            .min_by_key(|(_, one)| (of_node(&one.pod.node), one.rank.clone()));
        let Some((index, _)) = next else { break };
        let one = pods.swap_remove(index);
        *given.entry(one.pod.node.clone()).or_default() += 1;
        chosen.push(one);
    }
    chosen
}

#[cfg(test)]
mod tests;
