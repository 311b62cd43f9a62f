//! Requests that wait: for their turn, for an API server, for the end of a stop, or for a job on
//! the store.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::lifecycle::observed::{Blind, Halt, Queued};

fn blind(since: i64, retry: i64) -> ObservedCluster {
    ObservedCluster {
        blind: Some(Blind {
            message: "reading namespace shop failed: forbidden".into(),
            since: at(since),
            retry_at: at(retry),
        }),
        ..ObservedCluster::default()
    }
}

#[test]
fn a_gone_pods_run_is_sought_in_store() {
    let limits = AdminLimits::default();
    let status = decide(at(0), &request(spec()), &admission(&["a"]), &limits).status;
    let mut request = request(spec());
    request.status = Some(status);
    // The profile, and the checkpoints at 5, 10 and 20 s that were due.
    for (now, keys) in [(9, 2), (31, 4)] {
        let expected = format!("Collecting; recovery {keys}; on change");
        check(now, &request, &pods(&[]), &expected);
    }
    let under_way = ObservedCluster {
        under_way: [JobKey::Target("uid-of-a".into())].into(),
        ..pods(&[])
    };
    check(31, &request, &under_way, "Starting; ; on change");
}

#[test]
fn an_unobservable_request_quotes_the_api_server() {
    let limits = AdminLimits::default();
    check(9, &request(spec()), &blind(1, 11), "; ; at 11");
    let given_up = decide(at(61), &request(spec()), &blind(1, 62), &limits);
    let condition = &given_up.status.conditions[0];
    assert_eq!(condition.reason, "ObserveFailed");
    assert_eq!(
        condition.message,
        "reading namespace shop failed: forbidden. Create another request when the API server answers; the operator's log has the errors."
    );
    let mut running = request(spec());
    running.status = Some(decide(at(0), &running, &admission(&["a"]), &limits).status);
    check(9, &running, &blind(1, 11), "Starting; ; at 11");
    // Slack, slack and duration, upload deadline, grace: 60 + 60 + 30 + 600 + 300.
    let given_up = decide(at(1051), &running, &blind(1, 1052), &limits);
    let target = &given_up.status.targets[0];
    assert_eq!(target.reason, Some(TargetReason::ObserveFailed));
    assert_eq!(given_up.next, NextLook::Now);
}

#[test]
fn a_request_waits_for_its_turn_within_bounds() {
    let queued = |since| ObservedCluster {
        queued: Some(Queued {
            place: 2,
            of: 5,
            since: at(since),
        }),
        ..ObservedCluster::default()
    };
    check(9, &request(spec()), &queued(0), "Queued; ; at 39");
    let decision = decide(at(9), &request(spec()), &queued(0), &AdminLimits::default());
    let accepted = &decision.status.conditions[2];
    assert_eq!(
        (accepted.type_.as_str(), accepted.status.as_str()),
        ("Accepted", "False")
    );
    assert!(accepted.message.starts_with("place 2 of 5 in the queue"));
    check_refusal(
        spec(),
        &AdminLimits {
            queue_timeout: SignedDuration::from_secs(0),
            ..AdminLimits::default()
        },
        &queued(0),
        "QueueTimeout: the request's turn did not come within 0 s. Create another request, or fewer at the same time; the administrator may raise limits.requestsPerNamespace, limits.requests, limits.samplersPerNode or queueTimeoutSeconds in the chart.",
    );
    let mut full = admission(&["a"]);
    if let Some(admission) = &mut full.admission {
        admission.samplers = [("node".to_owned(), 16)].into();
    }
    check(9, &request(spec()), &full, "Queued; ; at 39");
    check(600, &request(spec()), &full, "QueueTimeout; ; now");
}

#[test]
fn stopped_profiling_stops_samplers_and_holds_requests() {
    let stop = |observed| ObservedCluster {
        halted: Some(Halt::Stopped(
            "the administrator has stopped profiling".into(),
        )),
        ..observed
    };
    let held = stop(ObservedCluster::default());
    check(9, &request(spec()), &held, "ProfilingDisabled; ; at 19");
    let running = with(accepted(&["a", "b"]));
    let half = stop(pods(&[("a", Some(SamplerState::Running)), ("b", None)]));
    check(9, &running, &half, "Sampling; stop uid-of-a; at 695");
    let decision = decide(at(9), &running, &half, &AdminLimits::default());
    let failed = &decision.status.targets[0];
    assert_eq!(failed.reason, Some(TargetReason::Cancelled));
    assert_eq!(
        failed.message,
        "the administrator has stopped profiling before this pod's sampler was added. Create another request."
    );
}

#[test]
fn an_unread_switch_begins_and_ends_nothing() {
    let unknown = |observed| ObservedCluster {
        halted: Some(Halt::Unknown),
        ..observed
    };
    let new = unknown(ObservedCluster::default());
    check(9, &request(spec()), &new, "ProfilingDisabled; ; at 19");
    let running = with(accepted(&["a", "b"]));
    let half = unknown(pods(&[("a", Some(SamplerState::Running)), ("b", None)]));
    check(9, &running, &half, "Sampling; ; at 19");
    let cancelled = ProfileRequest {
        spec: phpprof_crds::ProfileRequestSpec {
            cancel: true,
            ..running.spec.clone()
        },
        ..running
    };
    check(9, &cancelled, &half, "Sampling; stop uid-of-a; at 695");
}

#[test]
fn a_finished_request_has_its_newest_version_observed() {
    let mut finished = request(spec());
    finished.status = Some(ProfileRequestStatus {
        completion_time: Some(Time(at(9))),
        observed_generation: Some(1),
        ..ProfileRequestStatus::default()
    });
    finished.metadata.generation = Some(2);
    let decision = decide(
        at(10),
        &finished,
        &ObservedCluster::default(),
        &AdminLimits::default(),
    );
    assert_eq!(decision.status.observed_generation, Some(2));
}

#[test]
fn a_recent_result_is_told_once_across_restarts() {
    let limits = AdminLimits {
        exports: true,
        ..AdminLimits::default()
    };
    let mut finished = request(spec());
    finished.status = Some(ProfileRequestStatus {
        completion_time: Some(Time(at(0))),
        profile: Some(ProfileResult::default()),
        ..ProfileRequestStatus::default()
    });
    let jobs = |second: i64, request: &ProfileRequest, observed: &ObservedCluster| {
        decide(at(second), request, observed, &limits).jobs
    };
    let nothing = ObservedCluster::default();
    assert_eq!(jobs(1, &finished, &nothing), [Job::Export]);
    assert_eq!(jobs(599, &finished, &nothing), [Job::Export]);
    assert_eq!(jobs(600, &finished, &nothing), []);
    let under_way = ObservedCluster {
        under_way: [JobKey::Export].into(),
        ..ObservedCluster::default()
    };
    assert_eq!(jobs(1, &finished, &under_way), []);
    let mut status = finished.status.clone().expect("finished");
    record(&mut status, &[Done::Exported], Some(1), at(2));
    assert_eq!(status.export_time, Some(Time(at(2))));
    finished.status = Some(status);
    assert_eq!(jobs(3, &finished, &nothing), []);
}

/// Checks a run of five minutes whose pod is gone at this second.
#[track_caller]
fn check_gone(second: i64, limits: &AdminLimits, observed: &ObservedCluster, expected: &str) {
    let target = json!({"selector": {"matchLabels": {"app": "web"}}});
    let mut request = request(json!({"target": target, "durationSeconds": 300}));
    request.status = Some(decide(at(0), &request, &admission(&["a"]), limits).status);
    assert_eq!(
        short(&decide(at(second), &request, observed, limits)),
        expected
    );
}

#[test]
fn a_cut_off_runs_checkpoints_are_sought_too() {
    let (limits, gone) = (AdminLimits::default(), pods(&[]));
    for (second, keys) in [(30, 4), (200, 8), (9999, 9)] {
        let expected = format!("Collecting; recovery {keys}; on change");
        check_gone(second, &limits, &gone, &expected);
    }
    // The sampler has said what is wrong with PHP. A checkpoint would not change that.
    let refused = pods(&[("a", ended(r#"{"reason":"NoPhpFound"}"#))]);
    check_gone(200, &limits, &refused, "Collecting; ; now");
    let late = pods(&[("a", ended(r#"{"reason":"UploadDeadlineExceeded"}"#))]);
    check_gone(200, &limits, &late, "Collecting; recovery 8; on change");
}

#[test]
fn an_absent_store_is_not_asked_for_ever() {
    let (limits, gone) = (AdminLimits::default(), pods(&[]));
    let away = trouble(gone, 202);
    check_gone(200, &limits, &away, "WaitingForStore; ; at 202");
    check_gone(
        202,
        &limits,
        &away,
        "WaitingForStore; recovery 8; on change",
    );
    // Slack, slack and duration, upload deadline, grace: 60 + 60 + 300 + 600 + 300.
    check_gone(1321, &limits, &away, "WaitingForStore; ; now");
}

#[test]
fn a_silent_sampler_is_reported_until_heard() {
    let limits = AdminLimits {
        store_signs: false,
        ..AdminLimits::default()
    };
    let since = |second: i64| {
        let mut observed = pods(&[("a", Some(SamplerState::Running))]);
        observed.silent_since = [("uid-of-a".to_owned(), at(second))].into();
        if let Some(pod) = observed.pods.get_mut("uid-of-a") {
            pod.names_trouble = Some("the pod's dnsPolicy is Default".into());
        }
        observed
    };
    let mut status = accepted(&["a"]);
    let mut looked = |second, since| {
        let decision = decide(at(second), &with(status.clone()), &since, &limits);
        status = decision.status;
        (
            decision.next,
            status.targets[0].clone(),
            status.conditions[0].message.clone(),
        )
    };
    let (next, target, _) = looked(10, since(5));
    assert_eq!((next, target.reason), (NextLook::At(at(35)), None));
    let (next, target, message) = looked(35, since(5));
    assert_eq!(target.reason, Some(TargetReason::NotHeardFrom));
    assert_eq!(
        (next, target.state),
        (NextLook::At(at(45)), TargetState::Sampling)
    );
    assert!(
        message.starts_with("sampling 1 pod; pod a: NotHeardFrom: ")
            && message.contains("dnsPolicy is Default"),
        "{message}"
    );
    let (_, target, message) = looked(46, since(45));
    assert_eq!((target.reason, target.message.as_str()), (None, ""));
    assert_eq!(message, "sampling 1 pod");
    // What it has stored in the end is not marked either.
    looked(76, since(45));
    let stored = decide(
        at(80),
        &with(status),
        &pods(&[("a", ended(RECEIPT))]),
        &limits,
    );
    assert_eq!(stored.status.targets[0].reason, None);
}
