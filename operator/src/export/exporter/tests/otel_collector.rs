//! Pushes to a real OpenTelemetry Collector, which writes what it received to a file.
//!
//! `make otlp` builds the Collector (tools/otelcol) and runs these tests. They use TLS with a
//! private CA, and a bearer token, as a Collector outside the cluster would.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use opentelemetry_proto::tonic::profiles::v1development::ProfilesData;
use prost::Message as _;
use tempfile::TempDir;

use super::by_otlp::{otlp, sum_of};
use super::*;

/// A running Collector with a folder of its own. It ends with the test.
struct OtelCollector {
    child: Child,
    folder: TempDir,
    port: u16,
    ca: String,
}

impl Drop for OtelCollector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

fn config(folder: &Path, protocol: &str, port: u16) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    json!({
        "extensions": {"bearertokenauth": {"token": TOKEN}},
        "receivers": {"otlp": {"protocols": {protocol: {
            "endpoint": format!("127.0.0.1:{port}"),
            "auth": {"authenticator": "bearertokenauth"},
            "tls": {"cert_file": file("cert.pem"), "key_file": file("key.pem")},
        }}}},
        "exporters": {
            "debug": {"verbosity": "detailed"},
            "file": {"path": file("profiles"), "format": "proto", "flush_interval": "100ms"},
        },
        "service": {
            "extensions": ["bearertokenauth"],
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"profiles": {"receivers": ["otlp"], "exporters": ["debug", "file"]}},
        },
    })
    .to_string()
}

impl OtelCollector {
    /// Starts one that receives by this protocol, named as in its configuration.
    fn start(protocol: &str) -> Self {
        let program = PathBuf::from(std::env::var("PHPPROF_OTELCOL").expect("make otlp sets it"));
        let folder = tempfile::tempdir().unwrap();
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let ca = pem("CERTIFICATE", certified.cert.der());
        std::fs::write(folder.path().join("cert.pem"), &ca).unwrap();
        let key = pem("PRIVATE KEY", &certified.signing_key.serialize_der());
        std::fs::write(folder.path().join("key.pem"), key).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, config(folder.path(), protocol, port)).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .arg("--config")
            .arg(&file)
            .arg("--feature-gates=+service.profilesSupport")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let collector = OtelCollector {
            child,
            folder,
            port,
            ca,
        };
        collector.wait(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        collector
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn wait(&self, is_done: impl Fn() -> bool) {
        let mut left = 600;
        while !is_done() {
            let log = || self.log().chars().rev().take(2000).collect::<Vec<_>>();
            let end = || log().iter().rev().collect::<String>();
            assert!(left > 0, "{}", end());
            left -= 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the file has, if it is whole. Each message follows its length of four bytes.
    fn received(&self) -> Option<Vec<ProfilesData>> {
        let file = std::fs::read(self.folder.path().join("profiles")).ok()?;
        let (mut rest, mut all) = (&file[..], Vec::new());
        while let Some((length, body)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
            let (message, more) = body.split_at_checked(length)?;
            all.push(ProfilesData::decode(message).ok()?);
            rest = more;
        }
        Some(all)
    }

    fn sum(&self, kind: &str, with: [&str; 2]) -> i64 {
        let all = self.received().unwrap_or_default();
        let of = |data: &ProfilesData| {
            let tables = data.dictionary.as_ref().unwrap();
            sum_of(&data.resource_profiles, tables, kind, with)
        };
        all.iter().map(of).sum()
    }

    async fn push(&self, scene: &ExportScene, protocol: &str, token: &str) -> (String, String) {
        let endpoint = format!("--otlp-endpoint=https://localhost:{}", self.port);
        let protocol = format!("--otlp-protocol={protocol}");
        let headers = format!("--otlp-headers=authorization=Bearer%20{token}");
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let arguments = otlp(&[&endpoint, &protocol, &headers]);
        let exporter = Exporter {
            patience: Duration::from_secs(30),
            ..arguments.open(Some(&self.ca)).unwrap()
        };
        scene.tell(&exporter).await.remove(0)
    }
}

/// A sample of a request with a trace.
fn traced() -> Profile {
    let mut builder = Builder::new(Settings::default());
    let labels = [
        SampleTag::Str("pod", "web-1"),
        SampleTag::Str("sapi", "fpm-fcgi"),
        SampleTag::Str("method", "GET"),
        SampleTag::Str("trace_id", "0af7651916cd43dd8448eb211c80319c"),
        SampleTag::Str("span_id", "b7ad6b7169203331"),
    ];
    builder.add(&[FrameRef::default()], &[1, 0, 7], &labels);
    builder.finish()
}

/// Pushes a recorded profile, one with a trace, and one of two pods over the bounds of a message,
/// and compares the totals of each type.
async fn check_totals_and_refusal(name: &str, protocol: &str) {
    let collector = OtelCollector::start(name);
    let large = scene_of(&merged(3_000, 1_000)).await;
    let (reason, note) = collector.push(&large, protocol, "wrong").await;
    assert_eq!(reason, "OtlpPushFailed", "{note}");
    assert!(note.contains("then: refused: "), "{note}");
    let (reason, note) = collector.push(&large, protocol, TOKEN).await;
    assert_eq!(reason, "OtlpPushed", "{note}");
    for pod in PODS {
        let pod = ["k8s.pod.name", pod];
        collector.wait(|| collector.sum("samples", pod) == 3_000);
        assert_eq!(collector.sum("cpu", pod), 9_000_000_000);
        assert_eq!(collector.sum("wall", pod), 30_000_000_000);
    }
    let recorded = decode(RECORDED, &Bounds::default()).unwrap();
    let scene = scene_of(&recorded).await;
    let (reason, note) = collector.push(&scene, protocol, TOKEN).await;
    assert_eq!(reason, "OtlpPushed", "{note}");
    let service = crate::export::series::workload(&scene.request.spec.target);
    for (kind, _) in recorded.sample_types() {
        let expected = total(&recorded, kind);
        let of_service = ["service.name", &*service];
        collector.wait(|| collector.sum(kind, of_service) == expected);
    }
    let (reason, note) = collector
        .push(&scene_of(&traced()).await, protocol, TOKEN)
        .await;
    assert_eq!(reason, "OtlpPushed", "{note}");
    let of_fpm = ["process.runtime.name", "fpm-fcgi"];
    collector.wait(|| collector.sum("wall", of_fpm) == 7);
    let all = collector.received().unwrap();
    let mut links = all.iter().filter_map(|it| it.dictionary.as_ref());
    let span = [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31];
    assert!(links.any(|it| it.link_table.iter().any(|link| link.span_id == span)));
    // The debug exporter prints each table.
    collector.wait(|| collector.log().contains("profile.frame.type"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make otlp runs it"]
async fn a_real_collector_gets_totals_by_http() {
    check_totals_and_refusal("http", "http/protobuf").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make otlp runs it"]
async fn a_real_collector_gets_totals_by_grpc() {
    check_totals_and_refusal("grpc", "grpc").await;
}
