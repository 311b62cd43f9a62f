//! Checks the pods from which the operator would choose, with the same functions as the operator.

use phpprof_crds::{ContainerChoice, RequestReason, TargetReason};
use phpprof_decide::container::FoundContainer;
use phpprof_decide::mode::{ReadMode, mode};
use phpprof_decide::pod::PodView;
use phpprof_decide::select::{PodAndContainer, affordable, candidates};

use super::{Check, CheckVerdict, DryRunAnswer, ObservedRelease, Unseen, check, limits};

pub(super) fn pods(observed: &ObservedRelease) -> Check {
    match &observed.pods {
        Err(Unseen::Missing(why)) => check(
            "pods",
            CheckVerdict::Bad,
            why.clone(),
            "compare with kubectl get pods --show-labels",
        ),
        Err(Unseen::Hidden(why)) => check(
            "pods",
            CheckVerdict::Unknown,
            why.clone(),
            "the operator sees the pods; for this check, ask for the rights of the cluster role view",
        ),
        Ok(pods) if pods.is_empty() => check(
            "pods",
            CheckVerdict::Bad,
            format!("{} has no pods", observed.target),
            "scale it up, or choose another workload",
        ),
        Ok(pods) => match candidates(&observed.spec, pods) {
            Err(refusal) if refusal.reason == RequestReason::NoPodsReady => check(
                "pods",
                CheckVerdict::Bad,
                refusal.message,
                "kubectl describe pod says why",
            ),
            Err(refusal) if refusal.reason == RequestReason::StaticPod => check(
                "pods",
                CheckVerdict::Bad,
                refusal.message,
                RequestReason::StaticPod.remedy().unwrap_or_default(),
            ),
            _ => {
                let ready = pods.iter().filter(|pod| pod.ready && !pod.deleting);
                check(
                    "pods",
                    CheckVerdict::Good,
                    format!("{} of {} pods are ready", ready.count(), pods.len()),
                    "",
                )
            }
        },
    }
}

/// The pod that the operator would choose first, and the container in it, even if the operator
/// could not choose at all.
pub fn first(observed: &ObservedRelease) -> Option<PodAndContainer<'_>> {
    let pods = observed.pods.as_deref().ok()?;
    let candidates = candidates(&observed.spec, pods).ok()?;
    let order = |(pod, _): &PodAndContainer<'_>| (pod.samplers.len(), pod.name.clone());
    candidates.into_iter().min_by_key(order)
}

/// Why there is no pod to check.
pub fn nothing(observed: &ObservedRelease) -> &'static str {
    let pods = observed.pods.as_deref().unwrap_or_default();
    match candidates(&observed.spec, pods) {
        Err(refusal) if refusal.reason == RequestReason::ContainerNotFound => {
            "no running container to look at"
        }
        Err(refusal) if refusal.reason == RequestReason::ContainerAmbiguous => {
            "it is not clear which container runs PHP"
        }
        Err(refusal) if refusal.reason == RequestReason::StaticPod => "only static pods to look at",
        _ => "no ready pod to look at",
    }
}

pub(super) fn container(observed: &ObservedRelease) -> Check {
    let pods = observed.pods.as_deref().unwrap_or_default();
    let unknown = || check("container", CheckVerdict::Unknown, nothing(observed), "");
    let Some((pod, found)) = first(observed) else {
        return match candidates(&observed.spec, pods) {
            Err(refusal) if refusal.reason == RequestReason::ContainerNotFound => check(
                "container",
                CheckVerdict::Bad,
                refusal.message,
                "choose one of these with --container; if yours is one of them, kubectl describe pod says why it does not run",
            ),
            Err(refusal) if refusal.reason == RequestReason::ContainerAmbiguous => check(
                "container",
                CheckVerdict::Bad,
                refusal.message,
                "name the one that runs PHP with --container, or in the pods' annotation kubectl.kubernetes.io/default-container",
            ),
            _ => unknown(),
        };
    };
    let runtime = observed.runtime_classes.get(&pod.uid);
    if let Some(runtime) =
        runtime.filter(|class| class.contains("gvisor") || class.contains("runsc"))
    {
        return check(
            "container",
            CheckVerdict::Bad,
            format!(
                "the pod's runtime class is {runtime}, whose kernel does not let the sampler read PHP's memory"
            ),
            "profile the workload with another runtimeClassName",
        );
    }
    let name = &found.container.name;
    check(
        "container",
        CheckVerdict::Good,
        format!(
            "{name}{}; only a run shows whether it runs PHP",
            why(pod, found)
        ),
        "",
    )
}

/// Why this container, if the command line does not name it, and the others of the pod.
fn why(pod: &PodView, found: FoundContainer<'_>) -> String {
    let why = match found.choice {
        ContainerChoice::Request => return String::new(),
        ContainerChoice::Annotation => "the pod's default",
        ContainerChoice::Only => "the pod's only one",
        ContainerChoice::Name => "chosen by its name",
        ContainerChoice::Image => "chosen by its image",
    };
    let others = pod.containers.iter().map(|it| it.name.as_str());
    let others: Vec<_> = others
        .filter(|other| *other != found.container.name)
        .collect();
    if others.is_empty() {
        format!(", {why}")
    } else {
        format!(", {why}; the others are {}", others.join(", "))
    }
}

/// Whether the sampler finds the operator's relay by its name, as far as the pod's spec says.
pub(super) fn names(observed: &ObservedRelease) -> Check {
    let Some((pod, _)) = first(observed) else {
        return check("names", CheckVerdict::Unknown, nothing(observed), "");
    };
    match &pod.names_trouble {
        None => check(
            "names",
            CheckVerdict::Good,
            "the pod's spec lets it resolve names of the cluster",
            "",
        ),
        Some(why) => check(
            "names",
            CheckVerdict::Unknown,
            format!(
                "{why}; the sampler then connects to the relay by the Service's address, and only a run shows whether that works"
            ),
            "if the run says NotHeardFrom, let the pod reach the Service's address, or change its dnsPolicy",
        ),
    }
}

/// The mode in which the operator would add the sampler.
pub fn sampler_mode(observed: &ObservedRelease) -> Option<ReadMode> {
    let (_, found) = first(observed)?;
    Some(mode(Some(found.container), &observed.spec))
}

pub(super) fn mode_of(observed: &ObservedRelease) -> Check {
    let (verdict, found) = match sampler_mode(observed) {
        None => (CheckVerdict::Unknown, nothing(observed).to_owned()),
        Some(ReadMode::SameUser { uid, .. }) => (
            CheckVerdict::Good,
            format!("SameUser: as user {uid}, without a capability"),
        ),
        Some(ReadMode::Ptrace { user_known: true }) => (
            CheckVerdict::Good,
            "Ptrace: the pod runs PHP as root, so the sampler needs SYS_PTRACE".to_owned(),
        ),
        Some(ReadMode::Ptrace { user_known: false }) => (
            CheckVerdict::Good,
            "Ptrace: the pod does not name the user that PHP runs as, so the sampler needs SYS_PTRACE"
                .to_owned(),
        ),
    };
    check("mode", verdict, found, "")
}

pub(super) fn admission(observed: &ObservedRelease) -> Check {
    // Only the level is known.
    let reason = match sampler_mode(observed) {
        Some(ReadMode::Ptrace { user_known: true }) => Some(TargetReason::PodSecurityDenied),
        Some(ReadMode::Ptrace { user_known: false }) => Some(TargetReason::UserUnknown),
        Some(ReadMode::SameUser { .. }) | None => None,
    };
    let level = observed
        .namespace_labels
        .as_ref()
        .and_then(|(_, level)| level.as_deref())
        .unwrap_or("");
    let strict = ["baseline", "restricted"].contains(&level);
    match &observed.dry_run {
        DryRunAnswer::Accepted => check(
            "admission",
            CheckVerdict::Good,
            "a dry run of adding the sampler's container succeeded",
            "",
        ),
        DryRunAnswer::Refused(reason, message) => check(
            "admission",
            CheckVerdict::Bad,
            format!("a dry run of adding the sampler's container failed: {message}"),
            reason.remedy(),
        ),
        DryRunAnswer::NotTried(_) if strict && let Some(reason) = reason => check(
            "admission",
            CheckVerdict::Bad,
            format!("Pod Security {level} refuses SYS_PTRACE"),
            reason.remedy(),
        ),
        DryRunAnswer::NotTried(why) => check(
            "admission",
            CheckVerdict::Unknown,
            format!("not tried: {why}"),
            "the operator does this dry run itself",
        ),
    }
}

pub(super) fn budget(observed: &ObservedRelease) -> Check {
    let (limits, pods) = (limits(observed), observed.pods.as_deref());
    let limit = limits.ephemeral_containers;
    let Ok(candidates) = candidates(&observed.spec, pods.unwrap_or_default()) else {
        return check("budget", CheckVerdict::Unknown, nothing(observed), "");
    };
    let fewest = candidates.iter().map(|(pod, _)| pod.samplers.len()).min();
    match affordable(candidates, &limits) {
        Err(_) => check(
            "budget",
            CheckVerdict::Bad,
            format!(
                "every ready pod has had {limit} samplers, and ephemeral containers are never removed"
            ),
            "replace the pods: kubectl rollout restart",
        ),
        Ok(_) => check(
            "budget",
            CheckVerdict::Good,
            format!(
                "{} of {limit} samplers used by the pod with the fewest",
                fewest.unwrap_or_default()
            ),
            "",
        ),
    }
}
