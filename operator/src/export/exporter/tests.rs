//! Pushes and annotations, sent to a server that judges them as Pyroscope and Grafana do.
//!
//! The tests read back what arrived through Pyroscope's own API. With PYROSCOPE_URL they use a real
//! server.

mod by_otlp;
mod otel_collector;
mod server;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use object_store::memory::InMemory;
use phpprof_crds::{ProfileRequestStatus, ProfileResult, TargetState, TargetStatus, condition};
use phpprof_profile::{
    Builder, DecodeLimits as Bounds, FrameRef, Profile, SampleTag, Settings, decode, encode_gzip,
    top, total,
};
use serde_json::{Value, json};

use self::server::{ExportServer, TOKEN};
use super::*;
use crate::export::series::KINDS;
use crate::sampler::object_keys::MERGED;
use crate::sampler::object_keys::key;
use crate::storage::store::ProfileStore;
use crate::testing::request;

const PODS: [&str; 2] = ["web-1", "web-2"];
const STACKS: i64 = 3;
/// A profile of a real PHP process.
const RECORDED: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../profile/tests/findings/query-loop-has.pb.gz"
));

/// A request that ended a moment ago, and a store with the profiles of its two pods.
struct ExportScene {
    collector: Collector,
    request: ProfileRequest,
    limits: AdminLimits,
}

/// This many stacks for each pod, of a function with a name of this length. Each stack has 10 ms of
/// wall time and 3 ms of CPU time.
fn merged(stacks: i64, length: usize) -> Profile {
    let mut builder = Builder::new(Settings::default());
    for stack in 0..stacks {
        let name = format!("function{stack:0length$}");
        let frame = FrameRef {
            name: &name,
            ..FrameRef::default()
        };
        for pod in PODS {
            let labels = [SampleTag::Str("pod", pod)];
            builder.add(&[frame], &[1, 3_000_000, 10_000_000], &labels);
        }
    }
    builder.finish()
}

async fn scene() -> ExportScene {
    scene_of(&merged(STACKS, 1)).await
}

async fn scene_of(profile: &Profile) -> ExportScene {
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
    let limits = AdminLimits::default();
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let file = encode_gzip(profile);
    let place = key(&request, &limits.key_prefix, MERGED);
    store.create(&place, file).await.unwrap();
    ExportScene {
        collector: Collector::new(store),
        request,
        limits,
    }
}

impl ExportScene {
    /// The reasons and notes of the events.
    async fn tell(&self, exporter: &Exporter) -> Vec<(String, String)> {
        let events = exporter
            .tell(&self.collector, &self.request, &self.limits)
            .await;
        let told = |exported: Exported| (exported.reason.to_string(), exported.note);
        events.into_iter().map(told).collect()
    }

    /// The server's flame graph for this request's time and these labels. Waits until its total is
    /// the expected one, but not forever.
    async fn flame_graph(&self, url: &str, kind: usize, labels: &str, expected: i64) -> Value {
        let status = self.request.status.clone().unwrap();
        let milliseconds = |time: Option<Time>| time.unwrap().0.as_millisecond().to_string();
        let service = series::service(&self.request);
        let query = json!({
            "profileTypeID": KINDS[kind].id(),
            "labelSelector": format!(r#"{{service_name="{service}"{labels}}}"#),
            "start": milliseconds(status.start_time), "end": milliseconds(status.completion_time),
        });
        let url = format!("{url}/querier.v1.QuerierService/SelectMergeStacktraces");
        let expected = expected.to_string();
        let mut flame_graph = Value::Null;
        for _ in 0..60 {
            let asked = client(None)
                .unwrap()
                .post(&url)
                .header("content-type", "application/json")
                .body(query.to_string());
            let answer = asked.send().await.unwrap().text().await.unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            flame_graph = answer["flamegraph"].clone();
            if flame_graph["total"] == expected {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        flame_graph
    }

    /// Pushes to the server of PYROSCOPE_URL, or else to the test server, and compares each pod's
    /// totals there with those of its stacks.
    async fn check_totals(&self, stacks: i64) {
        let url = url().await;
        let told = self.tell(&exporter(pyroscope(&url), PATIENCE)).await;
        assert_eq!(told[0].0, "Pushed", "{}", told[0].1);
        for pod in PODS {
            for (kind, each) in [(0, 10_000_000), (1, 3_000_000)] {
                let pod = format!(r#",pod="{pod}""#);
                let found = self.flame_graph(&url, kind, &pod, each * stacks).await;
                assert_eq!(found["total"], (each * stacks).to_string());
            }
        }
    }
}

async fn url() -> String {
    let stub = ExportServer::default().start().await;
    std::env::var("PYROSCOPE_URL").unwrap_or(stub)
}

fn exporter(arguments: ExportArgs, patience: Duration) -> Exporter {
    // Tests run in parallel. All but the first find a provider installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
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
        grafana_token: Some(token.into()),
        ..ExportArgs::default()
    }
}

#[tokio::test]
async fn a_receiver_gets_totals_per_pod_and_type() {
    scene().await.check_totals(STACKS).await;
}

/// A server would always answer a push of 3 MB with 429.
#[tokio::test]
async fn a_profile_over_the_receivers_burst_arrives_whole() {
    let stacks = 10_000;
    scene_of(&merged(stacks, 300))
        .await
        .check_totals(stacks)
        .await;
}

#[tokio::test]
async fn a_recorded_profile_arrives_with_totals_and_functions() {
    let recorded = decode(RECORDED, &Bounds::default()).unwrap();
    let url = url().await;
    let together = ExportArgs {
        pyroscope_merge_pods: true,
        ..pyroscope(&url)
    };
    let scene = scene_of(&recorded).await;
    let told = scene.tell(&exporter(together, PATIENCE)).await;
    assert_eq!(told[0].0, "Pushed", "{}", told[0].1);
    for (index, kind) in KINDS.iter().enumerate() {
        let (sample_type, _) = kind.sample_type;
        let expected = total(&recorded, sample_type);
        let found = scene.flame_graph(&url, index, "", expected).await;
        assert_eq!(found["total"], expected.to_string());
        let names = found["names"].as_array().unwrap();
        for row in top(&recorded, sample_type) {
            // A script's name has its file there.
            let beginning = format!("{} ", row.name);
            let mut texts = names.iter().filter_map(Value::as_str);
            let is_there =
                row.cum == 0 || texts.any(|name| name == row.name || name.starts_with(&beginning));
            assert!(is_there, "{}", row.name);
        }
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_without_duplicates() {
    let server = ExportServer::default();
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
async fn a_server_that_stays_busy_gives_an_event() {
    let server = ExportServer::default();
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
    // On a busy machine there may be no time for a second call.
    assert!(server.told(|told| (1..=3).contains(&told.calls)));
}

#[tokio::test]
async fn an_absent_server_is_only_an_event() {
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
async fn an_annotation_marks_the_requests_time_by_token() {
    let server = ExportServer::default();
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
async fn a_refused_token_is_not_retried_or_shown() {
    let url = ExportServer::default().start().await;
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
fn unusable_targets_are_refused_at_the_start() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
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
        pyroscope_token: Some("a".into()),
        pyroscope_username: Some("b".to_owned()),
        ..pyroscope("http://p")
    };
    refused(two, "set one of them");
    refused(grafana("http://g", "a\0b"), "check its Secret");
}

#[test]
fn arguments_show_no_credential_by_debug() {
    let arguments = ExportArgs {
        pyroscope_password: Some("hidden".into()),
        pyroscope_token: Some("hidden".into()),
        ..grafana("https://grafana.example", "hidden")
    };
    let shown = format!("{arguments:?}");
    assert!(
        shown.contains("grafana_token: Some(…)") && !shown.contains("hidden"),
        "{shown}"
    );
}
