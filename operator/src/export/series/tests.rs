//! Names that receivers accept, and profiles that add up.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use phpprof_crds::{ProfileRequestStatus, TargetStatus};
use phpprof_profile::{Builder, DecodeLimits, FrameRef, SampleTag, Settings, decode, total};

use super::*;
use crate::testing::{at, request};

fn naming() -> Naming {
    Naming {
        labels: vec!["cluster=prod".parse().unwrap()],
        per_pod: true,
        request_label: false,
    }
}

/// A request for a Deployment. The pods web-1 and web-2 have profiles, and web-3 has none.
fn completed() -> ProfileRequest {
    let mut request = request(json!({"target": {"workloadRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
    }}}));
    let target = |pod: &str, state| TargetStatus {
        pod_name: pod.into(),
        container_name: "fpm".into(),
        state,
        ..TargetStatus::default()
    };
    request.status = Some(ProfileRequestStatus {
        start_time: Some(Time(at(0))),
        completion_time: Some(Time(at(31))),
        targets: vec![
            target("web-3", TargetState::Failed),
            target("web-1", TargetState::Uploaded),
            target("web-2", TargetState::Uploaded),
        ],
        ..ProfileRequestStatus::default()
    });
    request
}

/// This many stacks for each pod, with 10 ms of wall time and 3 ms of CPU time each.
fn merged(stacks: usize) -> Profile {
    let mut builder = Builder::new(Settings {
        time_nanos: 1,
        ..Settings::default()
    });
    for stack in 0..stacks {
        let name = format!("function{stack}");
        let frame = FrameRef {
            name: &name,
            ..FrameRef::default()
        };
        for pod in ["web-1", "web-2"] {
            let labels = [SampleTag::Str("pod", pod), SampleTag::Num("pid", 7, "")];
            builder.add(&[frame], &[1, 3_000_000, 10_000_000], &labels);
        }
    }
    builder.finish()
}

fn pushed(body: &str) -> (Vec<(String, String)>, Profile) {
    let body: Value = serde_json::from_str(body).unwrap();
    let series = &body["series"][0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let labels = series["labels"].as_array().unwrap().iter();
    let labels = labels
        .map(|label| (text(&label["name"]), text(&label["value"])))
        .collect();
    let profile = text(&series["samples"][0]["rawProfile"]);
    let profile = STANDARD.decode(profile).unwrap();
    // A receiver takes longer names than a sampler writes.
    let limits = DecodeLimits {
        string: LONGEST_STRING,
        ..DecodeLimits::default()
    };
    (labels, decode(&profile, &limits).unwrap())
}

#[test]
fn each_profiled_pod_has_a_series_per_type() {
    let all = series(&completed(), &naming());
    assert_eq!(all.len(), 4);
    let shown: Vec<String> = all[0]
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        shown,
        [
            "__name__=wall",
            "service_name=shop/web",
            "namespace=shop",
            "workload=web",
            "pod=web-1",
            "container=fpm",
            "cluster=prod"
        ]
    );
}

#[test]
fn labels_of_single_requests_appear_only_if_wanted() {
    let has_name = |naming: &Naming| {
        let all = series(&completed(), naming);
        all.iter()
            .all(|series| series.labels.iter().any(|(_, value)| value == "first"))
    };
    assert!(!has_name(&naming()));
    let wanted = Naming {
        request_label: true,
        ..naming()
    };
    assert!(has_name(&wanted));
}

#[test]
fn all_pods_can_be_one_series() {
    let together = Naming {
        per_pod: false,
        ..naming()
    };
    let all = series(&completed(), &together);
    assert_eq!(all.len(), 2);
    let bodies = bodies(&merged(3), &all[0], &completed()).unwrap();
    let (_, profile) = pushed(&bodies[0]);
    assert_eq!(total(&profile, "wall"), 60_000_000);
}

#[test]
fn a_push_has_one_type_and_pod_totals() {
    let all = series(&completed(), &naming());
    let totals: Vec<i64> = all
        .iter()
        .map(|series| {
            let bodies = bodies(&merged(3), series, &completed()).unwrap();
            assert_eq!(bodies.len(), 1);
            let (labels, profile) = pushed(&bodies[0]);
            assert_eq!(labels, series.labels);
            let (name, _) = series.kind.sample_type;
            assert_eq!(profile.sample_types().count(), 1);
            assert!(profile.sample.iter().all(|sample| sample.label.is_empty()));
            total(&profile, name)
        })
        .collect();
    assert_eq!(totals, [30_000_000, 9_000_000, 30_000_000, 9_000_000]);
}

#[test]
fn a_too_large_profile_goes_in_timed_pieces() {
    let all = series(&completed(), &naming());
    let bodies = bodies(&merged(20_000), &all[0], &completed()).unwrap();
    assert_eq!(bodies.len(), 2);
    let profiles: Vec<Profile> = bodies.iter().map(|body| pushed(body).1).collect();
    let sum: i64 = profiles.iter().map(|profile| total(profile, "wall")).sum();
    assert_eq!(sum, 200_000_000_000);
    let times: Vec<i64> = profiles.iter().map(|profile| profile.time_nanos).collect();
    let start = i64::try_from(at(0).as_nanosecond()).unwrap();
    assert_eq!(times, [start, start + 1_000_000]);
}

#[test]
fn a_profile_is_never_pushed_in_part() {
    let one_each = PieceBounds {
        samples: 1,
        ..BOUNDS
    };
    let all = series(&completed(), &naming());
    let made = |stacks: usize| pieces(&merged(stacks), &all[0], &one_each).map(|them| them.len());
    assert_eq!(made(MOST_PIECES), Ok(MOST_PIECES));
    assert_eq!(made(MOST_PIECES + 1), Err(TooLarge(MOST_PIECES + 1)));
}

#[test]
fn an_hours_run_is_young_enough_for_pyroscope() {
    let mut request = completed();
    let hour = Time(at(3600));
    request.status.as_mut().unwrap().completion_time = Some(hour.clone());
    let time = time_of(&merged(1), &request, 0);
    let age = i64::try_from(hour.0.as_nanosecond()).unwrap() - time;
    assert_eq!(age, 40 * 60 * 1_000_000_000);
}

#[track_caller]
fn check_workload(target: Value, expected: &str) {
    let target: ProfileTarget = serde_json::from_value(target).unwrap();
    assert_eq!(workload(&target), expected);
}

#[test]
fn pods_have_the_names_from_the_request() {
    check_workload(json!({"podName": "web-1"}), "web-1");
    check_workload(
        json!({"selector": {"matchLabels": {"a": "b", "app": "web"}}}),
        "web",
    );
    check_workload(json!({"selector": {"matchLabels": {"tier": "web"}}}), "web");
    let any = json!([{"key": "app", "operator": "Exists"}]);
    check_workload(json!({"selector": {"matchExpressions": any}}), "selected");
}

#[track_caller]
fn refused(label: &str, words: &str) {
    let said = label.parse::<ExtraLabel>().unwrap_err();
    assert!(said.contains(words), "{said}");
}

#[test]
fn labels_that_receivers_refuse_fail_at_the_start() {
    refused("cluster", "NAME=VALUE");
    refused("my-cluster=a", "letters, digits and _");
    refused("1cluster=a", "do not begin with a digit");
    refused("=a", "not a label name");
    refused("pod=a", "already has the label");
    refused("__name__=a", "already has the label");
    let long = "x".repeat(2049);
    refused(&format!("cluster={long}"), "a value 2048");
    refused(&format!("{long}=a"), "at most 1024 bytes");
}

#[test]
fn profile_types_have_the_names_in_queries() {
    let ids = KINDS.map(|kind| kind.id());
    assert_eq!(ids[0], "wall:wall:nanoseconds:wall:nanoseconds");
    assert_eq!(ids[1], "process_cpu:cpu:nanoseconds:cpu:nanoseconds");
}

mod laws;
