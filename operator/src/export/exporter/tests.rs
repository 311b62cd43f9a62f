//! Pushes and annotations against a server that judges them as Pyroscope and Grafana do.
//!
//! The totals are asked for in Pyroscope's own words. With PYROSCOPE_URL the same test asks a real server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use object_store::memory::InMemory;
use phpprof_crds::{ProfileRequestStatus, ProfileResult, TargetState, TargetStatus, condition};
use phpprof_profile::{
    Builder, FrameRef, Label, Limits as Bounds, Profile, Settings, decode, encode_gzip, total,
};
use serde_json::{Value, json};

use super::*;
use crate::export::series::KINDS;
use crate::sampler::object_keys::MERGED;
use crate::sampler::object_keys::key;
use crate::storage::store::Store;
use crate::testing::request;

const PODS: [&str; 2] = ["web-1", "web-2"];
const STACKS: i64 = 3;
const TOKEN: &str = "glsa_secret";

type Labels = HashMap<String, String>;
type Answer = (StatusCode, String);

/// What a server was told, and how often it will say that it is busy.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    busy: u32,
    calls: u32,
    pushes: Vec<(Labels, Profile)>,
    tenants: Vec<String>,
    annotations: Vec<Value>,
}

impl Server {
    fn told<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    async fn start(&self) -> String {
        let router = Router::new()
            .route("/push.v1.PusherService/Push", post(push))
            .route(
                "/querier.v1.QuerierService/SelectMergeStacktraces",
                post(select),
            )
            .route("/api/annotations", post(annotate))
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }
}

/// As Connect says it.
fn refusal(status: StatusCode, code: &str, message: &str) -> Answer {
    let body = json!({"code": code, "message": message});
    (status, body.to_string())
}

async fn push(State(server): State<Server>, headers: HeaderMap, body: String) -> Answer {
    let busy = server.told(|told| {
        told.calls += 1;
        let busy = told.busy > 0;
        told.busy -= u32::from(busy);
        busy
    });
    if busy {
        let message = "the limit of ingested bytes is reached";
        return refusal(StatusCode::TOO_MANY_REQUESTS, "resource_exhausted", message);
    }
    if headers["content-type"] != "application/json" {
        return refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unknown", "");
    }
    let tenant = headers.get("x-scope-orgid");
    let tenant = tenant
        .and_then(|tenant| tenant.to_str().ok())
        .map(str::to_owned);
    server.told(|told| told.tenants.extend(tenant));
    match judged(&body) {
        Ok(pushes) => {
            server.told(|told| told.pushes.extend(pushes));
            (StatusCode::OK, "{}".to_owned())
        }
        Err(message) => refusal(StatusCode::BAD_REQUEST, "invalid_argument", &message),
    }
}

/// As Pyroscope's distributor judges a push with its default limits.
fn judged(body: &str) -> Result<Vec<(Labels, Profile)>, String> {
    let request: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let mut pushes = Vec::new();
    for series in request["series"].as_array().ok_or("no series")? {
        let labels = labels(&series["labels"])?;
        for sample in series["samples"].as_array().ok_or("no samples")? {
            let raw = sample["rawProfile"].as_str().ok_or("no profile")?;
            let raw = STANDARD.decode(raw).map_err(|error| error.to_string())?;
            let bounds = Bounds {
                decompressed_bytes: 4 << 20,
                ..Bounds::default()
            };
            let profile = decode(&raw, &bounds).map_err(|error| error.to_string())?;
            if profile.sample.len() > 16_000 {
                return Err("exceeds the samples count limit".to_owned());
            }
            if profile.sample_type.len() != 1 {
                return Err("one type each".to_owned());
            }
            if profile.sample.iter().any(|sample| !sample.label.is_empty()) {
                return Err("would become a series each".to_owned());
            }
            pushes.push((labels.clone(), profile));
        }
    }
    Ok(pushes)
}

fn labels(given: &Value) -> Result<Labels, String> {
    let mut labels = Labels::new();
    for label in given.as_array().ok_or("no labels")? {
        let (Some(name), Some(value)) = (label["name"].as_str(), label["value"].as_str()) else {
            return Err("a label is a name and a value".to_owned());
        };
        let legal = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !legal || name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(format!("invalid label name {name}"));
        }
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(format!("duplicate label name {name}"));
        }
    }
    let needed = ["__name__", "service_name"];
    if labels.len() > 30 || needed.iter().any(|name| !labels.contains_key(*name)) {
        return Err("too many label names, or too few".to_owned());
    }
    Ok(labels)
}

/// The sum of what was pushed, as a flame graph has it.
async fn select(State(server): State<Server>, body: String) -> Answer {
    let query: Value = serde_json::from_str(&body).unwrap();
    let text = |key: &str| query[key].as_str().unwrap().to_owned();
    let (kind, selector) = (text("profileTypeID"), text("labelSelector"));
    let (name, rest) = kind.split_once(':').unwrap();
    let sample_type = rest.split(':').next().unwrap();
    let wanted: Vec<(&str, &str)> = selector
        .trim_matches(['{', '}'])
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .chain([("__name__", name)])
        .collect();
    let number = |key: &str| text(key).parse::<i64>().unwrap();
    let range = number("start")..=number("end");
    let sum = server.told(|told| {
        let chosen = told.pushes.iter().filter(|(labels, profile)| {
            let named =
                |(name, value): &(&str, &str)| labels.get(*name).is_some_and(|is| is == value);
            wanted.iter().all(named) && range.contains(&(profile.time_nanos / 1_000_000))
        });
        let totals = chosen.map(|(_, profile)| total(profile, sample_type));
        totals.sum::<i64>()
    });
    let body = json!({"flamegraph": {"total": sum.to_string()}});
    (StatusCode::OK, body.to_string())
}

async fn annotate(State(server): State<Server>, headers: HeaderMap, body: String) -> Answer {
    if headers["authorization"] != format!("Bearer {TOKEN}").as_str() {
        return (StatusCode::UNAUTHORIZED, "Invalid API key".to_owned());
    }
    let body = serde_json::from_str(&body).unwrap();
    server.told(|told| told.annotations.push(body));
    (
        StatusCode::OK,
        r#"{"message":"Annotation added","id":1}"#.to_owned(),
    )
}

/// A request that ended a moment ago with the profiles of two pods, in a store.
struct Scene {
    collector: Collector,
    request: ProfileRequest,
    limits: Limits,
}

/// Of each pod so many stacks, each with 10 ms of wall time and 3 of CPU time.
fn merged() -> Profile {
    let mut builder = Builder::new(Settings::default());
    for stack in 0..STACKS {
        let name = format!("function{stack}");
        let frame = FrameRef {
            name: &name,
            ..FrameRef::default()
        };
        for pod in PODS {
            let labels = [Label::Str("pod", pod)];
            builder.add(&[frame], &[1, 3_000_000, 10_000_000], &labels);
        }
    }
    builder.finish()
}

async fn scene() -> Scene {
    let now = Timestamp::now();
    let workload = format!("e2e-{}", now.as_nanosecond());
    let mut request = request(json!({"target": {"workloadRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": workload,
    }}}));
    let target = |pod: &&str| TargetStatus {
        pod_name: (*pod).to_owned(),
        container_name: "fpm".into(),
        state: TargetState::Uploaded,
        ..TargetStatus::default()
    };
    request.status = Some(ProfileRequestStatus {
        start_time: Some(Time(now - SignedDuration::from_secs(40))),
        completion_time: Some(Time(now)),
        succeeded: 2,
        profile: Some(ProfileResult::default()),
        targets: PODS.iter().map(target).collect(),
        conditions: vec![Condition {
            type_: condition::COMPLETE.to_owned(),
            status: "True".to_owned(),
            reason: "Complete".to_owned(),
            message: String::new(),
            last_transition_time: Time(now),
            observed_generation: None,
        }],
        ..ProfileRequestStatus::default()
    });
    let limits = Limits::default();
    let store = Store::in_memory(Arc::new(InMemory::new()));
    let file = encode_gzip(&merged());
    let place = key(&request, &limits.key_prefix, MERGED);
    store.create(&place, file).await.unwrap();
    Scene {
        collector: Collector::new(store),
        request,
        limits,
    }
}

impl Scene {
    /// The reasons and notes of the events.
    async fn tell(&self, exporter: &Exporter) -> Vec<(String, String)> {
        let events = exporter
            .tell(&self.collector, &self.request, &self.limits)
            .await;
        let told = |exported: Exported| (exported.reason.to_owned(), exported.note);
        events.into_iter().map(told).collect()
    }

    /// What a server has of a pod of this request within its time, once it has it all.
    async fn total(&self, url: &str, kind: usize, pod: &str, expected: i64) -> i64 {
        let status = self.request.status.clone().unwrap();
        let milliseconds = |time: Option<Time>| time.unwrap().0.as_millisecond().to_string();
        let service = series::service(&self.request);
        let query = json!({
            "profileTypeID": KINDS[kind].id(),
            "labelSelector": format!(r#"{{service_name="{service}",pod="{pod}"}}"#),
            "start": milliseconds(status.start_time), "end": milliseconds(status.completion_time),
        });
        let url = format!("{url}/querier.v1.QuerierService/SelectMergeStacktraces");
        let mut sum = 0;
        for _ in 0..60 {
            let asked = client(None)
                .unwrap()
                .post(&url)
                .header("content-type", "application/json")
                .body(query.to_string());
            let answer = asked.send().await.unwrap().text().await.unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let shown = answer["flamegraph"]["total"].as_str();
            sum = shown.and_then(|total| total.parse().ok()).unwrap_or(0);
            if sum == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        sum
    }
}

fn exporter(arguments: ExportArgs, patience: Duration) -> Exporter {
    // Tests run side by side; whoever comes second finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Exporter {
        patience,
        ..arguments.open(None).unwrap()
    }
}

fn pyroscope(url: &str) -> ExportArgs {
    ExportArgs {
        pyroscope_url: Some(url.parse().unwrap()),
        ..ExportArgs::default()
    }
}

fn grafana(url: &str, token: &str) -> ExportArgs {
    ExportArgs {
        grafana_url: Some(url.parse().unwrap()),
        grafana_token: Some(token.to_owned()),
        ..ExportArgs::default()
    }
}

#[tokio::test]
async fn a_receiver_of_pushes_finds_the_totals_of_each_pod_and_type() {
    let stub = Server::default().start().await;
    let url = std::env::var("PYROSCOPE_URL").unwrap_or(stub);
    let scene = scene().await;
    let told = scene.tell(&exporter(pyroscope(&url), PATIENCE)).await;
    let (reason, note) = &told[0];
    assert_eq!(reason, "Pushed", "{note}");
    for pod in PODS {
        for (kind, each) in [(0, 10_000_000), (1, 3_000_000)] {
            let expected = each * STACKS;
            assert_eq!(scene.total(&url, kind, pod, expected).await, expected);
        }
    }
}

#[tokio::test]
async fn who_is_busy_is_asked_again_and_nothing_is_pushed_twice() {
    let server = Server::default();
    server.told(|told| told.busy = 1);
    let arguments = ExportArgs {
        pyroscope_tenant: Some("shop".to_owned()),
        ..pyroscope(&server.start().await)
    };
    let told = scene().await.tell(&exporter(arguments, PATIENCE)).await;
    assert_eq!(told[0].0, "Pushed");
    assert!(told[0].1.starts_with("4 series pushed to 127.0.0.1:"));
    let (calls, pushes) = server.told(|told| (told.calls, told.pushes.len()));
    assert_eq!((calls, pushes), (5, 4));
    assert!(server.told(|told| told.tenants.iter().all(|tenant| tenant == "shop")));
}

#[tokio::test]
async fn who_stays_busy_is_given_up_and_an_event_says_so() {
    let server = Server::default();
    server.told(|told| told.busy = u32::MAX);
    let exporter = exporter(
        pyroscope(&server.start().await),
        Duration::from_millis(2500),
    );
    let told = scene().await.tell(&exporter).await;
    let (reason, note) = &told[0];
    assert_eq!(reason, "PushFailed");
    assert!(note.starts_with("0 of 4 series pushed to "), "{note}");
    assert!(note.contains("429 Too Many Requests"), "{note}");
    assert!(note.contains("ingested bytes"), "{note}");
    // One on a machine that is too busy for a second one in time.
    assert!(server.told(|told| (1..=3).contains(&told.calls)));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_event_and_no_more() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let told = scene()
        .await
        .tell(&exporter(pyroscope(&url), Duration::from_millis(2500)))
        .await;
    assert_eq!(told[0].0, "PushFailed");
    assert!(told[0].1.contains("refused"), "{}", told[0].1);
}

#[tokio::test]
async fn an_annotation_is_made_with_the_token_and_marks_the_requests_time() {
    let server = Server::default();
    let url = server.start().await;
    let scene = scene().await;
    let told = scene
        .tell(&exporter(grafana(&url, &format!("{TOKEN}\n")), PATIENCE))
        .await;
    assert_eq!(told[0].0, "Annotated", "{}", told[0].1);
    let annotations = server.told(|told| told.annotations.clone());
    let expected = annotation(&scene.request, None);
    assert_eq!(annotations, expected.into_iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_token_that_is_refused_is_not_tried_again_and_is_in_no_event() {
    let url = Server::default().start().await;
    let told = scene()
        .await
        .tell(&exporter(grafana(&url, "glsa_wrong"), PATIENCE))
        .await;
    let (reason, note) = &told[0];
    assert_eq!(reason, "AnnotationFailed");
    assert!(
        note.ends_with("refused: 401 Unauthorized Invalid API key"),
        "{note}"
    );
    assert!(!note.contains("glsa"));
}

#[tokio::test]
async fn nobody_is_told_where_nothing_was_configured() {
    let exporter = exporter(ExportArgs::default(), PATIENCE);
    assert!(exporter.is_empty());
    assert!(scene().await.tell(&exporter).await.is_empty());
}

#[track_caller]
fn refused(arguments: ExportArgs, words: &str) {
    let error = arguments.open(None).err().unwrap().to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn what_cannot_be_sent_is_refused_at_the_start() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for url in [
        "ftp://p",
        "http://user@p",
        "http://p?x",
        "http://p#x",
        "data:x",
    ] {
        refused(pyroscope(url), "--pyroscope-url must be http");
    }
    let twice = ExportArgs {
        pyroscope_label: vec!["a=1".parse().unwrap(), "a=2".parse().unwrap()],
        ..pyroscope("http://p")
    };
    refused(twice, "one name twice");
    let two = ExportArgs {
        pyroscope_token: Some("a".to_owned()),
        pyroscope_username: Some("b".to_owned()),
        ..pyroscope("http://p")
    };
    refused(two, "give one of them");
    refused(grafana("http://g", "a\0b"), "look at its Secret");
}
