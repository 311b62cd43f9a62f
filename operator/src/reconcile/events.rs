//! Events: of requests, made from the difference between two statuses, and of comparisons.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use phpprof_crds::{
    ComparisonVerdict, EventReason, ProfileComparisonStatus, ProfileRequest, ProfileRequestStatus,
    REQUESTED_BY, RequestReason, TargetState, TargetStatus,
};

use crate::export::exported::Exported;
use crate::lifecycle::status::pods;
use crate::sampler::receipt::printable;

/// The longest note that the API server accepts.
const NOTE: usize = 1000;

/// The events of one change. A pod has at most one, and only if there is something to report,
/// because each event is a call.
pub fn between(
    request: &ProfileRequest,
    old: &ProfileRequestStatus,
    new: &ProfileRequestStatus,
) -> Vec<Event> {
    let mut events = Vec::new();
    if old.start_time.is_none() && new.start_time.is_some() {
        let note = format!("{}{}", message(new), requested_by(request));
        events.push(event(EventType::Normal, EventReason::Accepted, note, None));
    }
    for target in &new.targets {
        let before = old.targets.iter().find(|old| old.pod_uid == target.pod_uid);
        if before.is_none_or(|before| before.state != target.state) {
            events.extend(of_target(request, target));
        }
    }
    if old.completion_time.is_none() && new.completion_time.is_some() {
        events.extend(of_end(new));
    }
    events
}

/// Samplers were added to this many pods.
pub fn injected(count: usize) -> Event {
    event(
        EventType::Normal,
        EventReason::Injected,
        format!("added samplers to {}", pods(count)),
        None,
    )
}

/// The result of an export to a service outside the cluster.
pub fn exported(exported: Exported) -> Event {
    let kind = if exported.is_done {
        EventType::Normal
    } else {
        EventType::Warning
    };
    event(kind, exported.reason, exported.note, None)
}

/// The requests of a comparison's targets were created.
pub fn requests_created(note: &str) -> Event {
    let reason = EventReason::RequestsCreated;
    event(EventType::Normal, reason, note.to_owned(), None)
}

/// The end of a comparison.
pub fn compared(status: &ProfileComparisonStatus) -> Event {
    let current = status.conditions.first();
    let message = current.map_or("", |it| it.message.as_str());
    let why = current.map_or("", |it| it.reason.as_str());
    let (kind, reason) = match status.verdict {
        Some(ComparisonVerdict::Better | ComparisonVerdict::NoChange) => {
            (EventType::Normal, EventReason::Decided)
        }
        Some(ComparisonVerdict::Worse) => (EventType::Warning, EventReason::Decided),
        Some(ComparisonVerdict::Inconclusive) | None => {
            (EventType::Warning, EventReason::Undecided)
        }
    };
    let note = match status.verdict {
        Some(verdict) => format!("{verdict:?} ({why}): {message}"),
        None => format!("{why}: {message}"),
    };
    event(kind, reason, note, None)
}

fn of_target(request: &ProfileRequest, target: &TargetStatus) -> Option<Event> {
    let pod = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(target.pod_name.clone()),
        namespace: request.metadata.namespace.clone(),
        uid: Some(target.pod_uid.clone()),
        ..ObjectReference::default()
    };
    match target.state {
        // The request's last event covers the pods that succeeded.
        TargetState::Uploaded => {
            let reason = target.reason?;
            let samples = target.samples.unwrap_or_default();
            let (name, message) = (&target.pod_name, &target.message);
            let note = format!("pod {name}: {samples} samples stored; {reason}: {message}");
            Some(event(
                EventType::Warning,
                EventReason::Uploaded,
                note,
                Some(pod),
            ))
        }
        TargetState::Failed => {
            let reason = target
                .reason
                .map(|reason| reason.to_string())
                .unwrap_or_default();
            let note = format!("pod {}: {reason}: {}", target.pod_name, target.message);
            Some(event(
                EventType::Warning,
                EventReason::TargetFailed,
                note,
                Some(pod),
            ))
        }
        TargetState::Pending | TargetState::Sampling | TargetState::Verifying => None,
    }
}

fn of_end(status: &ProfileRequestStatus) -> Option<Event> {
    let current = status.conditions.first()?;
    let complete = current.type_ == phpprof_crds::condition::COMPLETE;
    let note = format!("{}: {}", current.reason, current.message);
    Some(if !complete {
        event(EventType::Warning, EventReason::Failed, note, None)
    } else if current.reason == RequestReason::Complete.to_string() {
        event(
            EventType::Normal,
            EventReason::Complete,
            message(status),
            None,
        )
    } else {
        event(EventType::Warning, EventReason::Complete, note, None)
    })
}

fn requested_by(request: &ProfileRequest) -> String {
    let annotations = request.metadata.annotations.as_ref();
    let name = annotations.and_then(|all| all.get(REQUESTED_BY));
    name.map_or_else(String::new, |name| format!("; requested by {name}"))
}

fn message(status: &ProfileRequestStatus) -> String {
    status
        .conditions
        .first()
        .map(|condition| condition.message.clone())
        .unwrap_or_default()
}

fn event(
    kind: EventType,
    reason: EventReason,
    note: String,
    pod: Option<ObjectReference>,
) -> Event {
    Event {
        type_: kind,
        reason: reason.to_string(),
        note: Some(printable(&note, NOTE)),
        action: "Profiling".to_owned(),
        secondary: pod,
    }
}

#[cfg(test)]
mod tests {
    use phpprof_crds::TargetReason;
    use serde_json::json;

    use super::*;
    use crate::testing::request;

    fn target(name: &str, state: TargetState, reason: Option<TargetReason>) -> TargetStatus {
        TargetStatus {
            pod_name: name.into(),
            pod_uid: name.into(),
            state,
            reason,
            message: "so it is".into(),
            ..TargetStatus::default()
        }
    }

    #[test]
    fn each_pod_event_is_told_once() {
        let request = request(json!({"target": {"podName": "web"}}));
        let (open, over) = (TargetState::Sampling, TargetState::Uploaded);
        let targets = |well, cut, failed| ProfileRequestStatus {
            targets: vec![
                target("well", well, None),
                target("cut", cut, Some(TargetReason::TargetExited)),
                target("failed", failed, Some(TargetReason::NoPhpFound)),
            ],
            ..ProfileRequestStatus::default()
        };
        let old = targets(open, open, open);
        let new = targets(over, over, TargetState::Failed);
        let notes = |old, new| -> Vec<String> {
            let events = between(&request, old, new).into_iter();
            events.filter_map(|event| event.note).collect()
        };
        let expected = [
            "pod cut: 0 samples stored; TargetExited: so it is",
            "pod failed: NoPhpFound: so it is",
        ];
        assert_eq!(notes(&old, &new), expected);
        assert!(notes(&new, &new).is_empty());
    }
}
