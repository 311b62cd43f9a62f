//! A candidate's pods, if the watch shows another state of them than the API server has.

use std::time::Duration;

use axum::http::{Request, Response, header::ACCEPT};
use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use kube::Client;
use kube::client::Body;
use phpprof_crds::NAMESPACE_ENABLED;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::service_fn;

use super::*;
use crate::reconcile::watches::RequestRef;
use crate::testing::api::context;
use crate::testing::request;

const BEHIND: &str = "the API server has a newer state of the target's pods than its watch shows";

/// An API server with one pod or none. What it has now reaches the watch when the test says so.
struct OnePodServer {
    shown: Option<Value>,
    had: Option<Value>,
    news: Notify,
}

impl OnePodServer {
    async fn answer(&self, request: Request<Body>) -> String {
        let accept = request.headers().get(ACCEPT);
        let accept = accept.map_or("", |accept| accept.to_str().unwrap());
        let is_metadata = accept.contains("as=PartialObjectMetadataList");
        let answer = match request.uri() {
            uri if uri.path().ends_with("/namespaces/shop") => json!({"metadata":
                {"name": "shop", "uid": "n", "labels": {NAMESPACE_LABEL: NAMESPACE_ENABLED}}}),
            uri if uri.query().unwrap_or_default().contains("watch=true") => {
                self.news.notified().await;
                json!({"type": "MODIFIED", "object": self.had})
            }
            _ => {
                let pod = if is_metadata { &self.had } else { &self.shown };
                let pods: Vec<&Value> = pod.iter().collect();
                json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": pods})
            }
        };
        format!("{answer}\n")
    }
}

/// A request that is not accepted yet.
struct UnacceptedRequest {
    server: Arc<OnePodServer>,
    context: Context,
    changes: UnboundedReceiver<RequestRef>,
    request: ProfileRequest,
}

impl UnacceptedRequest {
    /// The watch shows the first of these states of the pod, and the API server has the second.
    async fn new(target: &Value, [shown, had]: [Option<Value>; 2]) -> Self {
        let news = Notify::new();
        let server = Arc::new(OnePodServer { shown, had, news });
        let asked = server.clone();
        let answer = move |request| {
            let server = asked.clone();
            async move {
                let answer = server.answer(request).await;
                Ok::<_, kube::Error>(Response::new(Body::from(answer.into_bytes())))
            }
        };
        let (context, changes) = context(Client::new(service_fn(answer), "default"));
        let request = request(json!({"target": target}));
        pods(&context, &request).await.unwrap();
        UnacceptedRequest {
            server,
            context,
            changes,
            request,
        }
    }

    /// Whether each pod of the target is ready, or why there is none.
    async fn look(&self) -> String {
        match observe(&self.context, &self.request).await {
            Ok(observed) => match observed.admission.unwrap().matched {
                Ok(pods) => {
                    let ready: Vec<bool> = pods.iter().map(|pod| pod.ready).collect();
                    format!("ready: {ready:?}")
                }
                Err(RequestRefusal { reason, message }) => format!("{reason}: {message}"),
            },
            Err(error) => error.to_string(),
        }
    }
}

fn targets() -> [Value; 2] {
    [
        json!({"podName": "web"}),
        json!({"selector": {"matchLabels": {"app": "web"}}}),
    ]
}

/// A pod of this version.
fn pod(version: &str, ready: &str) -> Option<Value> {
    let container = json!({"name": "fpm", "image": "", "imageID": "", "ready": true, "restartCount": 0,
        "containerID": "containerd://1", "state": {"running": {}}});
    Some(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": version},
        "spec": {"containers": [{"name": "fpm"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [container]},
    }))
}

#[tokio::test]
async fn a_ready_pod_waits_for_an_outdated_watch() {
    for target in targets() {
        for shown in [pod("9", "False"), None] {
            let mut candidate = UnacceptedRequest::new(&target, [shown, pod("10", "True")]).await;
            assert_eq!(candidate.look().await, BEHIND);
            candidate.server.news.notify_one();
            let seen = async {
                while candidate.look().await == BEHIND {
                    candidate.changes.next().await;
                }
                candidate.look().await
            };
            let seen = tokio::time::timeout(Duration::from_secs(60), seen).await;
            assert_eq!(seen.as_deref(), Ok("ready: [true]"));
        }
    }
}

#[tokio::test]
async fn an_unready_pod_needs_no_newer_watch() {
    for target in targets() {
        for listed in ["10", "9"] {
            let states = [pod("10", "False"), pod(listed, "False")];
            let candidate = UnacceptedRequest::new(&target, states).await;
            assert_eq!(candidate.look().await, "ready: [false]");
        }
    }
}

#[tokio::test]
async fn a_pod_only_in_the_watch_is_gone() {
    let refusals = [
        "NoPodsMatched: pod web does not exist in namespace shop",
        "NoPodsMatched: no pod of namespace shop matches app=web",
    ];
    for (target, refusal) in targets().iter().zip(refusals) {
        let candidate = UnacceptedRequest::new(target, [pod("9", "False"), None]).await;
        assert_eq!(candidate.look().await, refusal);
    }
}
