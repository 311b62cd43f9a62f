//! The server with a cluster: a double says what the API server and the operator say
//! (`contract/results.json`), and records what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::{Method, StatusCode, Uri};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest};
use rmcp::service::PeerRequestOptions;
use serde_json::{Value, json};

use super::planted::planted;
use super::{TestAgent, flags, kubeconfig, recorded};
use crate::global::Global;
use crate::mcp::run::AgentRuns;
use crate::mcp::serve::AgentServer;
use crate::mcp::store::AgentStore;

const REQUESTS: &str = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilerequests";
const ARCHIVE: &str = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilearchives/profiles";
const RESULTS: &str = "/api/v1/namespaces/phpprof-system/services/phpprof-operator:results/proxy";

/// A double of the API server, with the operator behind it.
struct ApiDouble {
    objects: Mutex<Vec<Value>>,
    profile: Vec<u8>,
    requests: Vec<u8>,
    /// The condition of new requests: type and reason.
    ends: Mutex<Option<(&'static str, &'static str)>>,
    /// A request that may not be created.
    refused: Mutex<Option<String>>,
    /// Method and path of each call.
    calls: Mutex<Vec<String>>,
}

fn refusal(message: &str, code: u16) -> Vec<u8> {
    let reason = if code == 403 { "Forbidden" } else { "NotFound" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code});
    status.to_string().into_bytes()
}

fn object(name: &str, condition: Option<(&str, &str)>) -> Value {
    let conditions = condition.map(|(kind, reason)| {
        json!([{"type": kind, "status": "True", "reason": reason, "message": "as it was"}])
    });
    let mut object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-09-21T14:00:00Z"},
        "spec": {"target": {"podName": "web-1"}, "durationSeconds": 30},
        "status": {"conditions": conditions, "targets": [{"podName": "web-1", "state": "Failed", "reason": "NoPhpFound"}]},
    });
    if condition.is_some_and(|(kind, _)| kind == "Complete") {
        object["status"]["profile"] =
            json!({"url": "file:///x", "accessKey": "k", "samples": 1280, "sizeBytes": 9});
        object["status"]["targets"] = json!([{"podName": "web-1", "state": "Uploaded"}]);
    }
    object
}

impl ApiDouble {
    async fn start(objects: Vec<Value>) -> (Arc<Self>, u16) {
        let folder = tempfile::tempdir().unwrap();
        let [_, requests] = planted(folder.path());
        let double = Arc::new(ApiDouble {
            objects: Mutex::new(objects),
            profile: std::fs::read(recorded("sleep-has")).unwrap(),
            requests: std::fs::read(requests).unwrap(),
            ends: Mutex::new(None),
            refused: Mutex::new(None),
            calls: Mutex::new(Vec::new()),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().fallback(hear).with_state(double.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (double, port)
    }

    fn called(&self, beginning: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let found = calls.iter().filter(|call| call.starts_with(beginning));
        found.cloned().collect()
    }

    fn said(&self, method: &Method, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let json = |value: Value| Some((200, value.to_string().into_bytes()));
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut objects = self.objects.lock().unwrap();
        if let Some(name) = path.strip_prefix(&format!("{REQUESTS}/")) {
            let found = objects
                .iter_mut()
                .find(|it| it["metadata"]["name"] == name)?;
            if *method == Method::PATCH {
                found["spec"]["cancel"] = body["spec"]["cancel"].clone();
            }
            return json(found.clone());
        }
        match (method.as_str(), path) {
            ("GET", REQUESTS) => json(json!({
                "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequestList",
                "metadata": {}, "items": *objects,
            })),
            ("POST", REQUESTS) => {
                let name = body["metadata"]["generateName"].as_str()?.to_owned() + "new";
                if *self.refused.lock().unwrap() == Some(name.clone()) {
                    return Some((403, refusal("exceeded quota", 403)));
                }
                let ends = *self.ends.lock().unwrap();
                let mut made = object(&name, ends);
                made["spec"] = body["spec"].clone();
                objects.push(made.clone());
                Some((201, made.to_string().into_bytes()))
            }
            ("GET", ARCHIVE) => json(json!({
                "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileArchive",
                "metadata": {"name": "profiles", "namespace": "shop"},
                "status": {"accessKey": "archive"},
            })),
            (_, path) => self.of_operator(path.strip_prefix(RESULTS)?),
        }
    }

    fn of_operator(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        match path {
            "/a/shop" => {
                let stored = json!([{"name": "old", "uid": "0a1b2c3d-4", "samples": 7, "startTime": "2026-09-20T14:00:00Z"}]);
                Some((200, json!({"profiles": stored}).to_string().into_bytes()))
            }
            "/l/profile" => Some((200, self.profile.clone())),
            "/l/requests" => Some((200, self.requests.clone())),
            path if path.starts_with("/r/shop/") || path.starts_with("/a/shop/") => {
                let links = json!({"expiresAt": "2026-09-21T14:08:00Z", "links": [
                    {"name": "profile", "path": "/l/profile"}, {"name": "requests", "path": "/l/requests"},
                ]});
                Some((200, links.to_string().into_bytes()))
            }
            _ => None,
        }
    }
}

async fn hear(
    State(double): State<Arc<ApiDouble>>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, Vec<u8>) {
    let call = format!("{method} {}", uri.path());
    double.calls.lock().unwrap().push(call);
    let said = double.said(&method, uri.path(), &body);
    let (code, body) = said.unwrap_or_else(|| (404, refusal("not found", 404)));
    (StatusCode::from_u16(code).unwrap(), body)
}

async fn agent(objects: Vec<Value>, allows_run: bool) -> (TestAgent, Arc<ApiDouble>) {
    let (double, port) = ApiDouble::start(objects).await;
    let folder = tempfile::tempdir().unwrap();
    let global = Global {
        operator_namespace: "phpprof-system".to_owned(),
        operator_name: "phpprof-operator".to_owned(),
        ..kubeconfig(folder.path(), port)
    };
    let store = AgentStore::of_cluster(&global);
    // The kubeconfig is read once, and the connection kept.
    store.cluster().await.unwrap();
    let runs = allows_run.then(|| AgentRuns::of(&flags()));
    let agent = TestAgent::of(AgentServer::new(store, runs)).await;
    (agent, double)
}

fn three() -> Vec<Value> {
    vec![
        object("web", Some(("Complete", "Completed"))),
        object("slow", None),
        object("bad", Some(("Failed", "AllTargetsFailed"))),
    ]
}

#[tokio::test]
async fn a_clusters_profiles_are_read_without_a_change() {
    let (agent, double) = agent(three(), false).await;
    let list = agent.answered("list_profiles", json!({})).await;
    assert_eq!(
        (&list["context"], &list["namespace"]),
        (&json!("gone"), &json!("shop"))
    );
    let names: Vec<_> = list["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["profile"].clone())
        .collect();
    assert_eq!(names, ["bad", "slow", "web", "old@0a1b2c3d"]);
    assert_eq!(list["next"][0]["arguments"], json!({"profile": "web"}));
    let web = agent
        .answered("describe_profile", json!({"profile": "web"}))
        .await;
    assert_eq!(web["quality"]["samples"], 1280);
    assert_eq!(web["request"]["outcome"], "complete");
    assert_eq!(web["namespace"], "shop");
    let slow = agent
        .answered("describe_profile", json!({"profile": "slow"}))
        .await;
    assert_eq!(slow["request"]["outcome"], "in progress");
    assert_eq!(slow["next"][0]["tool"], "describe_profile");
    let bad = agent
        .answered("describe_profile", json!({"profile": "bad"}))
        .await;
    let pod = &bad["request"]["pods"][0];
    assert!(pod["whatToDo"].as_str().unwrap().len() > 10, "{bad}");
    for name in ["web", "old", "old@0a1b", "pprof/web"] {
        let top = agent.answered("top", json!({"profile": name})).await;
        assert_eq!(top["rows"][0]["function"], "hrtime", "{name}");
    }
    let requests = agent.answered("requests", json!({"profile": "web"})).await;
    assert_eq!(requests["requests"][0]["pid"], 7);
    assert_eq!(requests["next"][0]["tool"], "top");
    for tool in ["diff", "verdict"] {
        let both = json!({"before": "old", "after": "web"});
        agent.answered(tool, both).await;
    }
    let refusal = agent.refused("top", json!({"profile": "none"})).await;
    assert!(refusal.contains("\"tool\":\"list_profiles\""), "{refusal}");
    let refusal = agent.refused("top", json!({"profile": "slow"})).await;
    assert!(refusal.contains("has no profile yet"), "{refusal}");
    let posts = double.called("POST");
    assert!(posts.iter().all(|call| call.contains(RESULTS)), "{posts:?}");
    for method in ["PATCH", "PUT", "DELETE"] {
        assert_eq!(double.called(method), Vec::<String>::new());
    }
    // One profile was decoded for all questions about it.
    assert!(double.called(&format!("GET {RESULTS}/l/profile")).len() <= 2);
}

#[tokio::test]
async fn only_a_run_of_its_own_is_cancelled() {
    let (agent, double) = agent(three(), true).await;
    let run = json!({"target": "deploy/api", "waitSeconds": 0});
    let started = agent.answered("run", run.clone()).await;
    assert_eq!(
        (&started["state"], &started["profile"]),
        (&json!("in progress"), &json!("api-new"))
    );
    let refusal = agent.refused("run", run).await;
    assert!(
        refusal.contains("only one profile runs at a time"),
        "{refusal}"
    );
    let refusal = agent.refused("cancel", json!({"profile": "slow"})).await;
    assert!(
        refusal.contains("has not started this profile"),
        "{refusal}"
    );
    let cancelled = agent
        .answered("cancel", json!({"profile": "api-new"}))
        .await;
    assert_eq!(cancelled["state"], "cancelled");
    assert_eq!(
        double.called("PATCH"),
        [format!("PATCH {REQUESTS}/api-new")]
    );
    double.objects.lock().unwrap()[3] = object("api-new", Some(("Complete", "Cancelled")));
    let snapshot = json!({"target": "deploy/web", "snapshot": true, "waitSeconds": 0});
    let snapshot = agent.answered("run", snapshot).await;
    assert_eq!(snapshot["profile"], "web-dump-new");
    let spec = double.objects.lock().unwrap()[4]["spec"].clone();
    assert_eq!(spec["mode"], "Snapshot");
}

/// Asks, and cancels the call once the first of these requests is waited for. Ends when all are
/// cancelled.
async fn check_cancelled(tool: &'static str, arguments: Value, requests: &[&str]) {
    let (agent, double) = agent(three(), true).await;
    let call =
        CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
    let call = ClientRequest::CallToolRequest(CallToolRequest::new(call));
    let options = PeerRequestOptions::no_options();
    let sent = agent
        .0
        .send_cancellable_request(call, options)
        .await
        .unwrap();
    let wait = async |beginning: &str| {
        while double.called(beginning).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = async {
        wait(&format!("GET {REQUESTS}/{}", requests[0])).await;
        sent.cancel(None).await.unwrap();
        for request in requests {
            wait(&format!("PATCH {REQUESTS}/{request}")).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waited)
        .await
        .unwrap();
}

#[tokio::test]
async fn cancelling_the_call_cancels_its_run() {
    check_cancelled("run", json!({"target": "deploy/api"}), &["api-new"]).await;
}

#[tokio::test]
async fn cancelling_the_call_cancels_both_releases() {
    let both = json!({"before": "deploy/api", "after": "deploy/canary"});
    check_cancelled("compare", both, &["api-new", "canary-new"]).await;
}

fn releases() -> Value {
    json!({"before": "deploy/api", "after": "deploy/canary", "durationSeconds": 7, "waitSeconds": 0})
}

#[tokio::test]
async fn compare_gives_the_verdict_on_both_releases() {
    let (agent, double) = agent(three(), true).await;
    *double.ends.lock().unwrap() = Some(("Complete", "Completed"));
    let answer = agent.answered("compare", releases()).await;
    // The same profile twice, without cells.
    assert_eq!(answer["verdict"], "Inconclusive", "{answer}");
    assert_eq!(
        (&answer["before"], &answer["after"]),
        (&json!("api-new"), &json!("canary-new"))
    );
    let objects = double.objects.lock().unwrap().clone();
    for (made, name) in objects[3..].iter().zip(["api", "canary"]) {
        let spec = &made["spec"];
        assert_eq!(spec["target"]["workloadRef"]["name"], name, "{spec}");
        assert_eq!(
            (&spec["durationSeconds"], &spec["target"]["maxPods"]),
            (&json!(7), &json!(2))
        );
        assert_eq!(spec["labels"], json!(["Method", "Route"]));
    }
    assert_eq!((objects.len(), double.called("PATCH").len()), (5, 0));
}

#[tokio::test]
async fn compare_that_goes_on_says_what_to_ask() {
    let (agent, double) = agent(three(), true).await;
    let open = agent.answered("compare", releases()).await;
    assert_eq!(open["state"], "in progress", "{open}");
    assert_eq!(open["after"]["profile"], "canary-new");
    let tools: Vec<_> = open["next"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["tool"].clone())
        .collect();
    assert_eq!(tools, ["describe_profile", "verdict", "cancel", "cancel"]);
    for tool in ["compare", "run"] {
        let asked = if tool == "run" {
            json!({"target": "deploy/web"})
        } else {
            releases()
        };
        let refusal = agent.refused(tool, asked).await;
        assert!(
            refusal.contains("only one profile runs at a time"),
            "{refusal}"
        );
    }
    let verdict = &open["next"][1]["arguments"];
    let refusal = agent.refused("verdict", verdict.clone()).await;
    assert!(refusal.contains("has no profile yet"), "{refusal}");
    for cancel in [&open["next"][2], &open["next"][3]] {
        agent.answered("cancel", cancel["arguments"].clone()).await;
    }
    for (place, name) in [(3, "api-new"), (4, "canary-new")] {
        double.objects.lock().unwrap()[place] = object(name, Some(("Complete", "Cancelled")));
    }
    agent.answered("verdict", verdict.clone()).await;
}

#[tokio::test]
async fn compare_without_one_side_ends_the_other() {
    let (agent, double) = agent(three(), true).await;
    *double.refused.lock().unwrap() = Some("canary-new".to_owned());
    let refusal = agent.refused("compare", releases()).await;
    assert!(refusal.contains("exceeded quota"), "{refusal}");
    let cancelled = format!("PATCH {REQUESTS}/api-new");
    assert_eq!(double.called("PATCH"), [cancelled.as_str()]);
}

#[tokio::test]
async fn compare_with_wrong_limits_profiles_nothing() {
    let (agent, double) = agent(three(), true).await;
    let mut asked = releases();
    asked["limits"] = json!(["/=5"]);
    let refusal = agent.refused("compare", asked).await;
    assert!(refusal.contains("limits: /=5"), "{refusal}");
    assert_eq!(double.called("POST"), Vec::<&str>::new());
}

#[tokio::test]
async fn compare_of_failed_profiles_says_why() {
    let (agent, double) = agent(three(), true).await;
    *double.ends.lock().unwrap() = Some(("Failed", "AllTargetsFailed"));
    let failed = agent.answered("compare", releases()).await;
    assert_eq!(
        (&failed["state"], &failed["next"][0]["tool"]),
        (&json!("failed"), &json!("describe_profile"))
    );
    assert!(
        failed["note"].as_str().unwrap().contains("no verdict"),
        "{failed}"
    );
}
