//! The CEL rules of ProfileComparison, evaluated as the API server does.

use phpprof_crds::ProfileComparison;
use serde_json::{Value, json};

fn comparison(name: &str, spec: &Value) -> ProfileComparison {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison", "metadata": {"name": name}, "spec": spec,
    }))
    .expect("a comparison that the schema accepts")
}

/// A spec of two requests with these fields changed; null removes one.
fn with(fields: Value) -> Value {
    let mut spec = json!({"before": {"request": "old"}, "after": {"request": "new"}});
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    spec
}

fn pods(fields: Value) -> Value {
    let mut spec = with(json!({
        "before": {"target": {"podName": "a"}}, "after": {"target": {"podName": "b"}},
    }));
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    spec
}

/// `expected` is the message of the refusal, or empty where the comparison is accepted.
#[track_caller]
fn check(spec: &Value, expected: &str) {
    let checked = comparison("web", spec).validate_cel();
    let errors = checked.err().into_iter().flatten();
    let messages: Vec<String> = errors.map(|it| it.message).collect();
    assert_eq!(messages.join("; "), expected, "{spec}");
}

#[track_caller]
fn check_update(old: &Value, new: &Value, expected: &str) {
    let checked = comparison("web", new).validate_cel_update(&comparison("web", old));
    let errors = checked.err().into_iter().flatten();
    let messages: Vec<String> = errors.map(|it| it.message).collect();
    assert_eq!(messages.join("; "), expected, "{new}");
}

#[test]
fn each_kind_of_side_is_accepted() {
    check(&with(json!({})), "");
    check(&pods(json!({})), "");
    check(&pods(json!({"before": {"request": "old"}})), "");
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    check(
        &pods(json!({"after": {"target": {"workloadRef": workload}}})),
        "",
    );
    let hash = json!({"app": "web", "pod-template-hash": "7d9f5c6b8"});
    check(
        &pods(json!({"after": {"target": {"selector": {"matchLabels": hash}}}})),
        "",
    );
}

#[test]
fn no_side_or_two_in_one_are_refused() {
    let message = "a side needs exactly one of request, target and archive";
    check(&with(json!({"before": {}})), message);
    let both = json!({"request": "new", "target": {"podName": "a"}});
    check(&with(json!({"after": both})), message);
    let message = "target needs exactly one of podName, selector and workloadRef";
    check(&with(json!({"after": {"target": {}}})), message);
}

#[test]
fn a_request_is_not_compared_with_itself() {
    let same = with(json!({"after": {"request": "old"}}));
    check(&same, "before and after name the same request; name two");
}

#[test]
fn names_that_could_leave_paths_are_refused() {
    let message = "request must be the name of a ProfileRequest, with only lower-case letters, digits, - and ., for instance web-before";
    for name in ["", "Old", "a/b", "../a", "-a", "a-", "a b"] {
        check(&with(json!({"before": {"request": name}})), message);
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    let rows = [
        (
            "maxIncreasePercent",
            json!([-0.1, 1000.1]),
            "maxIncreasePercent must be from 0 to 1000, for instance 0.5",
        ),
        (
            "minMilliseconds",
            json!([-1.0, 3_600_001.0]),
            "minMilliseconds must be from 0 to 3600000, for instance 5",
        ),
        (
            "visiblePercent",
            json!([0.0, -1.0, 1001.0]),
            "visiblePercent must be above 0 and at most 1000, for instance 10",
        ),
        (
            "ttlSecondsAfterFinished",
            json!([-1]),
            "ttlSecondsAfterFinished must be from 0 to 2147483647, for instance 604800 for a week",
        ),
        (
            "durationSeconds",
            json!([0, 3601]),
            "durationSeconds must be from 1 to 3600, for instance 60",
        ),
        (
            "samplesPerSecond",
            json!([0, 1001]),
            "samplesPerSecond must be from 1 to 1000, for instance 99",
        ),
    ];
    for (field, values, message) in rows {
        for value in values.as_array().into_iter().flatten() {
            check(&pods(json!({field: value})), message);
        }
    }
    check(
        &pods(
            json!({"maxIncreasePercent": 0.0, "minMilliseconds": 0.5, "visiblePercent": 0.1, "durationSeconds": 3600}),
        ),
        "",
    );
}

#[test]
fn fields_of_runs_need_a_target() {
    for field in ["durationSeconds", "samplesPerSecond"] {
        let message = format!("{field} is for a side with a target; leave it out");
        check(&with(json!({field: 60})), &message);
        check(&pods(json!({field: 60, "before": {"request": "old"}})), "");
    }
}

#[test]
fn names_leave_room_for_their_requests() {
    let named = |length: usize| comparison(&"x".repeat(length), &with(json!({}))).validate_cel();
    assert!(named(246).is_ok());
    let refused = named(247).unwrap_err();
    assert!(
        refused[0].message.contains("NAME-before"),
        "{:?}",
        refused[0].message
    );
}

#[test]
fn specs_change_only_in_cancel_and_ttl() {
    let old = pods(json!({"durationSeconds": 30}));
    let change = |fields: Value| {
        let mut new = old.clone();
        for (name, value) in fields.as_object().into_iter().flatten() {
            new[name] = value.clone();
        }
        new
    };
    check_update(&old, &change(json!({"cancel": true})), "");
    check_update(&old, &change(json!({"ttlSecondsAfterFinished": 5})), "");
    let message = "the spec cannot be changed, except cancel and ttlSecondsAfterFinished; create another ProfileComparison instead";
    for fields in [
        json!({"before": {"request": "old"}}),
        json!({"after": {"target": {"podName": "c"}}}),
        json!({"durationSeconds": 31}),
        json!({"samplesPerSecond": 49}),
        json!({"measure": "CPU"}),
        json!({"maxIncreasePercent": 1.0}),
        json!({"minMilliseconds": 1.0}),
        json!({"visiblePercent": 1.0}),
        json!({"force": true}),
    ] {
        check_update(&old, &change(fields), message);
    }
    let cancelled = change(json!({"cancel": true}));
    check_update(
        &cancelled,
        &old,
        "cancel cannot be undone; create another ProfileComparison instead",
    );
}
