//! The status of a request, derived from the states of its pods: counts, order, conditions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use phpprof_crds::{
    ContainerChoice, ProfileRequest, ProfileRequestStatus, RequestOutcome, RequestReason,
    TargetReason, TargetState, TargetStatus, condition,
};
use phpprof_profile::unnamed::Counts;

use crate::sampler::receipt::printable;

/// The longest message of a condition and of a target. Parts of it can come from a webhook.
const MESSAGE: usize = 1024;

/// The reason that all conditions have, and what was found. The conditions' message also has the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionReason {
    pub reason: RequestReason,
    pub message: String,
}

/// Updates everything that follows from the targets and the verdict.
pub fn settle(
    status: &mut ProfileRequestStatus,
    verdict: ConditionReason,
    generation: Option<i64>,
    now: Timestamp,
) {
    status.observed_generation = generation;
    count(status);
    for target in &mut status.targets {
        if target.message.len() > MESSAGE {
            target.message = printable(&target.message, MESSAGE);
        }
    }
    status
        .targets
        .sort_by_key(|target| (target.state != TargetState::Failed, target.pod_name.clone()));
    if is_final(verdict.reason) && status.completion_time.is_none() {
        status.completion_time = Some(Time(now));
    }
    status.conditions = conditions(&status.conditions, &verdict, generation, now);
}

/// Records why a pod has no profile: what was found, and what to do about it.
pub fn fail(target: &mut TargetStatus, reason: TargetReason, found: &str) {
    target.state = TargetState::Failed;
    target.reason = Some(reason);
    target.message = told(found, Some(reason.remedy()));
}

/// What was found, then the remedy. The remedy is never cut.
pub(crate) fn told(found: &str, remedy: Option<&str>) -> String {
    let Some(remedy) = remedy else {
        return printable(found, MESSAGE);
    };
    let found = printable(found, MESSAGE.saturating_sub(remedy.len() + 2));
    match found.trim_end_matches(['.', ' ']) {
        "" => remedy.to_owned(),
        found => format!("{found}. {remedy}"),
    }
}

/// The remedy for a request that is over. If pods have failed, the message already has the remedy
/// of the first. For a namespace that is not enabled, `admission` has given it.
fn remedy(reason: RequestReason) -> Option<&'static str> {
    match reason {
        RequestReason::AllTargetsFailed
        | RequestReason::SomeTargetsFailed
        | RequestReason::NamespaceNotEnabled => None,
        _ if is_final(reason) => reason.remedy(),
        _ => None,
    }
}

fn is_final(reason: RequestReason) -> bool {
    !matches!(
        reason.outcome(),
        RequestOutcome::InProgress | RequestOutcome::Held
    )
}

fn count(status: &mut ProfileRequestStatus) {
    let with = |states: &[TargetState]| {
        let count = status
            .targets
            .iter()
            .filter(|target| states.contains(&target.state))
            .count();
        i32::try_from(count).unwrap_or(i32::MAX)
    };
    let (succeeded, failed) = (with(&[TargetState::Uploaded]), with(&[TargetState::Failed]));
    status.selected = i32::try_from(status.targets.len()).unwrap_or(i32::MAX);
    status.succeeded = succeeded;
    status.failed = failed;
    status.active = status.selected - succeeded - failed;
}

/// The current condition comes first: the printer column shows the first one's reason.
fn conditions(
    old: &[Condition],
    verdict: &ConditionReason,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let outcome = verdict.reason.outcome();
    let refused = outcome == RequestOutcome::Refused;
    let failed = refused || outcome == RequestOutcome::Failed;
    let accepted = if refused || outcome == RequestOutcome::Held {
        (condition::ACCEPTED, false, verdict.reason.to_string())
    } else {
        (condition::ACCEPTED, true, condition::ACCEPTED.to_owned())
    };
    let complete = (
        condition::COMPLETE,
        outcome == RequestOutcome::Complete,
        verdict.reason.to_string(),
    );
    let failure = (condition::FAILED, failed, verdict.reason.to_string());
    let ordered = if failed {
        [failure, complete, accepted]
    } else {
        [complete, failure, accepted]
    };
    let words = told(&verdict.message, remedy(verdict.reason));
    let condition = |(kind, holds, reason): (&str, bool, String)| {
        let status = if holds { "True" } else { "False" };
        let message = match reason.as_str() {
            "Accepted" => String::new(),
            _ => words.clone(),
        };
        let unchanged = old
            .iter()
            .find(|old| old.type_ == kind && old.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason,
            message,
            observed_generation: generation,
            last_transition_time: unchanged
                .map_or(Time(now), |old| old.last_transition_time.clone()),
        }
    };
    ordered.into_iter().map(condition).collect()
}

/// The verdict while the request's samplers are under way.
pub fn progress(targets: &[TargetStatus]) -> ConditionReason {
    let has = |state| targets.iter().any(|target| target.state == state);
    let pods = pods(targets.len());
    if has(TargetState::Sampling) {
        return ConditionReason {
            reason: RequestReason::Sampling,
            message: match first_reason(targets, TargetState::Sampling) {
                silent if silent.is_empty() => format!("sampling {pods}"),
                silent => format!("sampling {pods}; {silent}"),
            },
        };
    }
    if has(TargetState::Pending) {
        return ConditionReason {
            reason: RequestReason::Starting,
            message: format!("starting samplers in {pods}"),
        };
    }
    ConditionReason {
        reason: RequestReason::Collecting,
        message: format!("collecting the profiles of {pods}"),
    }
}

/// The verdict on a request if no pod has a profile.
pub fn all_failed(targets: &[TargetStatus]) -> ConditionReason {
    ConditionReason {
        reason: RequestReason::AllTargetsFailed,
        message: first_failure(targets),
    }
}

/// The first failure, for the condition's message. The targets have all of them.
fn first_failure(targets: &[TargetStatus]) -> String {
    first_reason(targets, TargetState::Failed)
}

/// The first pod in this state that has a reason, with the number of such pods. Empty if there is
/// none.
fn first_reason(targets: &[TargetStatus], state: TargetState) -> String {
    let told = |target: &&TargetStatus| target.state == state && target.reason.is_some();
    let mut told = targets.iter().filter(told);
    let Some(first) = told.next() else {
        return String::new();
    };
    let reason = first.reason.map(|reason| reason.to_string());
    let of_all = match told.count() {
        0 => String::new(),
        more => format!(", the first of {}", more + 1),
    };
    format!(
        "pod {}{of_all}: {}: {}",
        first.pod_name,
        reason.unwrap_or_default(),
        first.message
    )
}

/// The verdict on a request whose merged profile is stored.
pub fn completed(targets: &[TargetStatus]) -> ConditionReason {
    let uploaded = targets
        .iter()
        .filter(|target| target.state == TargetState::Uploaded)
        .count();
    let samples: i64 = targets.iter().filter_map(|target| target.samples).sum();
    // What is in heaps is not sampled over time, so nothing says that PHP did no work.
    let is_sampled = targets.iter().any(|target| target.quality.is_some());
    if uploaded == targets.len() && samples == 0 && is_sampled {
        return ConditionReason {
            reason: RequestReason::NoSamples,
            message: format!(
                "profiled {}{}, but PHP did no work",
                pods(uploaded),
                container_note(targets)
            ),
        };
    }
    if uploaded == targets.len() {
        // Some profiles may have been cut short.
        let cut = first_reason(targets, TargetState::Uploaded);
        let separator = if cut.is_empty() { "" } else { "; " };
        return ConditionReason {
            reason: RequestReason::Complete,
            message: format!(
                "profiled {}{}{separator}{cut}{}",
                pods(uploaded),
                container_note(targets),
                unnamed(targets)
            ),
        };
    }
    let message = format!(
        "profiled {uploaded} of {}{}; {}",
        pods(targets.len()),
        container_note(targets),
        first_failure(targets)
    );
    ConditionReason {
        reason: RequestReason::SomeTargetsFailed,
        message: message + &unnamed(targets),
    }
}

/// Which container was chosen, if neither the request nor the pods named it; else empty. It goes
/// behind a number of pods.
pub fn container_note(targets: &[TargetStatus]) -> String {
    let by = |target: &TargetStatus| match target.container_choice? {
        ContainerChoice::Name => Some("its name"),
        ContainerChoice::Image => Some("its image"),
        ContainerChoice::Request | ContainerChoice::Annotation | ContainerChoice::Only => None,
    };
    let mut chosen = targets.iter().filter_map(|target| {
        let by = by(target)?;
        Some((target.container_name.as_str(), by))
    });
    let Some((name, by)) = chosen.next() else {
        return String::new();
    };
    let others = if chosen.any(|(other, _)| other != name) {
        ", and others of other pods"
    } else {
        ""
    };
    format!(" (container {name}{others}, chosen by {by})")
}

/// What to add to the message of profiles of which too much has no name; empty for others.
fn unnamed(targets: &[TargetStatus]) -> String {
    let counts = targets.iter().filter_map(|target| {
        let quality = target.quality.as_ref()?;
        Some(Counts {
            samples: target.samples?,
            unstable: quality.unstable,
            unnamed: quality.unnamed,
            restarts: 0,
        })
    });
    let all = counts.fold(Counts::default(), Counts::and);
    all.told()
        .map_or_else(String::new, |told| format!("; {told}"))
}

/// A number of pods, in words.
pub fn pods(count: usize) -> String {
    match count {
        1 => "1 pod".to_owned(),
        _ => format!("{count} pods"),
    }
}

/// Whether the target has reached its final state.
pub fn is_terminal(target: &TargetStatus) -> bool {
    matches!(target.state, TargetState::Uploaded | TargetState::Failed)
}

/// Whether the request has its final state.
pub fn is_over(request: &ProfileRequest) -> bool {
    let status = request.status.as_ref();
    status.is_some_and(|status| status.completion_time.is_some())
}

/// Whether the request may have samplers that have not ended.
pub fn is_running(request: &ProfileRequest) -> bool {
    request
        .status
        .as_ref()
        .is_some_and(|status| status.start_time.is_some() && status.completion_time.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_failure_still_ends_with_its_remedy() {
        let remedy = TargetReason::InjectionRefused.remedy();
        for (found, length) in [
            ("", 0),
            ("no.", 4),
            (&*"x".repeat(9999), MESSAGE - remedy.len()),
        ] {
            let mut target = TargetStatus::default();
            fail(&mut target, TargetReason::InjectionRefused, found);
            let before = target.message.strip_suffix(remedy);
            assert_eq!(before.map(str::len), Some(length), "{}", target.message);
        }
    }

    #[test]
    fn a_guessed_container_is_named() {
        let target = |name: &str, choice| TargetStatus {
            container_name: name.to_owned(),
            container_choice: choice,
            state: TargetState::Uploaded,
            samples: Some(7),
            ..TargetStatus::default()
        };
        let message = |targets: &[TargetStatus]| completed(targets).message;
        for choice in [
            None,
            Some(ContainerChoice::Request),
            Some(ContainerChoice::Annotation),
            Some(ContainerChoice::Only),
        ] {
            assert_eq!(message(&[target("fpm", choice)]), "profiled 1 pod");
        }
        let (name, image) = (Some(ContainerChoice::Name), Some(ContainerChoice::Image));
        assert_eq!(
            message(&[target("fpm", name), target("fpm", name)]),
            "profiled 2 pods (container fpm, chosen by its name)"
        );
        assert_eq!(
            message(&[target("app", image), target("fpm", name)]),
            "profiled 2 pods (container app, and others of other pods, chosen by its image)"
        );
    }

    #[test]
    fn completed_says_that_much_has_no_name() {
        let target = |samples: i64, unstable: i64, unnamed: i64| TargetStatus {
            state: TargetState::Uploaded,
            samples: Some(samples),
            quality: Some(phpprof_crds::ProfileQuality {
                unstable,
                unnamed,
                ..phpprof_crds::ProfileQuality::default()
            }),
            ..TargetStatus::default()
        };
        let message = |targets: &[TargetStatus]| completed(targets).message;
        let document = phpprof_profile::unnamed::DOCUMENT;
        assert_eq!(
            message(&[target(900, 300, 290), target(100, 0, 0)]),
            format!(
                "profiled 2 pods; 30 % of the samples could not be named: names that could not be checked; {document}"
            )
        );
        assert_eq!(message(&[target(1000, 100, 100)]), "profiled 1 pod");
        assert_eq!(message(&[target(1000, -1, 0)]), "profiled 1 pod");
    }

    #[test]
    fn a_finished_condition_has_the_remedy_once() {
        let message = |reason| {
            let mut status = ProfileRequestStatus::default();
            let message = "found".to_owned();
            let verdict = ConditionReason { reason, message };
            settle(&mut status, verdict, None, Timestamp::UNIX_EPOCH);
            status.conditions.swap_remove(0).message
        };
        assert_eq!(message(RequestReason::Queued), "found");
        assert_eq!(message(RequestReason::AllTargetsFailed), "found");
        let remedy = RequestReason::NoSamples.remedy().unwrap();
        assert_eq!(
            message(RequestReason::NoSamples),
            format!("found. {remedy}")
        );
    }
}
