//! The life of a comparison: what it waits for, what it creates, and how it ends.

use jiff::SignedDuration;
use phpprof_crds::{
    ComparisonReason, ProfileComparison, ProfileComparisonStatus, ProfileRequest, REQUESTED_BY,
};
use phpprof_decide::testing::{at, request};
use serde_json::{Value, json};

use super::decision::{ComparisonStep, ComparisonWords, SideRequest, decide, end, store_deadline};
use super::requests::{SideName, is_owned, request_of};
use super::status;

mod statuses;

const BOTH: [SideName; 2] = SideName::BOTH;

fn comparison(spec: Value) -> ProfileComparison {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
        "metadata": {"name": "web", "namespace": "shop", "uid": "c1", "generation": 1,
            "annotations": {REQUESTED_BY: "ann", "x": "y"}},
        "spec": spec,
    }))
    .expect("a comparison that the schema accepts")
}

fn of_requests() -> ProfileComparison {
    let mut comparison =
        comparison(json!({"before": {"request": "old"}, "after": {"request": "new"}}));
    comparison.status = Some(status::begun(&comparison, at(0)));
    comparison
}

pub fn of_targets() -> ProfileComparison {
    let pod = |name: &str| json!({"target": {"podName": name}});
    let mut comparison = comparison(json!({"before": pod("a"), "after": pod("b")}));
    comparison.status = Some(status::begun(&comparison, at(0)));
    comparison
}

/// A request with this status.
fn named(name: &str, status: Value) -> ProfileRequest {
    let mut request = request(json!({"target": {"podName": "a"}, "labels": ["Route"]}));
    request.metadata.name = Some(name.to_owned());
    request.status = serde_json::from_value(status).unwrap();
    request
}

fn condition(reason: &str) -> Value {
    json!([{"type": "Complete", "status": "True", "reason": reason, "message": "so it is",
        "lastTransitionTime": "2026-09-21T14:13:20Z"}])
}

#[test]
fn an_archive_that_is_away_is_tried_on() {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let mut comparison = comparison(json!({
        "before": {"archive": {"workloadRef": web}}, "after": {"target": {"podName": "b"}},
    }));
    comparison.status = Some(status::begun(&comparison, at(0)));
    let away = SideRequest::ArchiveAway("the store is away".to_owned());
    let seen = [away, SideRequest::NotCreated];
    let ComparisonStep::Wait(words) = decide(at(599), &comparison, &seen) else {
        panic!("it waits, and creates nothing");
    };
    assert_eq!(words.reason, ComparisonReason::WaitingForStore);
    let ComparisonStep::End { why, cancel } = decide(at(600), &comparison, &seen) else {
        panic!("it ends");
    };
    assert_eq!(
        (why.reason, cancel),
        (ComparisonReason::StoreTimeout, vec![])
    );
}

fn ended(name: &str) -> SideRequest {
    ended_at(name, 0)
}

fn ended_at(name: &str, second: i64) -> SideRequest {
    let status = json!({
        "startTime": at(second), "completionTime": at(second + 40), "conditions": condition("Complete"),
        "profile": {"url": "file:///x", "samples": 7, "sizeBytes": 7},
    });
    there(named(name, status))
}

fn there(request: ProfileRequest) -> SideRequest {
    SideRequest::There(Box::new(request))
}

fn running(name: &str) -> SideRequest {
    there(named(name, json!({"conditions": condition("Sampling")})))
}

fn failed(name: &str) -> SideRequest {
    let status = json!({"completionTime": at(9), "conditions": condition("NoPodsMatched")});
    there(named(name, status))
}

#[track_caller]
fn check_end(step: ComparisonStep, reason: ComparisonReason, words: &str, cancelled: &[SideName]) {
    let ComparisonStep::End { why, cancel } = step else {
        panic!("{step:?}");
    };
    assert_eq!(why.reason, reason);
    assert!(why.found.contains(words), "{}", why.found);
    assert_eq!(cancel, cancelled);
}

#[track_caller]
fn check_wait(step: ComparisonStep, words: &str) {
    let ComparisonStep::Wait(why) = step else {
        panic!("{step:?}");
    };
    assert_eq!(why.reason, ComparisonReason::WaitingForRequests);
    assert!(why.found.contains(words), "{}", why.found);
}

#[test]
fn both_requests_are_created_in_one_step() {
    let new = [SideRequest::NotCreated, SideRequest::NotCreated];
    let step = decide(at(0), &of_targets(), &new);
    assert_eq!(step, ComparisonStep::Create(BOTH.to_vec()));
    let rest = [running("web-before"), SideRequest::NotCreated];
    let step = decide(at(0), &of_targets(), &rest);
    assert_eq!(step, ComparisonStep::Create(vec![SideName::After]));
}

#[test]
fn created_requests_follow_from_the_comparison() {
    let mut comparison = of_targets();
    comparison.spec.duration_seconds = Some(90);
    comparison.spec.ttl_seconds_after_finished = 60;
    let [before, after] = BOTH.map(|side| request_of(&comparison, side).unwrap());
    assert_eq!(before, request_of(&comparison, SideName::Before).unwrap());
    let names = [&before, &after].map(|it| it.metadata.name.clone().unwrap());
    assert_eq!(names, ["web-before", "web-after"]);
    assert!(is_owned(&before, &comparison) && is_owned(&after, &comparison));
    let pods = [&before, &after].map(|it| it.spec.target.pod_name.clone().unwrap());
    assert_eq!(pods, ["a", "b"]);
    let spec = serde_json::to_value(&before.spec).unwrap();
    assert_eq!(spec["labels"], json!(["Route"]));
    let numbers = [
        &spec["durationSeconds"],
        &spec["samplesPerSecond"],
        &spec["ttlSecondsAfterFinished"],
    ];
    assert_eq!(numbers, [90, 99, 60]);
    // Only the name that a policy holds true, and no right to block the owner's deletion.
    let annotations = before.metadata.annotations.unwrap();
    assert_eq!(
        annotations,
        [(REQUESTED_BY.to_owned(), "ann".to_owned())].into()
    );
    let owner = &before.metadata.owner_references.unwrap()[0];
    assert_eq!(
        (owner.controller, owner.block_owner_deletion),
        (Some(true), None)
    );
    let mut other = comparison.clone();
    other.metadata.uid = Some("c2".to_owned());
    assert!(!is_owned(&after, &other));
    other.metadata.uid = None;
    assert!(!is_owned(&after, &other));
}

#[test]
fn running_requests_are_waited_for() {
    let step = decide(at(9), &of_requests(), &[ended("old"), running("new")]);
    check_wait(step, "request new (after) is Sampling: so it is");
    let none = there(named("old", Value::Null));
    check_wait(
        decide(at(9), &of_requests(), &[none, ended("new")]),
        "old (before) is new",
    );
    let both = [running("web-before"), running("web-after")];
    let step = decide(at(9), &of_targets(), &both);
    check_wait(step, "web-after (after)");
}

#[test]
fn a_named_request_may_appear_later() {
    let seen = [SideRequest::Missing, ended("new")];
    check_wait(
        decide(at(29), &of_requests(), &seen),
        "request old (before) does not exist yet",
    );
    let step = decide(at(31), &of_requests(), &seen);
    check_end(
        step,
        ComparisonReason::RequestNotFound,
        "request old (before)",
        &[],
    );
}

#[test]
fn a_created_request_that_is_gone_ends_it() {
    let seen = [SideRequest::Missing, running("web-after")];
    let step = decide(at(1), &of_targets(), &seen);
    let reason = ComparisonReason::RequestNotFound;
    check_end(
        step,
        reason,
        "request web-before (before)",
        &[SideName::After],
    );
}

#[test]
fn a_failed_request_ends_both() {
    let step = decide(
        at(10),
        &of_targets(),
        &[failed("web-before"), running("web-after")],
    );
    let reason = ComparisonReason::RequestFailed;
    check_end(step, reason, "NoPodsMatched: so it is", &[SideName::After]);
    // Requests that the comparison has not created go on.
    let step = decide(at(10), &of_requests(), &[failed("old"), running("new")]);
    check_end(step, reason, "old", &[]);
}

#[test]
fn cancel_ends_it_at_any_time() {
    let reason = ComparisonReason::ComparisonCancelled;
    let check =
        |mut comparison: ProfileComparison, seen: [SideRequest; 2], cancelled: &[SideName]| {
            comparison.spec.cancel = true;
            check_end(
                decide(at(1), &comparison, &seen),
                reason,
                "cancelled",
                cancelled,
            );
        };
    check(
        of_targets(),
        [SideRequest::NotCreated, SideRequest::NotCreated],
        &[],
    );
    check(
        of_targets(),
        [running("web-before"), ended("web-after")],
        &[SideName::Before],
    );
    check(of_targets(), [ended("web-before"), ended("web-after")], &[]);
    check(of_requests(), [running("old"), running("new")], &[]);
    let mut cancelled = named("web-before", json!({"conditions": condition("Sampling")}));
    cancelled.spec.cancel = true;
    check(of_targets(), [there(cancelled), ended("web-after")], &[]);
}

#[track_caller]
fn notes(comparison: &ProfileComparison, seen: &[SideRequest; 2]) -> Vec<ComparisonReason> {
    match decide(at(99), comparison, seen) {
        ComparisonStep::Compare { notes, .. } => notes.iter().map(|it| it.reason).collect(),
        step => panic!("{step:?}"),
    }
}

#[test]
fn finished_requests_are_compared_with_their_notes() {
    assert_eq!(notes(&of_requests(), &[ended("old"), ended("new")]), []);
    let partly = json!({
        "completionTime": at(9), "conditions": condition("SomeTargetsFailed"),
        "profile": {"url": "file:///x", "samples": 7, "sizeBytes": 7},
    });
    let seen = [ended("old"), there(named("new", partly))];
    assert_eq!(
        notes(&of_requests(), &seen),
        [ComparisonReason::RequestIncomplete]
    );
    // Named requests need not run together, targets do.
    let apart = [ended_at("web-before", 0), ended_at("web-after", 31)];
    assert_eq!(notes(&of_requests(), &apart), []);
    assert_eq!(notes(&of_targets(), &apart), [ComparisonReason::RunsApart]);
    let together = [ended_at("web-before", 0), ended_at("web-after", 30)];
    assert_eq!(notes(&of_targets(), &together), []);
}

#[test]
fn an_ended_comparison_only_waits_for_its_deletion() {
    let mut comparison = of_targets();
    comparison.spec.ttl_seconds_after_finished = 60;
    comparison.spec.cancel = true;
    let status = ProfileComparisonStatus {
        completion_time: serde_json::from_value(json!(at(10))).unwrap(),
        ..ProfileComparisonStatus::default()
    };
    comparison.status = Some(status);
    let seen = [SideRequest::Missing, SideRequest::NotCreated];
    assert_eq!(
        decide(at(69), &comparison, &seen),
        ComparisonStep::Rest(at(70))
    );
    assert_eq!(decide(at(70), &comparison, &seen), ComparisonStep::Delete);
}

#[test]
fn the_store_is_tried_after_the_last_end() {
    let requests = |seen: [SideRequest; 2]| {
        seen.map(|it| match it {
            SideRequest::There(request) => *request,
            other => panic!("{other:?}"),
        })
    };
    let grace = SignedDuration::from_secs(300);
    let both = requests([ended_at("old", 0), ended_at("new", 100)]);
    assert_eq!(store_deadline(&of_requests(), &both, grace), at(440));
    // Requests that ended long ago are tried from the comparison's start.
    let old = requests([ended_at("old", -9999), ended_at("new", -9999)]);
    assert_eq!(store_deadline(&of_requests(), &old, grace), at(300));
}

#[test]
fn an_end_cancels_only_what_runs() {
    let why = || ComparisonWords::new(ComparisonReason::ProfileGone, "x");
    let seen = [ended("web-before"), running("web-after")];
    check_end(
        end(&of_targets(), &seen, why()),
        ComparisonReason::ProfileGone,
        "x",
        &[SideName::After],
    );
}
