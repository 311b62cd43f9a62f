//! Requests and profiles that the golden tests show. Some of their names are hostile.

use jiff::Timestamp;
use kube::api::DynamicObject;
use phpprof_crds::TargetReason;
use phpprof_profile::{Builder, FrameRef, Profile, SampleTag, Settings};
use serde_json::{Value, json};

pub fn now() -> Timestamp {
    "2026-09-21T14:03:00Z".parse().unwrap()
}

pub fn object(name: &str, spec_target: Value, status: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "creationTimestamp": "2026-09-21T14:00:00Z",
            "managedFields": [{"manager": "kubectl-phpprof"}],
        },
        "spec": {"target": spec_target, "durationSeconds": 30, "samplesPerSecond": 99, "includeIdle": false, "ttlSecondsAfterFinished": 604800},
        "status": status,
    }))
    .unwrap()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-09-21T14:00:33Z", "observedGeneration": 1})
}

pub fn complete() -> DynamicObject {
    object(
        "web-x2x4z",
        json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "containerName": "fpm", "maxPods": 5}),
        json!({
            "conditions": [
                condition("Complete", "True", "SomeTargetsFailed", "2 of 3 pods are in the profile"),
                condition("Accepted", "True", "Starting", ""),
                condition("Failed", "False", "SomeTargetsFailed", ""),
            ],
            "matched": 7, "selected": 3, "active": 0, "succeeded": 2, "failed": 1,
            "profile": {"url": "s3://profiles/phpprof/shop/web-x2x4z-uid-web/merged.pb.gz", "samples": 5940, "sizeBytes": 48211},
            "targets": [
                target("web-7d9f5c6b8-x2x4z", "Failed", json!({"reason": "UserUnknown", "message": format!("the namespace refuses SYS_PTRACE. {}", TargetReason::UserUnknown.remedy())})),
                target("web-7d9f5c6b8-q8k2m", "Uploaded", sampled()),
                target("web-7d9f5c6b8-\u{1b}[31mevil", "Uploaded", slow()),
            ],
        }),
    )
}

fn sampled() -> Value {
    json!({"php": {"version": "8.2.29", "sapi": "fpm-fcgi"}, "workers": 4, "samples": 2970, "effectiveSamplesPerSecond": 98.7, "quality": {"taken": 11868, "idle": 8898, "late": 12, "unstable": 27}})
}

fn slow() -> Value {
    let mut slow = sampled();
    slow["effectiveSamplesPerSecond"] = json!(62.4);
    slow["workersNotSampled"] = json!(17);
    slow
}

fn target(pod: &str, state: &str, more: Value) -> Value {
    let mut target = json!({"podName": pod, "podUID": "u", "nodeName": "node-1", "containerName": "fpm", "ephemeralContainerName": "phpprof-1a2b-0", "state": state});
    for (key, value) in more.as_object().into_iter().flatten() {
        target[key] = value.clone();
    }
    target
}

pub fn running(states: &[(&str, &str)]) -> DynamicObject {
    let targets: Vec<_> = states
        .iter()
        .map(|(pod, state)| {
            target(
                pod,
                state,
                if *state == "Uploaded" {
                    json!({"samples": 2970})
                } else {
                    json!({})
                },
            )
        })
        .collect();
    let done = states
        .iter()
        .filter(|(_, state)| *state == "Uploaded")
        .count();
    object(
        "canary",
        json!({"selector": {"matchLabels": {"app": "web", "stage": "canary"}}}),
        json!({"conditions": [condition("Accepted", "True", "Sampling", "")], "selected": states.len(), "succeeded": done, "targets": targets}),
    )
}

pub fn profile(price: i64) -> Profile {
    let mut builder = Builder::new(Settings::default());
    let frame = |name, file| FrameRef {
        name,
        file,
        start_line: 3,
        line: 7,
    };
    for (pod, weight) in [("web-1", 1), ("web-2", 2)] {
        let labels = [
            SampleTag::Str("pod", pod),
            SampleTag::Num("pid", weight, ""),
        ];
        let main = frame("{main}", "/srv/app/index.php");
        let mut add = |stack: &[FrameRef<'_>], milliseconds: i64| {
            let nanoseconds = milliseconds * weight * 1_000_000;
            builder.add(
                stack,
                &[
                    milliseconds * weight / 10,
                    nanoseconds * 9 / 10,
                    nanoseconds,
                ],
                &labels,
            );
        };
        add(
            &[
                frame(
                    r"Shop\Checkout\Price\Calculator::priceWithEveryDiscountThatApplies",
                    "/srv/app/src/Checkout/Price/Calculator.php",
                ),
                main,
            ],
            price,
        );
        add(
            &[
                frame("similar_text", ""),
                frame(r"Shop\Search::find", "/srv/app/src/Search.php"),
                main,
            ],
            300,
        );
        add(
            &[frame("a\u{1b}[2Jb\nc", "/srv/app/\u{202e}evil.php"), main],
            40,
        );
    }
    builder.finish()
}

/// A program that waits for its database in one function. The name of another one is hostile.
pub fn slow_profile() -> Profile {
    let mut builder = Builder::new(Settings::default());
    let frame = |name, file| FrameRef {
        name,
        file,
        start_line: 3,
        line: 7,
    };
    let main = frame("{main}", "/srv/app/index.php");
    let calculator = r"Shop\Checkout\Price\Calculator::priceWithEveryDiscountThatApplies";
    let price = frame(calculator, "/srv/app/src/Checkout/Price/Calculator.php");
    let evil = frame("a\u{1b}[2Jb\nc", "/srv/app/\u{202e}evil.php");
    let execute = frame("PDOStatement::execute", "<internal:PDO>");
    let ms = 10_000_000;
    builder.add(&[execute, price, main], &[600, 0, 600 * ms], &[]);
    builder.add(&[execute, evil, main], &[200, 0, 200 * ms], &[]);
    builder.add(&[frame("[gc]", ""), main], &[100, 100 * ms, 100 * ms], &[]);
    builder.add(&[price, main], &[100, 100 * ms, 100 * ms], &[]);
    builder.comment(include_str!("../../../contract/comment.json").trim());
    builder.finish()
}
