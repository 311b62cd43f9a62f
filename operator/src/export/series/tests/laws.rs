//! Pyroscope and Parca accept every push with its totals, for any names of requests, pods,
//! functions and labels.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;
use crate::export::receivers;

/// The API server's pattern for the name of a Pod or a Deployment.
const SUBDOMAIN: &str = "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?";
const NAMESPACE: &str = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
const LABEL_VALUE: &str = "([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?";
/// The longest duration of a request.
const HOUR: i64 = 3600;
/// The time from a request's end to its last push: another operator begins again within ten
/// minutes, and tries for five.
const LATEST: i64 = 1200;

fn target() -> impl Strategy<Value = Value> {
    prop_oneof![
        SUBDOMAIN.prop_map(|name| json!({"workloadRef": {
            "apiVersion": "apps/v1", "kind": "Deployment", "name": name,
        }})),
        SUBDOMAIN.prop_map(|name| json!({"podName": name})),
        (LABEL_VALUE, any::<bool>()).prop_map(|(value, is_app)| {
            let key = if is_app { "app" } else { "example.org/tier" };
            json!({"selector": {"matchLabels": {key: value}}})
        }),
    ]
}

/// As flags. Values that the operator refuses are left out.
fn extra() -> impl Strategy<Value = Vec<ExtraLabel>> {
    let flag = prop_oneof![
        "[a-zA-Z_.0-9]{1,20}=\\PC{0,40}",
        "\\PC{0,8}=.*",
        ".*",
        "a{1000,1030}=(é|\")*"
    ];
    let flags = vec(flag, 0..2 * MOST_LABELS);
    flags.prop_map(|flags| {
        let taken = flags.iter().filter_map(|flag| flag.parse().ok());
        let by_name: BTreeMap<String, ExtraLabel> = taken
            .map(|label: ExtraLabel| (label.name.clone(), label))
            .collect();
        by_name.into_values().take(MOST_LABELS).collect()
    })
}

/// The name of a function or a file.
fn name() -> impl Strategy<Value = String> {
    let long = ".{1,4}".prop_map(|part| part.repeat(66_000 / part.len()));
    prop_oneof![40 => ".*", 1 => long]
}

prop_compose! {
    fn naming()(labels in extra(), per_pod: bool, request_label: bool) -> Naming {
        Naming { labels, per_pod, request_label }
    }
}

prop_compose! {
    fn ended()(
        target in target(),
        namespace in NAMESPACE,
        name in SUBDOMAIN,
        pods in btree_map(SUBDOMAIN, NAMESPACE, 1..4),
        seconds in 1..=HOUR,
    ) -> ProfileRequest {
        let mut request = request(json!({"target": target}));
        request.metadata.namespace = Some(namespace);
        request.metadata.name = Some(name);
        let target = |(pod, container): (String, String)| TargetStatus {
            pod_name: pod,
            container_name: container,
            state: TargetState::Uploaded,
            ..TargetStatus::default()
        };
        request.status = Some(ProfileRequestStatus {
            start_time: Some(Time(at(0))),
            completion_time: Some(Time(at(seconds))),
            targets: pods.into_iter().map(target).collect(),
            ..ProfileRequestStatus::default()
        });
        request
    }
}

/// A profile with a stack of such functions and files for each pod. Its time comes from a node's
/// clock, which may be wrong.
fn profile(names: &[(String, String)], pods: &[TargetStatus], seconds: i64) -> Profile {
    let mut builder = Builder::new(Settings {
        time_nanos: i64::try_from(at(seconds).as_nanosecond()).unwrap(),
        duration_nanos: 1,
        ..Settings::default()
    });
    let frames: Vec<FrameRef<'_>> = names
        .iter()
        .map(|(name, file)| FrameRef {
            name,
            file,
            ..FrameRef::default()
        })
        .collect();
    for pod in pods {
        let labels = [
            SampleTag::Str("pod", &pod.pod_name),
            SampleTag::Str("route", "/a b"),
        ];
        builder.add(&frames, &[1, 3, 10], &labels);
    }
    builder.finish()
}

proptest! {
    #[test]
    fn receivers_take_every_push_and_its_total(
        request in ended(),
        naming in naming(),
        names in vec((name(), name()), 0..40),
        skew in -2 * HOUR..2 * HOUR,
        late in 0..LATEST,
    ) {
        let status = request.status.clone().unwrap();
        let profile = profile(&names, &status.targets, skew);
        let now = status.completion_time.unwrap().0 + Duration::from_secs(late.unsigned_abs());
        let mut sum = 0;
        for series in series(&request, &naming) {
            for body in bodies(&profile, &series, &request).unwrap() {
                let (labels, piece) = pushed(&body);
                prop_assert_eq!(receivers::pyroscope(&labels, &piece, now), Ok(()));
                prop_assert_eq!(receivers::parca(&labels, &piece), Ok(()));
                sum += total(&piece, series.kind.sample_type.0);
            }
        }
        prop_assert_eq!(sum, 13 * i64::try_from(status.targets.len()).unwrap());
    }
}
