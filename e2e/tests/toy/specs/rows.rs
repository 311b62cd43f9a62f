//! Specs that break one rule each, and similar ones that break none. Labels are in `selectors`.

use serde_json::{Value, json};

use super::row::{SpecRow, named, target, xs};
use super::selectors;

/// What is wrong, the name of a stored request, and the change of its spec.
pub type Change = (String, &'static str, Value);

pub fn invalid() -> Vec<SpecRow> {
    let rows = [fields(), of_heaps(), of_target(), references(), targets()];
    [rows.concat(), selectors::invalid()].concat()
}

/// Rows that are named by their field and value, which `place` puts into a spec.
fn rows<const COUNT: usize>(
    place: impl Fn(&str, Value) -> Value,
    fields: [(&str, Value); COUNT],
) -> Vec<SpecRow> {
    let row = |(field, value): (&str, Value)| {
        let shown = match value.to_string() {
            long if long.len() > 60 => format!("{} characters", long.len() - 2),
            short => short,
        };
        (format!("{field}: {shown}"), place(field, value))
    };
    fields.map(row).into()
}

/// The pod `web` with one more field of the spec.
fn with(field: &str, value: Value) -> Value {
    let mut spec = target(json!({"podName": "web"}));
    spec[field] = value;
    spec
}

/// The pod `web` of user 33, with one field more or changed.
fn beside(field: &str, value: Value) -> Value {
    let mut spec = target(json!({"podName": "web", "runAsUser": 33}));
    spec["target"][field] = value;
    spec
}

/// A Deployment with one field changed, or removed if the value is null.
fn reference(field: &str, value: Value) -> Value {
    let mut workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    workload[field] = value;
    if let Some(fields) = workload.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    target(json!({"workloadRef": workload}))
}

fn fields() -> Vec<SpecRow> {
    let fields = [
        ("durationSeconds", json!(0)),
        ("durationSeconds", json!(-1)),
        ("durationSeconds", json!(3601)),
        ("durationSeconds", json!("30s")),
        ("durationSeconds", json!(1.5)),
        ("samplesPerSecond", json!(0)),
        ("samplesPerSecond", json!(1001)),
        ("samplesPerSecond", json!("99Hz")),
        ("profileRetentionSeconds", json!(3599)),
        ("profileRetentionSeconds", json!("1w")),
        ("profileRetentionSeconds", json!(1_i64 << 31)),
        ("ttlSecondsAfterFinished", json!(-1)),
        ("ttlSecondsAfterFinished", json!(false)),
        ("ttlSecondsAfterFinished", json!(1_i64 << 31)),
        ("uploadMode", json!("S3")),
        ("uploadMode", json!("relay")),
        ("uploadMode", json!("")),
        ("samplerMode", json!("Daemon")),
        ("cancel", json!("true")),
        ("suspend", json!(1)),
        ("includeIdle", json!("yes")),
        ("includeSuspended", json!("yes")),
        ("heap", json!("yes")),
        ("mode", json!("Dump")),
        ("mode", json!("Snapshot")),
        ("mode", json!("Heap")),
        ("labels", json!(["Cookie"])),
        ("labels", json!("Route")),
        ("labels", json!(["Route", "Route"])),
        ("filter", json!({})),
        ("filter", json!({"pathPrefix": "shop"})),
        ("filter", json!({"pathPrefix": "/shop?id=7"})),
        ("filter", json!({"methods": ["post"]})),
        ("filter", json!({"scripts": ["a b.php"]})),
        ("filter", json!({"minRequestAgeMilliseconds": 0})),
        (
            "filter",
            json!({"pathPrefix": "/shop", "includeYoung": true}),
        ),
        ("duration", json!(30)),
        ("durationseconds", json!(30)),
    ];
    rows(with, fields)
}

/// A request for what is in the heaps, with one field more or changed.
fn of_heap(field: &str, value: Value) -> Value {
    let mut spec = target(json!({"podName": "web"}));
    spec["mode"] = json!("Heap");
    spec["durationSeconds"] = json!(1);
    spec[field] = value;
    spec
}

fn of_heaps() -> Vec<SpecRow> {
    let fields = [
        ("heap", json!(true)),
        ("filter", json!({"pathPrefix": "/shop"})),
        ("labels", json!(["Route"])),
        ("includeIdle", json!(true)),
        ("includeSuspended", json!(true)),
    ];
    let named = |(case, spec): SpecRow| (format!("mode: Heap, {case}"), spec);
    rows(of_heap, fields).into_iter().map(named).collect()
}

fn of_target() -> Vec<SpecRow> {
    let fields = [
        ("podName", json!("")),
        ("podName", json!("../nodes/a")),
        ("podName", json!("Web")),
        ("podName", json!("pod/web")),
        ("podName", json!(5)),
        ("podName", json!(["web-a", "web-b"])),
        ("podName", json!(xs(254))),
        ("containerName", json!("")),
        ("containerName", json!("php.fpm")),
        ("containerName", json!(xs(64))),
        ("maxPods", json!(0)),
        ("maxPods", json!(101)),
        ("maxPods", json!("all")),
        ("runAsUser", json!(0)),
        ("runAsUser", json!(4_294_967_295_i64)),
        ("runAsUser", json!("www-data")),
        ("runAsGroup", json!(-1)),
        ("runAsGroup", json!(4_294_967_295_i64)),
        ("runAsGroup", json!("www-data")),
        ("pod", json!("web")),
    ];
    rows(beside, fields)
}

fn references() -> Vec<SpecRow> {
    let fields = [
        ("apiVersion", Value::Null),
        ("apiVersion", json!("apps")),
        ("apiVersion", json!("apps/apps/v1")),
        ("apiVersion", json!(xs(315) + "/v1")),
        ("kind", Value::Null),
        ("kind", json!("deployment")),
        ("kind", json!("Deployment/../Secret")),
        ("kind", json!("X".repeat(64))),
        ("name", Value::Null),
        ("name", json!("")),
        ("name", json!("web/scale")),
        ("name", json!(xs(254))),
        ("namespace", json!("shop")),
    ];
    rows(reference, fields)
}

fn targets() -> Vec<SpecRow> {
    let selector = json!({"matchLabels": {"app": "web"}});
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let all = json!({"podName": "web", "selector": selector, "workloadRef": workload});
    let without = |field: &str| {
        let mut two = all.clone();
        two[field] = Value::Null;
        target(two)
    };
    named([
        ("no spec", Value::Null),
        ("an empty spec", json!({})),
        ("a spec that is a word", json!("web")),
        ("a target that is a word", target(json!("web"))),
        ("an empty target", target(json!({}))),
        ("a container alone", target(json!({"containerName": "fpm"}))),
        ("a podName of null", target(json!({"podName": null}))),
        ("podName and selector", without("workloadRef")),
        ("podName and workloadRef", without("selector")),
        ("selector and workloadRef", without("podName")),
        ("podName, selector and workloadRef", target(all.clone())),
        (
            "a group without a user",
            target(json!({"podName": "web", "runAsGroup": 33})),
        ),
        (
            "a resident sampler without the relay",
            json!({"target": {"podName": "web"}, "samplerMode": "Resident", "uploadMode": "Direct"}),
        ),
        (
            "suspended fibers of some requests",
            json!({"target": {"podName": "web"}, "includeSuspended": true, "filter": {"pathPrefix": "/shop"}}),
        ),
    ])
}

/// The stored requests that are changed.
pub fn stored() -> [(&'static str, Value); 2] {
    [
        ("first", with("durationSeconds", json!(30))),
        ("cancelled", with("cancel", json!(true))),
    ]
}

pub fn changes() -> Vec<Change> {
    let selector = json!({"podName": null, "selector": {"matchLabels": {"app": "web"}}});
    [
        ("first", "target", json!({"podName": "other"})),
        ("first", "target", json!({"containerName": "nginx"})),
        ("first", "target", json!({"maxPods": 6})),
        ("first", "target", selector),
        ("first", "durationSeconds", json!(31)),
        ("first", "samplesPerSecond", json!(100)),
        ("first", "includeIdle", json!(true)),
        ("first", "heap", json!(true)),
        ("first", "includeSuspended", json!(true)),
        ("first", "labels", json!(["Route"])),
        ("first", "filter", json!({"pathPrefix": "/shop"})),
        ("first", "uploadMode", json!("Relay")),
        ("first", "samplerMode", json!("Once")),
        ("first", "profileRetentionSeconds", json!(60)),
        ("cancelled", "cancel", json!(false)),
    ]
    .map(|(name, field, value)| {
        let case = format!("changed {field}: {value}");
        (case, name, json!({field: value}))
    })
    .into()
}

/// Valid specs at the limits.
pub fn valid() -> Vec<SpecRow> {
    let fields = [
        ("durationSeconds", json!(1)),
        ("durationSeconds", json!(3600)),
        ("samplesPerSecond", json!(1)),
        ("samplesPerSecond", json!(1000)),
        ("profileRetentionSeconds", json!(3600)),
        ("profileRetentionSeconds", json!(i32::MAX)),
        ("ttlSecondsAfterFinished", json!(0)),
        ("ttlSecondsAfterFinished", json!(i32::MAX)),
    ];
    let of_target = [
        ("podName", json!(xs(253))),
        ("containerName", json!(xs(63))),
        ("maxPods", json!(1)),
        ("maxPods", json!(100)),
        ("runAsUser", json!(1)),
        ("runAsUser", json!(4_294_967_294_i64)),
        ("runAsGroup", json!(0)),
        ("runAsGroup", json!(4_294_967_294_i64)),
    ];
    let of_reference = [
        ("apiVersion", json!(xs(314) + "/v1")),
        ("apiVersion", json!("v1")),
        ("kind", json!("X".repeat(63))),
        ("name", json!(xs(253))),
    ];
    [
        rows(with, fields),
        rows(of_heap, [("labels", json!([]))]),
        rows(beside, of_target),
        rows(reference, of_reference),
        selectors::valid(),
    ]
    .concat()
}
