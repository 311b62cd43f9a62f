//! A scripted cluster with one request, and commands that run on it.

use std::sync::atomic::{AtomicUsize, Ordering};

use phpprof_profile::encode_gzip;
use serde_json::{Value, json};

use crate::server::{ReceivedRequest, ScriptServer, ServedAnswer, json_answer};
use crate::shell::{ShellOutput, profile, program, said};

pub const REQUESTS: &str = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilerequests";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
pub const PROXY: &str = "/api/v1/namespaces/phpprof-system/services/phpprof-operator:results/proxy";

pub fn run_on(server: &ScriptServer, line: &str) -> ShellOutput {
    let folder = tempfile::tempdir().unwrap();
    server.kubeconfig(folder.path());
    let words = line.split_whitespace();
    said(
        &program()
            .args(words)
            .env("KUBECONFIG", "kubeconfig")
            .current_dir(folder.path())
            .output()
            .unwrap(),
    )
}

/// Checks that the command ends with this code, and prints this and a hint.
#[track_caller]
pub fn fails_with_a_hint(server: &ScriptServer, line: &str, code: i32, part: &str) {
    let said = run_on(server, line);
    assert_eq!(said.code, code, "{line}: {}", said.err);
    assert!(
        said.err.contains(part) && said.err.contains("\nhint: "),
        "{line}: {}",
        said.err
    );
}

fn request(conditions: Value, more: Value) -> Value {
    let mut status = json!({"conditions": conditions, "selected": 1, "targets": [{"podName": "web-1", "state": "Sampling", "ephemeralContainerName": "phpprof-1-0"}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        status[key] = value.clone();
    }
    json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": "web-abcde", "namespace": "shop", "uid": "u1", "creationTimestamp": "2026-09-21T14:00:00Z"},
        "spec": {"target": {"podName": "web-1"}, "durationSeconds": 1, "samplesPerSecond": 99},
        "status": status,
    })
}

pub fn in_progress() -> Value {
    request(
        json!([{"type": "Accepted", "status": "True", "reason": "Sampling", "message": ""}]),
        json!({}),
    )
}

pub fn complete() -> Value {
    request(
        json!([{"type": "Complete", "status": "True", "reason": "Complete", "message": "1 pod is in the profile"}]),
        json!({"succeeded": 1, "profile": {"url": "file:///data/web/merged.pb.gz", "samples": 240, "sizeBytes": 400, "accessKey": "q1w2e3r4t5y6u7i8o9p0aA"}}),
    )
}

pub fn failed() -> Value {
    request(
        json!([{"type": "Failed", "status": "True", "reason": "NoPodsReady", "message": "1 pod matches, none is ready"}]),
        json!({}),
    )
}

/// The operator's side of the contract: a key for links, a link for a profile.
pub fn results(asked: &ReceivedRequest) -> Option<ServedAnswer> {
    results_with(asked, &encode_gzip(&profile(900)))
}

fn results_with(asked: &ReceivedRequest, merged: &[u8]) -> Option<ServedAnswer> {
    match (asked.method.as_str(), asked.path.strip_prefix(PROXY)?) {
        ("POST", "/r/shop/web-abcde")
            if asked.body == json!({"accessKey": "q1w2e3r4t5y6u7i8o9p0aA"}) =>
        {
            json_answer(
                200,
                &json!({"expiresAt": "2026-09-21T14:08:00Z", "links": [{"name": "profile", "path": "/l/t/merged.pb.gz"}, {"name": "pod/web-1/fpm", "path": "/l/t/web-1.pb.gz"}]}),
            )
        }
        ("GET", "/l/t/merged.pb.gz" | "/l/t/web-1.pb.gz") => Some((200, merged.to_vec())),
        _ => json_answer(403, &json!({"message": "the key is another request's"})),
    }
}

/// A cluster in which a created request has these states, one for each time it is read.
pub fn cluster(states: Vec<Value>) -> ScriptServer {
    cluster_with(states, encode_gzip(&profile(900)))
}

pub fn cluster_with(states: Vec<Value>, merged: Vec<u8>) -> ScriptServer {
    let step = AtomicUsize::new(0);
    ScriptServer::start(move |asked| {
        let path = asked.path.split('?').next().unwrap_or_default();
        match (asked.method.as_str(), path) {
            ("POST", REVIEWS) => {
                json_answer(201, &json!({"status": {"userInfo": {"username": "bob"}}}))
            }
            ("POST", REQUESTS) => json_answer(201, &in_progress()),
            ("GET", path) if path == format!("{REQUESTS}/web-abcde") => {
                let at = step.fetch_add(1, Ordering::SeqCst).min(states.len() - 1);
                json_answer(200, &states[at])
            }
            ("GET", REQUESTS) => json_answer(
                200,
                &json!({"kind": "ProfileRequestList", "apiVersion": "phpprof.dev/v1alpha1", "metadata": {}, "items": [complete()]}),
            ),
            ("PATCH", path) if path == format!("{REQUESTS}/web-abcde") => {
                let mut patched = in_progress();
                patched["spec"]["cancel"] = asked.body["spec"]["cancel"].clone();
                json_answer(200, &patched)
            }
            _ => results_with(asked, &merged),
        }
    })
}
