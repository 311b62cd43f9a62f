//! Selectors that break one rule each, and similar ones that break none.

use serde_json::{Map, Value, json};

use super::row::{SpecRow, named, target, xs};

fn selector(labels: Value, expressions: Value) -> Value {
    target(json!({"selector": {"matchLabels": labels, "matchExpressions": expressions}}))
}

fn label(key: &str, value: Value) -> Value {
    selector(json!({key: value}), json!([]))
}

/// Labels whose keys have this length.
fn labels(count: usize, length: usize) -> Value {
    let label = |number: usize| (format!("{number:0length$}"), json!("web"));
    (0..count).map(label).collect::<Map<_, _>>().into()
}

fn expression(expression: Value) -> Value {
    selector(json!({}), json!([expression]))
}

fn exist(count: usize) -> Value {
    vec![json!({"key": "app", "operator": "Exists"}); count].into()
}

fn in_values(values: Vec<String>) -> Value {
    json!({"key": "app", "operator": "In", "values": values})
}

pub fn invalid() -> Vec<SpecRow> {
    let many_values = vec![in_values(vec![xs(63); 64]); 4];
    let unknown = json!({"matchLabels": {"app": "web"}, "app": "web"});
    named([
        ("an empty selector", target(json!({"selector": {}}))),
        ("a selector without labels", selector(json!({}), json!([]))),
        (
            "a selector that is text",
            target(json!({"selector": "app=web"})),
        ),
        (
            "a label beside matchLabels",
            target(json!({"selector": unknown})),
        ),
        ("65 labels", selector(labels(65, 10), json!([]))),
        ("65 expressions", selector(json!({}), exist(65))),
        (
            "64 labels and an expression",
            selector(labels(64, 10), exist(1)),
        ),
        (
            "labels of more than 12288 characters",
            selector(labels(64, 190), json!([])),
        ),
        (
            "values of more than 12288 characters",
            selector(json!({}), many_values.into()),
        ),
        ("a key of 318 characters", label(&xs(318), json!("web"))),
        ("a value of 64 characters", label("app", json!(xs(64)))),
        ("a value with a space", label("app", json!("web shop"))),
        ("a value that is a number", label("app", json!(1))),
        (
            "an expression with a key of 318 characters",
            expression(json!({"key": xs(318), "operator": "Exists"})),
        ),
        (
            "an expression without key",
            expression(json!({"operator": "Exists"})),
        ),
        (
            "an expression without operator",
            expression(json!({"key": "app"})),
        ),
        (
            "an expression with an unknown operator",
            expression(json!({"key": "app", "operator": "=="})),
        ),
        (
            "an expression with 65 values",
            expression(in_values(vec!["web".to_owned(); 65])),
        ),
        (
            "an expression with a value of 64 characters",
            expression(in_values(vec![xs(64)])),
        ),
        (
            "an expression with a value with a comma",
            expression(in_values(vec!["web,shop".to_owned()])),
        ),
    ])
}

pub fn valid() -> Vec<SpecRow> {
    named([
        ("64 labels", selector(labels(64, 188), json!([]))),
        (
            "63 labels and an expression",
            selector(labels(63, 10), exist(1)),
        ),
        ("64 expressions", selector(json!({}), exist(64))),
        ("64 values", expression(in_values(vec![xs(63); 64]))),
        ("the longest key and value", label(&xs(317), json!(xs(63)))),
        ("an empty value", label("app", json!(""))),
    ])
}
