//! What is written and created, with a mock of the API server that keeps versions.

use std::collections::BTreeMap;

use axum::http::{Request, Response};
use kube::client::Body;
use serde_json::Value;
use std::sync::Mutex as Lock;
use tower::service_fn;

use super::*;
use crate::testing::api;

/// Triggers and requests by name, and what is not as it should be.
#[derive(Default)]
struct MockApi {
    triggers: BTreeMap<String, Value>,
    requests: BTreeMap<String, Value>,
    creates: usize,
    /// The status of each create, if it is none of success.
    refuses: Option<u16>,
    /// Writes of statuses that come too late.
    conflicts: usize,
}

impl MockApi {
    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut parts = path.rsplit('/');
        let (last, before) = (parts.next().unwrap(), parts.next().unwrap());
        match (method, last, before) {
            ("GET", "profiletriggers", _) => {
                let items: Vec<_> = self.triggers.values().collect();
                let list = json!({
                    "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileTriggerList",
                    "metadata": {"resourceVersion": "1"}, "items": items,
                });
                (200, list)
            }
            ("GET", name, "profiletriggers") => found(&self.triggers, name),
            ("GET", name, "profilerequests") => found(&self.requests, name),
            ("PATCH", "status", name) => self.patch(name, body),
            ("POST", "profilerequests", _) => self.create(body),
            _ => failure(404),
        }
    }

    fn patch(&mut self, name: &str, body: &Value) -> (u16, Value) {
        let Some(trigger) = self.triggers.get_mut(name) else {
            return failure(404);
        };
        let version = trigger["metadata"]["resourceVersion"].clone();
        let is_old = body["metadata"]["resourceVersion"] != version;
        let number: u64 = version.as_str().unwrap().parse().unwrap();
        if is_old || self.conflicts > 0 {
            self.conflicts = self.conflicts.saturating_sub(1);
            trigger["metadata"]["resourceVersion"] = json!((number + 1).to_string());
            return failure(409);
        }
        let mut status = trigger["status"].clone();
        for (field, value) in body["status"].as_object().into_iter().flatten() {
            status[field] = value.clone();
        }
        trigger["status"] = status;
        trigger["metadata"]["resourceVersion"] = json!((number + 1).to_string());
        (200, trigger.clone())
    }

    fn create(&mut self, body: &Value) -> (u16, Value) {
        self.creates += 1;
        let name = body["metadata"]["name"].as_str().unwrap();
        // What is created stands in a status before.
        let known = self
            .triggers
            .values()
            .any(|it| it["status"].to_string().contains(name));
        assert!(known, "{name}");
        if let Some(code) = self.refuses {
            return failure(code);
        }
        if self.requests.contains_key(name) {
            return failure(409);
        }
        let mut request = body.clone();
        request["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        self.requests.insert(name.to_owned(), request.clone());
        (201, request)
    }
}

fn found(all: &BTreeMap<String, Value>, name: &str) -> (u16, Value) {
    let object = all.get(name).cloned();
    object.map_or_else(|| failure(404), |it| (200, it))
}

fn failure(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    let status = json!({"kind": "Status", "code": code, "reason": reason, "message": "said no"});
    (code, status)
}

struct TriggerScene {
    api: Arc<Lock<MockApi>>,
    desk: Arc<TriggerDesk>,
}

fn trigger(name: &str) -> Value {
    json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileTrigger",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "resourceVersion": "1"},
        "spec": {"when": {"alert": {"matchLabels": {"app": name}}}, "template": {"target": {"podName": "web"}},
            "limit": {"requests": 3, "windowSeconds": 600}, "backOffSeconds": 0},
    })
}

fn scene() -> TriggerScene {
    let api = Arc::new(Lock::new(MockApi::default()));
    for name in ["web", "cart"] {
        let mut api = api.lock().unwrap();
        api.triggers.insert(name.to_owned(), trigger(name));
    }
    let server = api.clone();
    let answer = move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(axum::body::Body::new(body), 1 << 20).await;
            let body = serde_json::from_slice(&body.unwrap()).unwrap_or_default();
            let (method, path) = (parts.method.as_str(), parts.uri.path());
            let (code, said) = server.lock().unwrap().answer(method, path, &body);
            let body = Body::from(said.to_string().into_bytes());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    };
    let (context, _) = api::context(Client::new(service_fn(answer), "default"));
    TriggerScene {
        api,
        desk: TriggerDesk::new(Arc::new(context)),
    }
}

/// A payload of alerts of an application, with these numbers.
fn payload(app: &str, numbers: std::ops::Range<usize>) -> Vec<u8> {
    let alert = |number: usize| {
        json!({
            "status": "firing", "labels": {"alertname": "Slow", "app": app},
            "startsAt": "2026-11-30T20:00:00Z", "fingerprint": format!("{number:016x}"),
        })
    };
    let alerts: Vec<_> = numbers.map(alert).collect();
    json!({"version": "4", "alerts": alerts})
        .to_string()
        .into_bytes()
}

impl TriggerScene {
    async fn handle(&self, payload: &[u8]) -> FiredTriggers {
        self.desk.handle("shop", payload).await.unwrap()
    }

    fn counts(&self) -> [usize; 2] {
        let api = self.api.lock().unwrap();
        [api.requests.len(), api.creates]
    }

    fn status(&self, name: &str) -> Value {
        self.api.lock().unwrap().triggers[name]["status"].clone()
    }
}

#[tokio::test]
async fn a_repeated_alert_creates_one_request() {
    let scene = scene();
    for repeated in [0, 1, 1] {
        let fired = scene.handle(&payload("web", 1..2)).await;
        let [one] = fired.triggers.as_slice() else {
            panic!("{fired:?}");
        };
        assert_eq!((one.trigger.as_str(), one.repeated), ("web", repeated));
        assert!(!fired.is_incomplete);
    }
    assert_eq!(scene.counts(), [1, 1]);
    let status = scene.status("web");
    assert_eq!(
        (&status["created"], &status["repeated"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(status["conditions"][0]["reason"], "AlertRepeated");
    // The other one says why it did nothing.
    let status = scene.status("cart");
    assert_eq!(status["conditions"][0]["reason"], "NoAlertMatched");
}

#[tokio::test]
async fn a_storm_creates_no_more_than_the_limit() {
    let scene = scene();
    let storm = payload("web", 0..1000);
    let both = tokio::join!(scene.handle(&storm), scene.handle(&storm));
    assert_eq!(both.0.firing + both.1.firing, 2000);
    assert_eq!(scene.counts(), [3, 3]);
}

#[tokio::test]
async fn another_replicas_requests_count() {
    let one = scene();
    // A second desk on the same API server, which writes first whenever the other one has read.
    one.api.lock().unwrap().conflicts = 2;
    let fired = one.handle(&payload("web", 0..10)).await;
    assert_eq!(fired.triggers[0].created.len(), 3);
    assert_eq!(one.counts(), [3, 3]);
    // Somebody writes all the time: nothing is created, and Alertmanager sends it again.
    let busy = scene();
    busy.api.lock().unwrap().conflicts = usize::MAX;
    let fired = busy.handle(&payload("web", 0..10)).await;
    assert!(fired.is_incomplete);
    assert_eq!(busy.counts(), [0, 0]);
}

#[tokio::test]
async fn a_refused_request_is_said_and_tried_again() {
    let scene = scene();
    for (code, reason, is_incomplete) in [
        (422, "CreationRefused", false),
        (403, "CreationRefused", false),
        (501, "CreationFailed", true),
    ] {
        scene.api.lock().unwrap().refuses = Some(code);
        let fired = scene.handle(&payload("web", 1..2)).await;
        assert_eq!(fired.is_incomplete, is_incomplete);
        let status = scene.status("web");
        assert_eq!(status["conditions"][0]["reason"], reason);
        assert_eq!(status["requests"].as_array().unwrap().len(), 1);
    }
    scene.api.lock().unwrap().refuses = None;
    scene.handle(&payload("web", 1..2)).await;
    assert_eq!(scene.counts()[0], 1);
    assert_eq!(scene.status("web")["created"], 1);
}

#[tokio::test]
async fn a_foreign_request_is_not_taken() {
    let scene = scene();
    scene.handle(&payload("web", 1..2)).await;
    {
        let mut api = scene.api.lock().unwrap();
        let (_, request) = api.requests.iter_mut().next().unwrap();
        request["metadata"]["ownerReferences"] = json!([]);
        api.triggers.get_mut("web").unwrap()["status"]["requests"][0]["requestUID"] = json!("");
    }
    scene.handle(&payload("web", 1..2)).await;
    assert_eq!(scene.status("web")["conditions"][0]["reason"], "NameTaken");
}

#[tokio::test]
async fn what_is_no_payload_reads_nothing() {
    let scene = scene();
    let refused = scene.desk.handle("shop", b"{}").await;
    assert!(matches!(refused, Err(NotHandled::Payload(_))));
    assert_eq!(scene.status("web"), Value::Null);
}
