//! The CEL rules of ProfileTrigger, evaluated as the API server does.

use phpprof_crds::ProfileTrigger;
use serde_json::{Value, json};

fn named(name: &str, spec: &Value) -> ProfileTrigger {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileTrigger", "metadata": {"name": name}, "spec": spec,
    }))
    .expect("a trigger that the schema accepts")
}

/// A spec with these fields changed.
fn with(fields: Value) -> Value {
    let mut spec = json!({
        "when": {"alert": {"matchLabels": {"alertname": "PhpRequestsSlow"}}},
        "template": {"target": {"podName": "web"}},
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    spec
}

/// `expected` is the message of the refusal, or empty where the trigger is accepted.
#[track_caller]
fn check(spec: &Value, expected: &str) {
    let errors = named("web", spec).validate_cel().err();
    let messages: Vec<String> = errors.into_iter().flatten().map(|it| it.message).collect();
    assert_eq!(messages.join("; "), expected, "{spec}");
}

#[test]
fn defaults_are_three_requests_an_hour() {
    check(&with(json!({})), "");
    let spec = named("web", &with(json!({}))).spec;
    assert_eq!((spec.limit.requests, spec.limit.window_seconds), (3, 3600));
    assert_eq!((spec.back_off_seconds, spec.suspend), (300, false));
    assert_eq!(spec.template.duration_seconds, 30);
}

#[test]
fn a_trigger_needs_a_condition_with_labels() {
    let message = "when needs a condition: alert, with the labels of the alert in matchLabels";
    check(&with(json!({"when": {}})), message);
    let labels = |labels: Value| with(json!({"when": {"alert": {"matchLabels": labels}}}));
    let message = "a label of matchLabels needs a value, for instance alertname: PhpRequestsSlow";
    check(&labels(json!({"alertname": ""})), message);
    let message = "the names in matchLabels must be labels of Prometheus, with only letters, digits and _ and at most 128 characters, for instance alertname";
    for name in ["", "app.kubernetes.io/name", "1a", "a-b", &"x".repeat(129)] {
        check(&labels(json!({name: "web"})), message);
    }
    let exotic = json!({"_a1": "{\"x\"} é", "B": "y".repeat(512), &"x".repeat(128): "z"});
    check(&labels(exotic), "");
}

#[test]
fn numbers_out_of_range_are_refused() {
    let limit = |field: &str, value: i64| with(json!({"limit": {field: value}}));
    let rows = [
        (
            "requests",
            [0, 51],
            "limit.requests must be from 1 to 50, for instance 3",
        ),
        (
            "windowSeconds",
            [59, 604_801],
            "limit.windowSeconds must be from 60 to 604800, for instance 3600",
        ),
    ];
    for (field, values, message) in rows {
        for value in values {
            check(&limit(field, value), message);
        }
    }
    let message = "backOffSeconds must be from 0 to 86400, for instance 300";
    for value in [-1, 86_401] {
        check(&with(json!({"backOffSeconds": value})), message);
    }
    let most = json!({"limit": {"requests": 50, "windowSeconds": 604_800}, "backOffSeconds": 0});
    check(&with(most), "");
}

#[test]
fn a_template_obeys_the_rules_of_requests() {
    let template = |fields: Value| {
        let mut template = json!({"target": {"podName": "web"}});
        for (name, value) in fields.as_object().into_iter().flatten() {
            template[name] = value.clone();
        }
        with(json!({"template": template}))
    };
    check(
        &template(json!({"durationSeconds": 0})),
        "durationSeconds must be from 1 to 3600, for instance 30",
    );
    check(
        &template(json!({"target": {}})),
        "target needs exactly one of podName, selector and workloadRef",
    );
    check(
        &template(json!({"mode": "Snapshot"})),
        "a snapshot has no duration: set durationSeconds to 1",
    );
    check(
        &template(json!({"mode": "Snapshot", "durationSeconds": 1})),
        "",
    );
    let message = "a template is neither cancelled nor suspended: leave out cancel and suspend there; spec.suspend holds the trigger back";
    check(&template(json!({"cancel": true})), message);
    check(&template(json!({"suspend": true})), message);
    check(
        &template(json!({"mode": "Live"})),
        "nobody reads a live request that an alert starts: set the template's mode to Profile or Snapshot",
    );
}

#[test]
fn a_trigger_may_be_changed() {
    let old = named("web", &with(json!({})));
    let changed = json!({"suspend": true, "template": {"target": {"podName": "other"}, "durationSeconds": 5}});
    let new = named("web", &with(changed));
    assert!(new.validate_cel_update(&old).is_ok());
}

#[test]
fn names_fit_into_a_label() {
    assert!(
        named(&"x".repeat(63), &with(json!({})))
            .validate_cel()
            .is_ok()
    );
    let refused = named(&"x".repeat(64), &with(json!({}))).validate_cel();
    let refused = refused.unwrap_err();
    assert!(refused[0].message.contains("at most 63 characters"));
}
