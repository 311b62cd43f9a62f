//! The loop of a comparison with an API server in memory, which a mock plays, and a store in
//! memory.

use std::collections::BTreeMap;
use std::sync::Mutex;

use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use kube::core::DeserializeGuard;
use phpprof_crds::REQUESTED_BY;
use serde_json::Value;
use tower::service_fn;

use super::*;
use crate::sampler::object_keys::{MANIFEST, MERGED, REQUESTS, key};
use crate::storage::manifest::{StoredRequestList, manifest};
use crate::testing::api::context;
use crate::testing::release::release;
use crate::testing::{NAMESPACE_UID, at};

const RECEIPT: &str = include_str!("../../../../contract/comment.json");
const KINDS: &str = "/apis/phpprof.dev/v1alpha1/namespaces/shop/";

/// Requests and one comparison, and what was asked of the API server about them.
#[derive(Default)]
struct MockObjects {
    requests: BTreeMap<String, Value>,
    comparison: Value,
    /// A name that the API server refuses.
    refused: &'static str,
    writes: Vec<String>,
}

type MockCluster = Arc<Mutex<MockObjects>>;

fn failure(code: u16, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "code": code, "message": message, "reason": if code == 404 { "NotFound" } else { "Conflict" }}),
    )
}

impl MockObjects {
    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if path == "/api/v1/namespaces/shop" {
            let metadata = json!({"name": "shop", "uid": NAMESPACE_UID});
            return (
                200,
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}),
            );
        }
        let Some(place) = path.strip_prefix(KINDS) else {
            return (201, body.clone());
        };
        if method != "GET" {
            self.writes.push(format!("{method} {place}"));
        }
        match (method, place.split('/').collect::<Vec<_>>().as_slice()) {
            ("POST", ["profilerequests"]) => self.create(body),
            ("GET", ["profilerequests", name]) => match self.requests.get(*name) {
                Some(request) => (200, request.clone()),
                None => failure(404, "there is none"),
            },
            ("PATCH", ["profilerequests", name]) => {
                assert_eq!(body["spec"], json!({"cancel": true}));
                let request = self.requests.get_mut(*name).unwrap();
                assert_eq!(body["metadata"]["uid"], request["metadata"]["uid"]);
                request["spec"]["cancel"] = json!(true);
                (200, request.clone())
            }
            ("PATCH", ["profilecomparisons", "web", "status"]) => {
                assert_eq!(
                    body["metadata"],
                    json!({"uid": "c1", "resourceVersion": "1"})
                );
                self.comparison["status"] = body["status"].clone();
                (200, self.comparison.clone())
            }
            ("DELETE", ["profilecomparisons", "web"]) => {
                assert_eq!(
                    body["preconditions"],
                    json!({"uid": "c1", "resourceVersion": "1"})
                );
                (
                    200,
                    json!({"kind": "Status", "status": "Success", "code": 200}),
                )
            }
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, body: &Value) -> (u16, Value) {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        if name == self.refused {
            return failure(403, "ann may not");
        }
        if self.requests.contains_key(&name) {
            return failure(409, "it exists");
        }
        let mut request = body.clone();
        request["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        self.requests.insert(name, request.clone());
        (201, request)
    }
}

/// The operator with these objects. The comparison's sides are pods.
struct ComparisonScene {
    context: Arc<Context>,
    objects: MockCluster,
}

fn scene(spec: Value) -> ComparisonScene {
    let comparison = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
        "metadata": {"name": "web", "namespace": "shop", "uid": "c1", "generation": 1, "resourceVersion": "1",
            "annotations": {REQUESTED_BY: "ann"}},
        "spec": spec,
    });
    let objects = MockCluster::default();
    objects.lock().unwrap().comparison = comparison;
    let server = objects.clone();
    let answer = move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(axum::body::Body::new(body), 1 << 20);
            let body = serde_json::from_slice(&body.await.unwrap()).unwrap_or_default();
            let mut objects = server.lock().unwrap();
            let (code, said) = objects.answer(head.method.as_str(), head.uri.path(), &body);
            let body = Body::from(said.to_string().into_bytes());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    };
    let (context, _) = context(Client::new(service_fn(answer), "default"));
    ComparisonScene {
        context: Arc::new(context),
        objects,
    }
}

fn of_pods() -> ComparisonScene {
    let pod = |name: &str| json!({"target": {"podName": name}});
    scene(json!({"before": pod("a"), "after": pod("b")}))
}

impl ComparisonScene {
    /// Reconciles once. Returns the reason of the current condition.
    async fn look(&self) -> String {
        let comparison = self.objects.lock().unwrap().comparison.clone();
        let comparison = serde_json::from_value(comparison).unwrap();
        let mut guarded = DeserializeGuard(Ok(comparison));
        strip(&mut guarded);
        reconcile(Arc::new(guarded), self.context.clone())
            .await
            .unwrap();
        let status = self.status();
        let reason = status["conditions"][0]["reason"].as_str();
        reason.unwrap_or_default().to_owned()
    }

    fn change(&self, change: impl FnOnce(&mut MockObjects)) {
        change(&mut self.objects.lock().unwrap());
    }

    fn status(&self) -> Value {
        self.objects.lock().unwrap().comparison["status"].clone()
    }

    fn set(&self, request: &str, status: Value) {
        let mut objects = self.objects.lock().unwrap();
        objects.requests.get_mut(request).unwrap()["status"] = status;
    }

    /// Stores the files of a request that is complete then.
    async fn complete(&self, name: &str, slow: f64) {
        self.set(
            name,
            json!({
                "namespaceUID": NAMESPACE_UID, "startTime": at(-60), "completionTime": at(-10),
                "conditions": [{"type": "Complete", "status": "True", "reason": "Complete", "message": "",
                    "lastTransitionTime": at(-10)}],
                "profile": {"url": "file:///x", "samples": 7, "sizeBytes": 7},
            }),
        );
        let request = self.objects.lock().unwrap().requests[name].clone();
        let request: ProfileRequest = serde_json::from_value(request).unwrap();
        let files = release(slow, name.len() as u64, RECEIPT);
        for (file, bytes) in [MERGED, REQUESTS].into_iter().zip(files) {
            let store = &self.context.storage.store;
            store.create(&key(&request, "", file), bytes).await.unwrap();
        }
    }

    fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.objects.lock().unwrap().writes)
    }
}

const STATUS: &str = "PATCH profilecomparisons/web/status";
const CREATE: &str = "POST profilerequests";

#[tokio::test]
async fn two_releases_get_their_verdict() {
    let scene = of_pods();
    assert_eq!(scene.look().await, "WaitingForRequests");
    assert_eq!(scene.take_writes(), [CREATE, CREATE, STATUS]);
    let status = scene.status();
    assert_eq!(status["after"]["requestUID"], "uid-of-web-after");
    assert_eq!(scene.look().await, "WaitingForRequests");
    scene.complete("web-before", 10.0).await;
    assert_eq!(scene.look().await, "WaitingForRequests");
    scene.complete("web-after", 40.0).await;
    assert_eq!(scene.look().await, "Comparing");
    assert_eq!(scene.look().await, "TimeChanged");
    let status = scene.status();
    assert_eq!(
        (&status["verdict"], &status["functions"][0]["function"]),
        (&json!("Worse"), &json!("Cart::total"))
    );
    assert_eq!(status["conditions"][1]["status"], "True");
    scene.take_writes();
    // Its end is written once.
    scene.look().await;
    assert_eq!(scene.take_writes(), [""; 0]);
}

/// Pods against what the archive has of their workload.
fn of_archive() -> ComparisonScene {
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    scene(json!({
        "before": {"archive": {"workloadRef": web}}, "after": {"target": {"workloadRef": web}},
    }))
}

/// Stores a run of the workload whose request is gone.
async fn store_run(scene: &ComparisonScene, name: &str, start: i64) {
    let request: ProfileRequest = serde_json::from_value(json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}")},
        "spec": {"target": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}},
        "status": {"namespaceUID": NAMESPACE_UID, "startTime": at(start)},
    }))
    .unwrap();
    let [merged, list] = release(10.0, 3, RECEIPT);
    let result = serde_json::from_value(json!({"url": "", "samples": 7, "sizeBytes": 7})).unwrap();
    let stored_list = StoredRequestList {
        object_key: "x",
        size_bytes: 7,
        pods: 1,
    };
    let manifest = manifest(&request, Some(("x", &result)), Some(stored_list));
    let store = &scene.context.storage.store;
    for (file, bytes) in [(MERGED, merged), (REQUESTS, list), (MANIFEST, manifest)] {
        store.create(&key(&request, "", file), bytes).await.unwrap();
    }
}

#[tokio::test]
async fn a_stored_run_is_chosen_once_and_compared() {
    let scene = of_archive();
    store_run(&scene, "older", -900).await;
    store_run(&scene, "nightly", -300).await;
    assert_eq!(scene.look().await, "WaitingForRequests");
    // Only the later side is profiled.
    assert_eq!(scene.take_writes(), [CREATE, STATUS]);
    assert_eq!(scene.status()["before"]["request"], "nightly");
    // A run that is stored meanwhile is not taken instead.
    store_run(&scene, "newest", -200).await;
    scene.complete("web-after", 40.0).await;
    assert_eq!(scene.look().await, "Comparing");
    assert_eq!(scene.look().await, "TimeChanged");
    let status = scene.status();
    assert_eq!(status["before"]["request"], "nightly");
    assert_eq!(status["verdict"], "Worse", "{status}");
}

#[tokio::test]
async fn an_archive_without_a_run_ends_it() {
    let scene = of_archive();
    assert_eq!(scene.look().await, "NoStoredRun");
    // Nothing was profiled.
    assert_eq!(scene.take_writes(), [STATUS]);
    let message = scene.status()["conditions"][0]["message"].clone();
    let message = message.as_str().unwrap();
    for words in ["no profile of deployment/web", "list --stored"] {
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn a_template_says_so_and_creates_nothing() {
    let pod = |name: &str| json!({"target": {"podName": name}});
    let spec = json!({"before": pod("a"), "after": pod("b"), "template": true});
    let scene = scene(spec);
    assert_eq!(scene.look().await, "Template");
    assert_eq!(scene.take_writes(), [STATUS]);
    assert_eq!(scene.look().await, "Template");
    assert_eq!(scene.take_writes(), [""; 0]);
    let status = scene.status();
    assert_eq!(status["conditions"][0]["status"], "False");
    scene.change(|it| it.comparison["spec"]["cancel"] = json!(true));
    assert_eq!(scene.look().await, "ComparisonCancelled");
    assert_eq!(scene.take_writes(), [STATUS]);
}

#[tokio::test]
async fn a_lost_status_creates_nothing_again() {
    let scene = of_pods();
    scene.look().await;
    let before = scene.status();
    scene.objects.lock().unwrap().comparison["status"] = Value::Null;
    assert_eq!(scene.look().await, "WaitingForRequests");
    assert_eq!(scene.status()["before"], before["before"]);
    assert_eq!(scene.objects.lock().unwrap().requests.len(), 2);
}

#[tokio::test]
async fn a_taken_name_ends_both() {
    let scene = of_pods();
    let foreign = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": "web-after", "uid": "other"}, "spec": {"target": {"podName": "c"}},
    });
    scene.change(|it| {
        it.requests.insert("web-after".to_owned(), foreign);
    });
    assert_eq!(scene.look().await, "RequestNameTaken");
    let cancel = "PATCH profilerequests/web-before";
    assert_eq!(scene.take_writes(), [CREATE, CREATE, cancel, STATUS]);
    assert_eq!(scene.status()["verdict"], "Inconclusive");
}

#[tokio::test]
async fn a_refused_request_ends_it_with_the_words() {
    let scene = of_pods();
    scene.objects.lock().unwrap().refused = "web-before";
    assert_eq!(scene.look().await, "RequestRefused");
    assert_eq!(scene.take_writes(), [CREATE, STATUS]);
    let message = scene.status()["conditions"][0]["message"].clone();
    assert!(
        message.as_str().unwrap().contains("ann may not"),
        "{message}"
    );
}

#[tokio::test]
async fn cancel_stops_the_requests_that_run() {
    let scene = of_pods();
    scene.look().await;
    scene.complete("web-before", 10.0).await;
    scene.take_writes();
    scene.objects.lock().unwrap().comparison["spec"]["cancel"] = json!(true);
    assert_eq!(scene.look().await, "ComparisonCancelled");
    assert_eq!(
        scene.take_writes(),
        ["PATCH profilerequests/web-after", STATUS]
    );
}

#[tokio::test]
async fn named_requests_are_never_changed() {
    let scene =
        scene(json!({"before": {"request": "old"}, "after": {"request": "new"}, "cancel": true}));
    assert_eq!(scene.look().await, "ComparisonCancelled");
    assert_eq!(scene.take_writes(), [STATUS]);
}

#[tokio::test]
async fn a_profile_that_is_gone_ends_it() {
    let scene = of_pods();
    scene.look().await;
    for name in ["web-before", "web-after"] {
        scene.complete(name, 10.0).await;
    }
    let after = scene.objects.lock().unwrap().requests["web-after"].clone();
    let after: ProfileRequest = serde_json::from_value(after).unwrap();
    let store = &scene.context.storage.store;
    store.delete(&key(&after, "", MERGED)).await.unwrap();
    assert_eq!(scene.look().await, "Comparing");
    assert_eq!(scene.look().await, "ProfileGone");
}

#[tokio::test]
async fn it_is_deleted_when_its_time_is_over() {
    let scene = of_pods();
    scene.change(|it| {
        it.comparison["spec"]["ttlSecondsAfterFinished"] = json!(60);
        it.comparison["status"] = json!({"completionTime": at(-59), "verdict": "NoChange"});
    });
    scene.look().await;
    assert_eq!(scene.take_writes(), [""; 0]);
    scene.objects.lock().unwrap().comparison["status"]["completionTime"] = json!(at(-60));
    scene.look().await;
    assert_eq!(scene.take_writes(), ["DELETE profilecomparisons/web"]);
}

#[test]
fn few_bytes_are_known_of_an_ended_comparison() {
    let pod = json!({"target": {"selector": {"matchLabels": {"app": "x".repeat(63)}}}});
    let comparison: ProfileComparison = serde_json::from_value(json!({
        "metadata": {"name": "web", "labels": {"x": "y".repeat(1 << 16)}}, "spec": {"before": pod, "after": pod},
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
        "status": {"completionTime": at(0), "change": "+1.0%", "before": {"request": "z".repeat(200)}},
    }))
    .unwrap();
    let mut guarded = DeserializeGuard(Ok(comparison));
    strip(&mut guarded);
    let text = serde_json::to_string(&guarded.0.unwrap()).unwrap();
    assert!(text.len() < 600, "{text}");
}
