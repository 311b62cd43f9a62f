//! Which of the pods that a target names are profiled, and in which container.

use std::collections::{BTreeMap, HashMap};

use phpprof_crds::{Reason, Target};

use crate::decide::limits::Limits;
use crate::decide::observed::{ContainerView, PodView, Refusal};

/// The pods to profile, each with its container.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    pub chosen: Vec<(PodView, ContainerView)>,
    /// What the user should know though the request is accepted.
    pub note: String,
}

/// Ready pods whose container runs, spread over nodes, those with the fewest ephemeral containers of ours first. Where nodes have no room for
/// as many as there would be on idle ones, the request waits.
pub fn select(
    target: &Target,
    pods: &[PodView],
    samplers: &BTreeMap<String, usize>,
    limits: &Limits,
) -> Result<Selection, Refusal> {
    let ready: Vec<&PodView> = pods
        .iter()
        .filter(|pod| pod.ready && !pod.deleting)
        .collect();
    if ready.is_empty() {
        let matched = pods.len();
        return refuse(
            Reason::NoPodsReady,
            format!("none of the {matched} matching pods is ready"),
        );
    }
    let running: Vec<(&PodView, &ContainerView)> = ready
        .iter()
        .filter_map(|pod| Some((*pod, container(target, pod)?)))
        .collect();
    if running.is_empty() {
        return refuse(Reason::ContainerNotFound, no_container(target, ready[0]));
    }
    let budget = limits.ephemeral_containers;
    let affordable: Vec<_> = running
        .into_iter()
        .filter(|(pod, _)| pod.samplers.len() < budget)
        .collect();
    if affordable.is_empty() {
        return refuse(
            Reason::EphemeralContainerBudgetSpent,
            format!("every matching pod was profiled {budget} times already"),
        );
    }
    let wanted = target.max_pods.min(limits.pods).max(0) as usize;
    let capped = limits.pods < target.max_pods && affordable.len() > wanted;
    let note = if capped {
        format!(
            "; the administrator allows {} pods per request",
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
            Reason::Queued,
            format!(
                "nodes of the matching pods have room for {free} of {wanted} samplers; each takes {most} at the same time"
            ),
        );
    }
    Ok(Selection { chosen, note })
}

/// How many samplers a node has room for.
fn with_room(samplers: &BTreeMap<String, usize>, most: usize) -> impl Fn(&str) -> usize {
    move |node| most.saturating_sub(samplers.get(node).copied().unwrap_or(0))
}

fn refuse<T>(reason: Reason, message: String) -> Result<T, Refusal> {
    Err(Refusal { reason, message })
}

/// The container that runs PHP, if it runs.
fn container<'a>(target: &Target, pod: &'a PodView) -> Option<&'a ContainerView> {
    let named = target
        .container_name
        .as_ref()
        .or(pod.default_container.as_ref());
    let container = match named {
        Some(name) => pod.container(name),
        None => pod.containers.first(),
    };
    container.filter(|container| container.running)
}

fn no_container(target: &Target, pod: &PodView) -> String {
    let names: Vec<&str> = pod
        .containers
        .iter()
        .map(|container| container.name.as_str())
        .collect();
    let wanted = target
        .container_name
        .as_ref()
        .or(pod.default_container.as_ref());
    let wanted = wanted
        .map(String::as_str)
        .or(names.first().copied())
        .unwrap_or_default();
    format!(
        "no ready pod has a running container {wanted}; pod {} has {}",
        pod.name,
        names.join(", "),
    )
}

/// Takes from the node that has given the fewest so far, so that one busy node does not stand for all.
fn spread(
    mut pods: Vec<(&PodView, &ContainerView)>,
    wanted: usize,
    room: &impl Fn(&str) -> usize,
) -> Vec<(PodView, ContainerView)> {
    let mut given: HashMap<String, usize> = HashMap::new();
    let mut chosen = Vec::new();
    while chosen.len() < wanted {
        pods.retain(|(pod, _)| given.get(&pod.node).copied().unwrap_or(0) < room(&pod.node));
        let next = pods.iter().enumerate().min_by_key(|(_, (pod, _))| {
            (
                given.get(&pod.node).copied().unwrap_or(0),
                pod.samplers.len(),
                pod.name.clone(),
            )
        });
        let Some((index, _)) = next else { break };
        let (pod, container) = pods.swap_remove(index);
        *given.entry(pod.node.clone()).or_default() += 1;
        chosen.push((pod.clone(), container.clone()));
    }
    chosen
}

#[cfg(test)]
mod tests;
