//! Pushes by OTLP/HTTP to a server that reads them as the specification says, and settings.

use std::io::Read as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use clap::Parser;
use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::profiles::v1development::{ProfilesDictionary, ResourceProfiles};
use prost::Message as _;

use super::*;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    arguments: ExportArgs,
}

/// Flags as the chart writes them.
pub fn otlp(flags: &[&str]) -> ExportArgs {
    let words = ["phpprof-operator"].iter().chain(flags);
    CommandLine::parse_from(words).arguments
}

/// The sums of a sample type, for the resources with this attribute.
pub fn sum_of(
    resources: &[ResourceProfiles],
    dictionary: &ProfilesDictionary,
    kind: &str,
    with: [&str; 2],
) -> i64 {
    let mut sum = 0;
    for resource in resources.iter().filter(|it| has(it, dictionary, with)) {
        for profile in resource.scope_profiles.iter().flat_map(|it| &it.profiles) {
            let sample_type = profile.sample_type.unwrap().type_strindex;
            if dictionary.string_table[sample_type as usize] == kind {
                let values = profile.samples.iter().flat_map(|sample| &sample.values);
                sum += values.sum::<i64>();
            }
        }
    }
    sum
}

/// A Collector moves keys and texts to the dictionary, which opentelemetry-proto v1.10.0 allows.
fn has(resource: &ResourceProfiles, tables: &ProfilesDictionary, [key, text]: [&str; 2]) -> bool {
    let string = |index: i32| tables.string_table[index as usize].as_str();
    let mut attributes = resource.resource.iter().flat_map(|it| &it.attributes);
    attributes.any(|it: &KeyValue| {
        let found = match it.value.as_ref().and_then(|it| it.value.as_ref()) {
            Some(AnyValue::StringValue(text)) => text,
            Some(AnyValue::StringValueStrindex(index)) => string(*index),
            other => panic!("{other:?}"),
        };
        [it.key.as_str(), string(it.key_strindex)].contains(&key) && found == text
    })
}

/// What the server received, and what it answers next.
#[derive(Clone, Default)]
struct OtlpServer(Arc<Mutex<OtlpSeen>>);

#[derive(Default)]
struct OtlpSeen {
    answers: Vec<(StatusCode, ExportProfilesServiceResponse)>,
    calls: u32,
    headers: Vec<HeaderMap>,
    messages: Vec<ExportProfilesServiceRequest>,
}

impl OtlpServer {
    fn seen<T>(&self, look: impl FnOnce(&mut OtlpSeen) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// The URL of a server whose next answer is this one.
    async fn answering(&self, status: StatusCode, rejected_profiles: i64) -> String {
        let partial_success = ExportProfilesPartialSuccess {
            rejected_profiles,
            error_message: "out of room".to_owned(),
        };
        let answer = ExportProfilesServiceResponse {
            partial_success: Some(partial_success),
        };
        self.seen(|seen| seen.answers.push((status, answer)));
        self.start().await
    }

    async fn start(&self) -> String {
        let router = Router::new()
            .route("/otlp/v1development/profiles", post(receive))
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/otlp/")
    }
}

async fn receive(
    State(server): State<OtlpServer>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut plain = Vec::new();
    GzDecoder::new(&*body).read_to_end(&mut plain).unwrap();
    let message = ExportProfilesServiceRequest::decode(&*plain).unwrap();
    let (status, answer) = server.seen(|seen| {
        seen.calls += 1;
        seen.answers.pop().unwrap_or_default()
    });
    if status == StatusCode::OK {
        server.seen(|seen| {
            seen.headers.push(headers);
            seen.messages.push(message);
        });
    }
    let mut headers = HeaderMap::new();
    let protobuf = HeaderValue::from_static("application/x-protobuf");
    headers.insert(CONTENT_TYPE, protobuf);
    (status, headers, answer.encode_to_vec())
}

async fn pushed(url: &str, flags: &[&str]) -> (String, String) {
    let endpoint = format!("--otlp-endpoint={url}");
    let flags: Vec<&str> = [&*endpoint]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let exporter = exporter(otlp(&flags), Duration::from_millis(2500));
    scene().await.tell(&exporter).await.remove(0)
}

#[tokio::test]
async fn receivers_of_otlp_get_pods_totals_and_headers() {
    let server = OtlpServer::default();
    let url = server.start().await;
    let flags = [
        "--otlp-attribute=k8s.cluster.name=prod",
        "--otlp-headers=authorization=Bearer%20hidden,x-scope-orgid=shop",
    ];
    let (reason, note) = pushed(&url, &flags).await;
    assert_eq!(reason, "OtlpPushed", "{note}");
    assert!(
        note.starts_with("6 profiles pushed to 127.0.0.1:"),
        "{note}"
    );
    server.seen(|seen| {
        for pod in PODS {
            for (kind, each) in [("samples", 1), ("cpu", 3_000_000), ("wall", 10_000_000)] {
                let of_pod = |it: &ExportProfilesServiceRequest| {
                    let tables = it.dictionary.as_ref().unwrap();
                    sum_of(&it.resource_profiles, tables, kind, ["k8s.pod.name", pod])
                };
                let sum: i64 = seen.messages.iter().map(of_pod).sum();
                assert_eq!(sum, each * STACKS, "{pod} {kind}");
            }
        }
        for message in &seen.messages {
            let resource = &message.resource_profiles[0];
            let tables = message.dictionary.as_ref().unwrap();
            assert!(has(resource, tables, ["k8s.cluster.name", "prod"]));
            assert!(has(resource, tables, ["service.namespace", "shop"]));
        }
        for headers in &seen.headers {
            assert_eq!(headers["authorization"], "Bearer hidden");
            assert_eq!(headers["x-scope-orgid"], "shop");
            assert_eq!(headers["content-type"], "application/x-protobuf");
        }
    });
}

#[tokio::test]
async fn profiles_by_otlp_have_times_and_unique_ids() {
    let server = OtlpServer::default();
    let url = server.start().await;
    pushed(&url, &[]).await;
    let now = Timestamp::now().as_nanosecond();
    server.seen(|seen| {
        let resources = seen.messages.iter().flat_map(|it| &it.resource_profiles);
        let scopes = resources.flat_map(|it| &it.scope_profiles);
        let profiles: Vec<_> = scopes.flat_map(|it| &it.profiles).collect();
        let mut ids: Vec<_> = profiles.iter().map(|it| it.profile_id.clone()).collect();
        assert!(ids.iter().all(|id| id.len() == 16));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 6);
        let age = |it: &&_| now - i128::from(time(it));
        assert!(
            profiles
                .iter()
                .map(age)
                .all(|age| (0..60_000_000_000).contains(&age))
        );
    });
}

fn time(profile: &opentelemetry_proto::tonic::profiles::v1development::Profile) -> u64 {
    profile.time_unix_nano
}

#[tokio::test]
async fn a_busy_receiver_of_otlp_is_asked_again() {
    let server = OtlpServer::default();
    let url = server.answering(StatusCode::SERVICE_UNAVAILABLE, 0).await;
    let (reason, note) = pushed(&url, &[]).await;
    assert_eq!(reason, "OtlpPushed", "{note}");
    assert_eq!(
        server.seen(|seen| (seen.calls, seen.messages.len())),
        (3, 2)
    );
}

#[tokio::test]
async fn dropped_profiles_are_an_event_and_final() {
    let server = OtlpServer::default();
    let url = server.answering(StatusCode::OK, 2).await;
    let (reason, note) = pushed(&url, &[]).await;
    assert_eq!(reason, "OtlpPushFailed");
    assert!(note.starts_with("0 profiles pushed to "), "{note}");
    assert!(
        note.ends_with("refused: the receiver dropped 2 profiles: out of room"),
        "{note}"
    );
    assert_eq!(server.seen(|seen| seen.calls), 1);
}

#[tokio::test]
async fn a_silent_grpc_receiver_is_only_an_event() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (reason, note) = pushed(&url, &["--otlp-protocol=grpc"]).await;
    assert_eq!(reason, "OtlpPushFailed");
    assert!(
        note.contains("retried until the deadline: Unavailable"),
        "{note}"
    );
    assert!(note.contains("refused"), "{note}");
}

/// One receiver does not delay another.
#[tokio::test]
async fn otlp_and_pyroscope_get_the_same_profile() {
    let (server, other) = (OtlpServer::default(), ExportServer::default());
    let endpoint = format!("--otlp-endpoint={}", server.start().await);
    let url = format!("--pyroscope-url={}", other.start().await);
    other.told(|told| told.busy = u32::MAX);
    let exporter = exporter(otlp(&[&endpoint, &url]), Duration::from_millis(2500));
    let told = scene().await.tell(&exporter).await;
    let reasons: Vec<_> = told.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(reasons, ["PushFailed", "OtlpPushed"]);
}

/// The listener takes connections and never answers.
#[tokio::test]
async fn a_silent_receiver_delays_no_other_requests_push() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("--otlp-endpoint=http://{}", silent.local_addr().unwrap());
    let url = format!("--pyroscope-url={}", ExportServer::default().start().await);
    let exporter = exporter(otlp(&[&endpoint, &url]), Duration::from_millis(2500));
    let (first, second) = (scene().await, scene().await);
    let told = tokio::join!(first.tell(&exporter), second.tell(&exporter));
    for told in [told.0, told.1] {
        let reasons: Vec<_> = told.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(reasons, ["Pushed", "OtlpPushFailed"], "{told:?}");
    }
}

#[tokio::test]
async fn a_snapshot_is_not_pushed_by_otlp() {
    let server = OtlpServer::default();
    let endpoint = format!("--otlp-endpoint={}", server.start().await);
    let exporter = exporter(otlp(&[&endpoint]), PATIENCE);
    for mode in [ProfileMode::Snapshot, ProfileMode::Heap] {
        let mut scene = scene().await;
        scene.request.spec.mode = mode;
        assert!(scene.tell(&exporter).await.is_empty());
    }
    assert_eq!(server.seen(|seen| seen.calls), 0);
}

#[tokio::test]
async fn heaps_are_not_pushed_to_pyroscope() {
    let url = format!("--pyroscope-url={}", ExportServer::default().start().await);
    let exporter = exporter(otlp(&[&url]), PATIENCE);
    let mut scene = scene().await;
    scene.request.spec.mode = ProfileMode::Heap;
    assert!(scene.tell(&exporter).await.is_empty());
}

#[test]
fn unusable_settings_of_otlp_are_refused() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let endpoint = "--otlp-endpoint=http://c:4317";
    for (flags, words) in [
        (
            &["--otlp-endpoint=c:4317"][..],
            "--otlp-endpoint must be http",
        ),
        (
            &["--otlp-endpoint=http://c/v1", "--otlp-protocol=grpc"],
            "must not have a path",
        ),
        (
            &[endpoint, "--otlp-attribute=a=1", "--otlp-attribute=a=2"],
            "one name twice",
        ),
        (&[endpoint, "--otlp-headers=hidden"], "must be NAME=VALUE"),
    ] {
        refused(otlp(flags), words);
    }
    for url in ["http://c:4317", "https://c:4317/"] {
        let endpoint = format!("--otlp-endpoint={url}");
        let grpc = otlp(&[&endpoint, "--otlp-protocol=grpc"]);
        assert!(!grpc.open(None).unwrap().is_empty());
    }
    let shown = format!("{:?}", otlp(&[endpoint, "--otlp-headers=a=hidden"]));
    assert!(!shown.contains("hidden"), "{shown}");
}
