//! The CEL rules of the CRD, evaluated as the API server does.

use phpprof_crds::{ProfileArchive, ProfileRequest};
use serde_json::{Value, json};

fn request(spec: Value) -> ProfileRequest {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {"name": "first"}, "spec": spec,
    }))
    .expect("a request that the schema accepts")
}

/// `expected` is the message of the refusal, or empty where the request is accepted.
#[track_caller]
fn check(spec: Value, expected: &str) {
    let errors = match request(spec).validate_cel() {
        Ok(()) => String::new(),
        Err(errors) => errors
            .iter()
            .map(|error| error.message.clone())
            .collect::<Vec<_>>()
            .join("; "),
    };
    assert_eq!(errors, expected);
}

#[track_caller]
fn check_update(old: Value, new: Value, expected: &str) {
    let errors = match request(new).validate_cel_update(&request(old)) {
        Ok(()) => String::new(),
        Err(errors) => errors
            .iter()
            .map(|error| error.message.clone())
            .collect::<Vec<_>>()
            .join("; "),
    };
    assert_eq!(errors, expected);
}

#[test]
fn each_kind_of_target_is_accepted_alone() {
    check(json!({"target": {"podName": "web-7d9f5c6b8-x2x4z"}}), "");
    check(
        json!({"target": {"selector": {"matchLabels": {"app": "web"}}}}),
        "",
    );
    check(
        json!({"target": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}}),
        "",
    );
    check(
        json!({"target": {"workloadRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}}}),
        "",
    );
}

#[test]
fn no_target_or_two_targets_are_refused() {
    let message = "target needs exactly one of podName, selector and workloadRef";
    check(json!({"target": {}}), message);
    check(
        json!({"target": {"podName": "a", "selector": {"matchLabels": {"app": "web"}}}}),
        message,
    );
}

#[test]
fn a_selector_that_would_match_everything_is_refused() {
    check(
        json!({"target": {"selector": {}}}),
        "selector must not be empty; name labels in matchLabels or matchExpressions",
    );
}

#[test]
fn selectors_are_bounded() {
    let labels = |count: usize, length: usize| -> serde_json::Map<String, Value> {
        let label = |number: usize| (format!("{number:0length$}"), json!("web"));
        (0..count).map(label).collect()
    };
    let labelled = |labels: Value| json!({"target": {"selector": {"matchLabels": labels}}});
    check(labelled(labels(64, 100).into()), "");
    check(
        labelled(labels(65, 10).into()),
        "selector must have at most 64 labels and expressions in total",
    );
    check(
        labelled(labels(1, 318).into()),
        "the key of a label must have at most 317 characters: a prefix of 253, a slash and a name of 63",
    );
    let long = "selector must have at most 12288 characters in all its keys and values; name fewer of them";
    check(labelled(labels(64, 190).into()), long);
    let values = vec!["x".repeat(63); 64];
    let expressions = vec![json!({"key": "app", "operator": "In", "values": values}); 4];
    check(
        json!({"target": {"selector": {"matchExpressions": expressions}}}),
        long,
    );
    let both = json!({"matchLabels": labels(64, 10), "matchExpressions": [{"key": "app", "operator": "Exists"}]});
    check(
        json!({"target": {"selector": both}}),
        "selector must have at most 64 labels and expressions in total",
    );
}

#[test]
fn label_values_with_other_characters_are_refused() {
    let message = "the value of a label must have only letters, digits, -, _ and ., with a letter or digit at both ends, for instance web";
    check(
        json!({"target": {"selector": {"matchLabels": {"app": "web shop"}}}}),
        message,
    );
    let expression = json!({"key": "app", "operator": "In", "values": ["web,shop"]});
    check(
        json!({"target": {"selector": {"matchExpressions": [expression]}}}),
        message,
    );
    check(
        json!({"target": {"selector": {"matchLabels": {"app": ""}}}}),
        "",
    );
}

#[test]
fn durations_out_of_range_are_refused() {
    let message = "durationSeconds must be from 1 to 3600, for instance 30";
    check(
        json!({"target": {"podName": "a"}, "durationSeconds": 0}),
        message,
    );
    check(
        json!({"target": {"podName": "a"}, "durationSeconds": 1_000_000}),
        message,
    );
}

#[test]
fn numbers_out_of_range_are_refused() {
    check(
        json!({"target": {"podName": "a"}, "samplesPerSecond": 1001}),
        "samplesPerSecond must be from 1 to 1000, for instance 99",
    );
    check(
        json!({"target": {"podName": "a", "maxPods": 0}}),
        "maxPods must be from 1 to 100, for instance 5",
    );
    check(
        json!({"target": {"podName": "a"}, "ttlSecondsAfterFinished": -1}),
        "ttlSecondsAfterFinished must be from 0 to 2147483647, for instance 604800 for a week",
    );
}

#[test]
fn names_that_could_leave_paths_are_refused() {
    check(
        json!({"target": {"podName": "../../kube-system/pods/a"}}),
        "podName must be the name of one pod, with only lower-case letters, digits, - and ., for instance web-7d9f5c6b8-x2x4z",
    );
    check(
        json!({"target": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a/b"}}}),
        "name must be the name of the workload, with only lower-case letters, digits, - and ., for instance web",
    );
}

#[test]
fn users_are_ids_of_ordinary_users() {
    check(
        json!({"target": {"podName": "a", "runAsUser": 0}}),
        "runAsUser must be the non-root user id that PHP runs as, from 1 to 4294967294, for instance 1000; leave it out for root",
    );
    check(
        json!({"target": {"podName": "a", "runAsGroup": 5}}),
        "runAsGroup needs runAsUser too",
    );
}

#[test]
fn specs_change_only_in_end_and_retention() {
    let with = |field: &str, value: Value| {
        let mut spec = json!({"target": {"podName": "a"}});
        spec[field] = value;
        spec
    };
    let old = json!({"target": {"podName": "a"}});
    for (field, value) in [
        ("ttlSecondsAfterFinished", json!(60)),
        ("profileRetentionSeconds", json!(3600)),
        ("suspend", json!(true)),
        ("cancel", json!(true)),
    ] {
        check_update(old.clone(), with(field, value), "");
    }
    let message = "the spec cannot be changed, except cancel, suspend, profileRetentionSeconds and ttlSecondsAfterFinished; create another ProfileRequest instead";
    check_update(old.clone(), json!({"target": {"podName": "b"}}), message);
    check_update(old.clone(), with("durationSeconds", json!(31)), message);
    check_update(with("suspend", json!(true)), old.clone(), "");
    check_update(
        with("cancel", json!(true)),
        old,
        "cancel cannot be undone; create another ProfileRequest instead",
    );
}

fn archive(name: &str, generation: i64) -> ProfileArchive {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileArchive", "metadata": {"name": name},
        "spec": {"accessKeyGeneration": generation},
    }))
    .expect("an archive that the schema accepts")
}

#[test]
fn archive_keys_rotate_in_one_direction() {
    let refused = |from: i64, to: i64| {
        let checked = archive("profiles", to).validate_cel_update(&archive("profiles", from));
        checked.err().map(|errors| errors[0].message.clone())
    };
    assert_eq!(refused(1, 1), None);
    assert_eq!(refused(1, 2), None);
    let message = "accessKeyGeneration cannot go down, because old access keys would open the archive again; raise it instead";
    assert_eq!(refused(2, 1).as_deref(), Some(message));
    assert!(archive("profiles", -1).validate_cel().is_err());
}

#[test]
fn a_live_request_goes_over_the_relay() {
    let live =
        |mode: &str| json!({"target": {"podName": "web"}, "mode": "Live", "uploadMode": mode});
    check(live("Auto"), "");
    check(live("Relay"), "");
    check(
        live("Direct"),
        "a live request needs the relay: leave uploadMode out",
    );
}

#[test]
fn suspended_fibers_go_without_a_filter() {
    let filter = json!({"pathPrefix": "/shop"});
    let with = |is_on: bool, filter: &Value| json!({"target": {"podName": "web"}, "includeSuspended": is_on, "filter": filter});
    check(with(true, &Value::Null), "");
    check(with(false, &filter), "");
    check(
        with(true, &filter),
        "a suspended fiber belongs to no HTTP request: leave filter out, or includeSuspended",
    );
}

/// A request for what is in the heaps, with one field more or changed.
fn of_heaps(field: &str, value: Value) -> Value {
    let mut spec = json!({"target": {"podName": "web"}, "mode": "Heap", "durationSeconds": 1});
    spec[field] = value;
    spec
}

#[test]
fn what_heaps_hold_is_read_once() {
    for taken in [
        of_heaps("durationSeconds", json!(1)),
        of_heaps("labels", json!([])),
        // This is the default, which a rule cannot tell from a request for it.
        of_heaps("labels", json!(["Script"])),
        of_heaps("uploadMode", json!("Direct")),
        of_heaps("samplerMode", json!("Once")),
    ] {
        check(taken, "");
    }
    check(
        of_heaps("durationSeconds", json!(30)),
        "mode: Heap reads each heap once: set durationSeconds to 1",
    );
    let spec = json!({"target": {"podName": "web"}, "mode": "Heap"});
    check(
        spec,
        "mode: Heap reads each heap once: set durationSeconds to 1",
    );
}

#[test]
fn what_samples_have_is_refused_for_heaps() {
    let of_no_request = |field: &str| {
        format!("what is in a heap belongs to no HTTP request: leave {field} out for mode: Heap")
    };
    for (field, value, message) in [
        (
            "heap",
            json!(true),
            "heap: true means growth over time; leave it out for mode: Heap".to_owned(),
        ),
        (
            "filter",
            json!({"pathPrefix": "/shop"}),
            of_no_request("filter"),
        ),
        (
            "labels",
            json!(["Script", "Route"]),
            of_no_request("labels"),
        ),
        (
            "includeIdle",
            json!(true),
            "mode: Heap reads idle workers too: leave includeIdle out".to_owned(),
        ),
        (
            "includeSuspended",
            json!(true),
            "mode: Heap shows what suspended fibers hold: leave includeSuspended out".to_owned(),
        ),
    ] {
        check(of_heaps(field, value), &message);
    }
}
