//! Which alerts start a request, and what the status says of those that do not.

use jiff::Timestamp;
use kube::ResourceExt as _;
use phpprof_crds::{
    ProfileTrigger, ProfileTriggerStatus, REQUESTED_BY, TRIGGER_LABEL, TriggerReason,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::alerts::FiringAlert;
use super::decision::{FiringPlan, REMEMBERED, TriggerWords, decide};
use super::report::{CreatedRequest, FiringReport};
use super::requests::{is_created_by, request_name, request_of};
use crate::testing::at;

/// A trigger for alerts of `web`, with these fields of its spec changed.
fn trigger(fields: Value) -> ProfileTrigger {
    let mut spec = json!({
        "when": {"alert": {"matchLabels": {"alertname": "Slow", "app": "web"}}},
        "template": {"target": {"podName": "web"}, "durationSeconds": 5},
        "limit": {"requests": 3, "windowSeconds": 3600}, "backOffSeconds": 0,
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    let object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileTrigger", "spec": spec,
        "metadata": {"name": "slow", "namespace": "shop", "uid": "t1", "generation": 2,
            "annotations": {REQUESTED_BY: "ann", "other": "x"}},
    });
    serde_json::from_value(object).unwrap()
}

fn alert(number: usize) -> FiringAlert {
    labelled(
        number,
        &[("alertname", "Slow"), ("app", "web"), ("severity", "page")],
    )
}

fn labelled(number: usize, labels: &[(&str, &str)]) -> FiringAlert {
    let labels = labels
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    FiringAlert {
        labels: labels.collect(),
        fingerprint: format!("{number:016x}"),
        starts_at: at(0),
    }
}

fn reason(plan: &FiringPlan) -> Option<TriggerReason> {
    plan.why.as_ref().map(|it| it.reason)
}

/// Decides, creates everything, and keeps the status, as the shell does.
fn fire(trigger: &mut ProfileTrigger, now: Timestamp, alerts: &[FiringAlert]) -> FiringReport {
    let plan = decide(now, trigger, None, alerts);
    let created = plan.create.iter().map(|name| CreatedRequest {
        name: name.clone(),
        uid: format!("uid-of-{name}"),
    });
    let report = FiringReport::of(&plan, created.collect(), Vec::new());
    let status = trigger.status.get_or_insert_default();
    status.requests = plan.requests;
    let _ = report.add_to(status, Some(2), now);
    report
}

fn status(trigger: &ProfileTrigger) -> &ProfileTriggerStatus {
    trigger.status.as_ref().unwrap()
}

#[test]
fn an_alert_with_the_labels_starts_a_request() {
    let mut fires = trigger(json!({}));
    let report = fire(&mut fires, at(10), &[alert(1)]);
    let name = request_name(&fires, &alert(1));
    assert_eq!(report.words.unwrap().reason, TriggerReason::RequestCreated);
    let status = status(&fires);
    assert_eq!(status.requests[0].name, name);
    assert_eq!(status.requests[0].request_uid, format!("uid-of-{name}"));
    let last = status.last_alert.as_ref().unwrap();
    assert_eq!(
        (last.name.as_str(), last.fingerprint.as_str()),
        ("Slow", "0000000000000001")
    );
    let fired = &status.conditions[0];
    assert_eq!(
        (fired.type_.as_str(), fired.status.as_str()),
        ("Fired", "True")
    );
    assert_eq!(fired.observed_generation, Some(2));
}

#[test]
fn a_repetition_starts_no_second_request() {
    let mut fires = trigger(json!({}));
    fire(&mut fires, at(0), &[alert(1)]);
    // Twice in one payload, and again days later.
    for now in [at(60), at(9 * 86_400)] {
        let report = fire(&mut fires, now, &[alert(1), alert(1)]);
        assert_eq!(report.words.unwrap().reason, TriggerReason::AlertRepeated);
    }
    let status = status(&fires);
    assert_eq!((status.created, status.repeated, status.alerts), (1, 4, 5));
    assert_eq!(status.conditions[0].status, "False");
    // The same labels fire anew.
    let mut anew = alert(1);
    anew.starts_at = at(100);
    let plan = decide(at(9 * 86_400), &fires, None, &[anew.clone(), anew]);
    assert_eq!((plan.create.len(), plan.repeated), (1, 1));
}

#[test]
fn other_labels_start_nothing_and_are_explained() {
    let fires = trigger(json!({}));
    for (labels, lacks) in [
        (&[][..], "alertname=\"Slow\""),
        (&[("alertname", "Slow")], "app=\"web\""),
        (&[("alertname", "Slow"), ("app", "cart")], "app=\"web\""),
        (
            &[("alertname", "slow"), ("app", "web")],
            "alertname=\"Slow\"",
        ),
    ] {
        let plan = decide(at(0), &fires, None, &[labelled(1, labels)]);
        assert_eq!((plan.alerts, plan.create.len()), (0, 0));
        let why = plan.why.unwrap();
        assert_eq!(why.reason, TriggerReason::NoAlertMatched);
        assert!(
            why.found.ends_with(&format!("lacks {lacks}")),
            "{}",
            why.found
        );
    }
    assert_eq!(decide(at(0), &fires, None, &[]), FiringPlan::default());
}

#[test]
fn what_holds_a_trigger_back_is_said() {
    let suspended = trigger(json!({"suspend": true}));
    let plan = decide(at(0), &suspended, Some("stopped"), &[alert(1)]);
    assert_eq!(
        (reason(&plan), plan.not_fired),
        (Some(TriggerReason::TriggerSuspended), 1)
    );
    let plan = decide(at(0), &trigger(json!({})), Some("stopped"), &[alert(1)]);
    assert_eq!(reason(&plan), Some(TriggerReason::ProfilingStopped));
    assert!(plan.create.is_empty() && plan.requests.is_empty());
    let mut backs_off = trigger(json!({"backOffSeconds": 300}));
    fire(&mut backs_off, at(0), &[alert(1)]);
    let plan = decide(at(299), &backs_off, None, &[alert(2)]);
    assert_eq!(reason(&plan), Some(TriggerReason::BackingOff));
    assert!(decide(at(300), &backs_off, None, &[alert(2)]).why.is_none());
    // What it has started before is a repetition all the same.
    backs_off.spec.suspend = true;
    assert_eq!(decide(at(1), &backs_off, None, &[alert(1)]).repeated, 1);
}

#[test]
fn a_thousand_alerts_stay_within_the_limit() {
    let mut fires = trigger(json!({}));
    let storm: Vec<_> = (0..1000).map(alert).collect();
    let report = fire(&mut fires, at(0), &storm);
    assert_eq!(report.created.len(), 3);
    let words = report.words.unwrap();
    assert!(
        words
            .found
            .contains("none for 997 other alerts: LimitReached, 3 requests within 3600 s"),
        "{}",
        words.found
    );
    assert_eq!(status(&fires).not_fired, 997);
    // The same and others, until the window is over.
    let more: Vec<_> = (500..1500).map(alert).collect();
    for now in [at(1), at(3599)] {
        assert!(fire(&mut fires, now, &more).created.is_empty());
    }
    assert_eq!(fire(&mut fires, at(3600), &more).created.len(), 3);
    let status = status(&fires);
    assert_eq!(
        status.alerts,
        status.created + status.repeated + status.not_fired
    );
}

#[test]
fn one_payload_obeys_the_back_off() {
    let mut fires = trigger(json!({"backOffSeconds": 60}));
    let report = fire(&mut fires, at(0), &[alert(1), alert(2)]);
    assert_eq!(report.created.len(), 1);
    assert!(report.words.unwrap().found.contains("BackingOff"));
}

#[test]
fn a_failed_request_is_tried_again_in_place() {
    let mut fires = trigger(json!({"backOffSeconds": 300}));
    let plan = decide(at(0), &fires, None, &[alert(1)]);
    let words = TriggerWords::new(TriggerReason::CreationFailed, "no answer");
    let report = FiringReport::of(&plan, Vec::new(), vec![words]);
    let status = fires.status.get_or_insert_default();
    status.requests = plan.requests;
    assert!(report.add_to(status, None, at(0)));
    assert_eq!(
        (status.not_fired, status.created, status.requests.len()),
        (1, 0, 1)
    );
    assert_eq!(status.conditions[0].reason, "CreationFailed");
    let again = decide(at(1), &fires, None, &[alert(1)]);
    assert_eq!((again.create.len(), again.requests.len()), (1, 1));
    // It counts for the back-off.
    assert_eq!(
        reason(&decide(at(1), &fires, None, &[alert(2)])),
        Some(TriggerReason::BackingOff)
    );
}

#[test]
fn other_alerts_do_not_hide_the_last_reason() {
    let mut fires = trigger(json!({}));
    let other = [labelled(7, &[("alertname", "Other")])];
    fire(&mut fires, at(0), &other);
    assert_eq!(status(&fires).conditions[0].reason, "NoAlertMatched");
    fire(&mut fires, at(1), &[alert(1)]);
    fire(&mut fires, at(100), &other);
    assert_eq!(status(&fires).conditions[0].reason, "RequestCreated");
    assert_eq!(status(&fires).last_asked_time.as_ref().unwrap().0, at(100));
    // Alerts that are nothing to it are written down twice a minute.
    let plan = decide(at(101), &fires, None, &other);
    let report = FiringReport::of(&plan, Vec::new(), Vec::new());
    let mut status = status(&fires).clone();
    assert!(!report.add_to(&mut status, None, at(101)));
    assert!(report.add_to(&mut status, None, at(130)));
}

#[test]
fn a_request_follows_from_trigger_and_alert() {
    let fires = trigger(json!({}));
    let name = request_name(&fires, &alert(1));
    assert!(name.starts_with("slow-") && name.len() == 17, "{name}");
    assert_eq!(name, request_name(&fires, &alert(1)));
    assert_ne!(name, request_name(&fires, &alert(2)));
    let request = request_of(&fires, &name);
    assert_eq!(request.spec, fires.spec.template);
    assert_eq!(request.namespace().as_deref(), Some("shop"));
    assert_eq!(request.labels()[TRIGGER_LABEL], "slow");
    let annotations = request.annotations().clone();
    assert_eq!(
        annotations,
        [(REQUESTED_BY.to_owned(), "ann".to_owned())].into()
    );
    assert!(is_created_by(&request, &fires));
    let mut later = fires.clone();
    later.metadata.uid = Some("t2".to_owned());
    assert!(!is_created_by(&request, &later));
    assert_ne!(name, request_name(&later, &alert(1)));
}

#[test]
fn a_status_has_nothing_long_of_an_alert() {
    let mut fires = trigger(json!({"when": {"alert": {"matchLabels": {"app": "web"}}}}));
    let long = "x\n".repeat(2000);
    let alert = labelled(
        1,
        &[("app", "web"), ("alertname", &long), ("secret", "4711")],
    );
    fire(&mut fires, at(0), &[alert]);
    let text = serde_json::to_string(status(&fires)).unwrap();
    assert!(
        text.len() < 2000 && !text.contains("4711") && !text.contains("\\n"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn no_window_has_more_requests_than_the_limit(
        limit in 1_usize..60, back_off in 0..400_i32,
        payloads in prop::collection::vec((0..2000_i64, 0_usize..40, 0_usize..60), 1..30),
    ) {
        let mut fires = trigger(json!({
            "limit": {"requests": limit, "windowSeconds": 600}, "backOffSeconds": back_off,
        }));
        let (mut now, mut created) = (0, Vec::new());
        for (wait, first, count) in payloads {
            now += wait;
            let alerts: Vec<_> = (first..first + count).map(alert).collect();
            let report = fire(&mut fires, at(now), &alerts);
            created.extend(report.created.iter().map(|it| (now, it.name.clone())));
            let status = status(&fires);
            prop_assert!(status.requests.len() <= REMEMBERED);
            prop_assert_eq!(status.alerts, status.created + status.repeated + status.not_fired);
        }
        let most = limit.min(REMEMBERED);
        for (nth, (time, _)) in created.iter().enumerate().skip(most) {
            prop_assert!(created[nth - most].0 + 600 <= *time);
        }
    }
}
