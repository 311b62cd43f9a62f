//! One request from its creation to its end, with all outcomes.

use phpprof_crds::{ProfileRequestStatus, UploadRoute};
use serde_json::{Value, json};

use super::*;
use crate::lifecycle::effect::{Done, record};
use crate::lifecycle::observed::{Admission, RequestRefusal, SamplerState, StoreTrouble};
use crate::sampler::receipt::{FullReceipt, UploadReceipt};
use crate::testing::{asks, at, pod, request, sampler};
use phpprof_crds::ProfileResult;

const SAMPLER: &str = "phpprof-0b1c2d3e-0";
const RECEIPT: &str = r#"{"reason":"Uploaded","samples":2970,"size":12345,"sha256":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}"#;

fn spec() -> Value {
    json!({"target": {"selector": {"matchLabels": {"app": "web"}}}, "durationSeconds": 30})
}

fn admission(pods: &[&str]) -> ObservedCluster {
    asks(crate::testing::admission(
        pods.iter().map(|name| pod(name)).collect(),
    ))
}

/// Pods whose samplers are in these states. A pod without a state has no sampler yet.
fn pods(states: &[(&str, Option<SamplerState>)]) -> ObservedCluster {
    let view = |(name, state): &(&str, Option<SamplerState>)| {
        let mut pod = pod(name);
        if let Some(state) = state {
            pod.samplers.insert(SAMPLER.into(), sampler(state.clone()));
        }
        (pod.uid.clone(), pod)
    };
    ObservedCluster {
        pods: states.iter().map(view).collect(),
        ..ObservedCluster::default()
    }
}

fn ended(message: &str) -> Option<SamplerState> {
    Some(SamplerState::Ended {
        exit_code: 0,
        message: message.into(),
        at: Some(at(40)),
    })
}

fn trouble(observed: ObservedCluster, retry_second: i64) -> ObservedCluster {
    let store_trouble = Some(StoreTrouble {
        message: "connection refused".into(),
        retry_at: at(retry_second),
    });
    ObservedCluster {
        store_trouble,
        ..observed
    }
}

fn with(status: ProfileRequestStatus) -> ProfileRequest {
    ProfileRequest {
        status: Some(status),
        ..request(spec())
    }
}

/// The status of a request that was accepted at second 0.
fn accepted(pods: &[&str]) -> ProfileRequestStatus {
    decide(
        at(0),
        &request(spec()),
        &admission(pods),
        &AdminLimits::default(),
    )
    .status
}

/// The decision in short: the current reason, the effects, the jobs and the time of the next
/// decision.
fn short(decision: &Decision) -> String {
    let reason = decision
        .status
        .conditions
        .first()
        .map(|condition| condition.reason.clone())
        .unwrap_or_default();
    let effect = |effect: &Effect| match effect {
        Effect::Inject(injection) => format!("inject {}", injection.subject.pod_name),
        Effect::Cancel(cancellation) => format!("stop {}", cancellation.pod_uid),
        Effect::DeleteRequest => "delete".to_owned(),
    };
    let job = |job: &Job| match job {
        Job::ReadReceipt(receipt) => format!("read {}", receipt.key),
        Job::Verify(upload) => format!("verify {}", upload.receipt.size),
        Job::Recover(recovery) => format!("recovery {}", recovery.keys.len()),
        Job::Merge => "merge".to_owned(),
        Job::List => "list".to_owned(),
        Job::Export => "export".to_owned(),
    };
    let effects = decision.effects.iter().map(effect);
    let effects: Vec<String> = effects.chain(decision.jobs.iter().map(job)).collect();
    let next = match decision.next {
        NextLook::OnChange => "on change".to_owned(),
        NextLook::Now => "now".to_owned(),
        NextLook::At(instant) => format!("at {}", instant.as_second() - at(0).as_second()),
    };
    format!("{reason}; {}; {next}", effects.join(", "))
}

#[track_caller]
fn check(second: i64, request: &ProfileRequest, observed: &ObservedCluster, expected: &str) {
    assert_eq!(
        short(&decide(
            at(second),
            request,
            observed,
            &AdminLimits::default()
        )),
        expected
    );
}

#[track_caller]
fn check_refusal(spec: Value, limits: &AdminLimits, observed: &ObservedCluster, expected: &str) {
    let decision = decide(at(0), &request(spec), observed, limits);
    let current = &decision.status.conditions[0];
    assert_eq!(
        (current.type_.as_str(), current.status.as_str()),
        ("Failed", "True")
    );
    assert_eq!(format!("{}: {}", current.reason, current.message), expected);
    assert!(
        decision.effects.is_empty()
            && decision.jobs.is_empty()
            && decision.status.targets.is_empty(),
        "something was started"
    );
    assert!(decision.status.completion_time.is_some());
}

#[test]
fn targets_are_in_the_status_before_injection() {
    let decision = decide(
        at(0),
        &request(spec()),
        &admission(&["a", "b"]),
        &AdminLimits::default(),
    );
    assert_eq!(short(&decision), "Starting; ; now");
    assert_eq!(decision.status.targets.len(), 2);
    let request = with(decision.status);
    let observed = pods(&[("a", None), ("b", None)]);
    check(
        1,
        &request,
        &observed,
        "Starting; inject a, inject b; on change",
    );
}

fn running(pods_: &[&str]) -> ObservedCluster {
    let states: Vec<_> = pods_
        .iter()
        .map(|pod| (*pod, Some(SamplerState::Running)))
        .collect();
    pods(&states)
}

#[test]
fn a_cancelled_request_tells_each_sampler_once() {
    let mut request = with(accepted(&["a", "b"]));
    request.spec.cancel = true;
    let mut observed = running(&["a"]);
    observed.pods.extend(pods(&[("b", None)]).pods);
    check(5, &request, &observed, "Sampling; stop uid-of-a; at 695");
    observed.stopped = ["uid-of-a".to_owned()].into();
    check(6, &request, &observed, "Sampling; ; at 695");
    let decision = decide(at(5), &request, &observed, &AdminLimits::default());
    let reasons: Vec<_> = decision
        .status
        .targets
        .iter()
        .map(|target| target.reason)
        .collect();
    assert_eq!(reasons, [Some(TargetReason::Cancelled), None]);
}

#[test]
fn a_waiting_request_can_start_or_be_cancelled() {
    let mut request = request(spec());
    request.spec.suspend = true;
    check(
        0,
        &request,
        &ObservedCluster::default(),
        "Suspended; ; on change",
    );
    let status = decide(
        at(0),
        &request,
        &ObservedCluster::default(),
        &AdminLimits::default(),
    )
    .status;
    assert_eq!(status.completion_time, None);
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.status == "False")
    );
    request.status = Some(status);
    request.spec.cancel = true;
    check(
        1,
        &request,
        &ObservedCluster::default(),
        "CancelledBeforeStart; ; now",
    );
    request.spec.cancel = false;
    request.spec.suspend = false;
    check(1, &request, &admission(&["a"]), "Starting; ; now");
}

#[test]
fn a_request_being_deleted_begins_nothing() {
    let mut request = with(accepted(&["a", "b"]));
    request.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(5)));
    check(
        5,
        &request,
        &ObservedCluster::default(),
        "Starting; ; on change",
    );
    let observed = pods(&[("a", None), ("b", None)]);
    check(5, &request, &observed, "Starting; ; on change");
}

#[test]
fn a_cancelled_request_completes_as_such() {
    let mut status = verified(accepted(&["a"]));
    record(&mut status, &[merged(true)], Some(1), at(43));
    let current = &status.conditions[0];
    assert_eq!(
        (
            current.type_.as_str(),
            current.reason.as_str(),
            current.message.as_str()
        ),
        ("Complete", "Cancelled", "cancelled; profiled 1 pod")
    );
}

fn merged(cancelled: bool) -> Done {
    Done::Merged {
        profile: ProfileResult {
            url: "s3://profiles/merged.pb.gz".into(),
            samples: 2970,
            size_bytes: 20_000,
            access_key: "q1w2e3r4t5y6u7i8o9p0aA".into(),
        },
        note: String::new(),
        changed: Vec::new(),
        links: Vec::new(),
        cancelled: cancelled.then(|| "cancelled".to_owned()),
    }
}

#[test]
fn receipts_are_verified_while_others_are_sampled() {
    let running = Some(SamplerState::Running);
    check(
        41,
        &with(accepted(&["a", "b"])),
        &pods(&[("a", ended(RECEIPT)), ("b", running)]),
        "Sampling; verify 12345; at 695",
    );
}

#[test]
fn when_all_targets_fail_the_first_reason_counts() {
    let observed = pods(&[("a", ended(r#"{"reason":"NoPhpFound"}"#))]);
    let decision = decide(
        at(41),
        &with(accepted(&["a"])),
        &observed,
        &AdminLimits::default(),
    );
    assert_eq!(short(&decision), "Collecting; ; now");
    let listing = decide(
        at(41),
        &with(decision.status),
        &observed,
        &AdminLimits::default(),
    );
    assert_eq!(short(&listing), "Collecting; list; now");
    let mut status = listing.status;
    record(&mut status, &[Done::Listed], Some(1), at(41));
    let decision = decide(at(41), &with(status), &observed, &AdminLimits::default());
    assert_eq!(decision.status.conditions[0].reason, "AllTargetsFailed");
    let message = &decision.status.conditions[0].message;
    assert!(
        message.starts_with("pod a: NoPhpFound: no process of container fpm runs PHP"),
        "{message}"
    );
    assert_eq!(decision.status.profile, None);
}

#[test]
fn a_failing_store_is_retried_and_given_up() {
    let request = with(accepted(&["a"]));
    let observed = pods(&[("a", ended(RECEIPT))]);
    check(
        41,
        &request,
        &trouble(observed.clone(), 43),
        "WaitingForStore; ; at 43",
    );
    check(
        43,
        &request,
        &trouble(observed.clone(), 43),
        "WaitingForStore; verify 12345; on change",
    );
    // Slack, slack and duration, upload deadline, grace: 60 + 60 + 30 + 600 + 300.
    check(
        1050,
        &request,
        &trouble(observed.clone(), 43),
        "WaitingForStore; verify 12345; on change",
    );
    let given_up = decide(
        at(1051),
        &request,
        &trouble(observed, 43),
        &AdminLimits::default(),
    );
    assert_eq!(
        given_up.status.targets[0].reason,
        Some(TargetReason::StoreUnavailable)
    );
}

fn verified(mut status: ProfileRequestStatus) -> ProfileRequestStatus {
    let receipt = UploadReceipt {
        route: Some(UploadRoute::Direct),
        samples: 2970,
        size: 12345,
        sha256: "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU".into(),
    };
    let full: FullReceipt = serde_json::from_str(include_str!("../../../../contract/comment.json"))
        .expect("the contract's receipt");
    record(
        &mut status,
        &[Done::Verified {
            pod_uid: "uid-of-a".into(),
            receipt,
            full: Box::new(full),
            cut_short: None,
        }],
        Some(1),
        at(42),
    );
    status
}

#[test]
fn a_merge_waits_for_the_store() {
    let request = with(verified(accepted(&["a"])));
    check(
        42,
        &request,
        &ObservedCluster::default(),
        "Collecting; merge; now",
    );
    check(
        42,
        &request,
        &trouble(ObservedCluster::default(), 44),
        "WaitingForStore; ; at 44",
    );
    check(
        44,
        &request,
        &trouble(ObservedCluster::default(), 44),
        "WaitingForStore; merge; now",
    );
    let given_up = decide(
        at(1051),
        &request,
        &trouble(ObservedCluster::default(), 44),
        &AdminLimits::default(),
    );
    assert_eq!(short(&given_up), "StoreUnavailable; ; now");
    assert_eq!(given_up.status.profile, None);
}

#[test]
fn a_finished_request_is_deleted_after_its_time() {
    let mut request = with(verified(accepted(&["a"])));
    request.spec.ttl_seconds_after_finished = 60;
    let mut status = request.status.clone().unwrap();
    record(&mut status, &[merged(false)], Some(1), at(43));
    request.status = Some(status);
    check(
        44,
        &request,
        &ObservedCluster::default(),
        "Complete; ; at 103",
    );
    check(
        103,
        &request,
        &ObservedCluster::default(),
        "Complete; delete; on change",
    );
}

#[test]
fn the_status_of_a_completed_request_reads_well() {
    let mut status = verified(accepted(&["a", "b"]));
    let failed = Done::TargetFailed {
        pod_uid: "uid-of-b".into(),
        reason: TargetReason::SizeMismatch,
        message: "the object has 1 bytes".into(),
    };
    record(&mut status, &[failed], Some(1), at(42));
    record(&mut status, &[merged(false)], Some(1), at(43));
    insta::assert_snapshot!(serde_json::to_string_pretty(&status).unwrap());
}

mod refusals;
mod waiting;
