//! Specs of triggers that break one rule each, with words of the refusal, and similar ones that
//! break none.

use serde_json::{Value, json};

/// What is wrong, the spec, and words of the refusal.
type TriggerRow = (String, Value, &'static str);

const TYPE: &str = "must be of type";
const REQUIRED: &str = "Required value";
const UNKNOWN: &str = "unknown field";
const WHEN: &str = "when needs a condition: alert, with the labels of the alert in matchLabels";
const VALUE: &str = "a label of matchLabels needs a value, for instance alertname: PhpRequestsSlow";
const NAME: &str = "the names in matchLabels must be labels of Prometheus";
const REQUESTS: &str = "limit.requests must be from 1 to 50, for instance 3";
const WINDOW: &str = "limit.windowSeconds must be from 60 to 604800, for instance 3600";
const BACK_OFF: &str = "backOffSeconds must be from 0 to 86400, for instance 300";
const HELD: &str = "a template is neither cancelled nor suspended";
const LIVE: &str = "nobody reads a live request that an alert starts";
const DURATION: &str = "durationSeconds must be from 1 to 3600, for instance 30";
const SNAPSHOT: &str = "a snapshot has no duration: set durationSeconds to 1";
const ONE: &str = "target needs exactly one of podName, selector and workloadRef";

/// A spec with one field more or changed.
fn with(field: &str, value: Value) -> Value {
    let mut spec = json!({
        "when": {"alert": {"matchLabels": {"alertname": "PhpRequestsSlow"}}},
        "template": {"target": {"podName": "web"}},
    });
    match value {
        Value::Null => {
            spec.as_object_mut().map(|it| it.remove(field));
        }
        value => spec[field] = value,
    }
    spec
}

fn labelled(labels: Value) -> Value {
    with("when", json!({"alert": {"matchLabels": labels}}))
}

fn template(field: &str, value: Value) -> Value {
    let mut template = json!({"target": {"podName": "web"}});
    template[field] = value;
    with("template", template)
}

fn many(count: usize) -> Value {
    let labels: serde_json::Map<_, _> = (0..count)
        .map(|it| (format!("l{it}"), json!("x")))
        .collect();
    labelled(labels.into())
}

pub fn invalid() -> Vec<TriggerRow> {
    let limit = |field: &str, value: Value| with("limit", json!({field: value}));
    let rows = [
        ("no condition", with("when", Value::Null), REQUIRED),
        ("no template", with("template", Value::Null), REQUIRED),
        ("an empty condition", with("when", json!({})), WHEN),
        (
            "another condition",
            with("when", json!({"heap": {}})),
            UNKNOWN,
        ),
        (
            "an alert without labels",
            with("when", json!({"alert": {}})),
            REQUIRED,
        ),
        (
            "no label",
            labelled(json!({})),
            "should have at least 1 properties",
        ),
        ("17 labels", many(17), "must have at most 16 items"),
        (
            "a label without a value",
            labelled(json!({"app": ""})),
            VALUE,
        ),
        (
            "a long value",
            labelled(json!({"app": "x".repeat(513)})),
            "Too long",
        ),
        ("a number as a value", labelled(json!({"app": 7})), TYPE),
        (
            "a label of Kubernetes",
            labelled(json!({"app.kubernetes.io/name": "web"})),
            NAME,
        ),
        (
            "a long label",
            labelled(json!({"x".repeat(129): "web"})),
            NAME,
        ),
        ("no request", limit("requests", json!(0)), REQUESTS),
        ("many requests", limit("requests", json!(51)), REQUESTS),
        ("requests in words", limit("requests", json!("3")), TYPE),
        ("a short window", limit("windowSeconds", json!(59)), WINDOW),
        (
            "a long window",
            limit("windowSeconds", json!(604_801)),
            WINDOW,
        ),
        ("another limit", limit("perHour", json!(3)), UNKNOWN),
        (
            "a negative back-off",
            with("backOffSeconds", json!(-1)),
            BACK_OFF,
        ),
        (
            "a long back-off",
            with("backOffSeconds", json!(86_401)),
            BACK_OFF,
        ),
        ("suspend in words", with("suspend", json!("yes")), TYPE),
        (
            "a cancelled template",
            template("cancel", json!(true)),
            HELD,
        ),
        (
            "a suspended template",
            template("suspend", json!(true)),
            HELD,
        ),
        ("a live template", template("mode", json!("Live")), LIVE),
        (
            "a short profile",
            template("durationSeconds", json!(0)),
            DURATION,
        ),
        (
            "a long snapshot",
            template("mode", json!("Snapshot")),
            SNAPSHOT,
        ),
        ("no target", template("target", json!({})), ONE),
        ("an unknown field", template("seconds", json!(3)), UNKNOWN),
    ];
    rows.map(|(case, spec, words)| (case.to_owned(), spec, words))
        .into()
}

pub fn valid() -> Vec<(&'static str, Value)> {
    let mut snapshot = template("mode", json!("Snapshot"));
    snapshot["template"]["durationSeconds"] = json!(1);
    vec![
        (
            "one label",
            labelled(json!({"alertname": "PhpRequestsSlow"})),
        ),
        ("16 labels", many(16)),
        (
            "any value",
            labelled(json!({"_a1": "{\"x\": 'é'}\n", "B": "y".repeat(512)})),
        ),
        ("a snapshot", snapshot),
        (
            "limits",
            with("limit", json!({"requests": 50, "windowSeconds": 604_800})),
        ),
        ("no back-off", with("backOffSeconds", json!(0))),
        ("suspended", with("suspend", json!(true))),
    ]
}
