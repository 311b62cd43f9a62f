//! How errors of real clients are counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::memory::InMemory;
use object_store::{ClientOptions, RetryConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::metrics::{Metrics, Now};
use crate::storage::store::ProfileStore;

/// An HTTP answer with this status line and body.
fn said(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

/// A server that gives each connection this answer; an empty one means no answer.
async fn answering(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut question = [0; 16 << 10];
            let _ = stream.read(&mut question).await;
            if answer.is_empty() {
                silent.push(stream)
            } else {
                drop(stream.write_all(answer.as_bytes()).await)
            }
        }
    });
    address
}

fn s3(address: SocketAddr, metrics: &Metrics) -> ProfileStore {
    let any = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_timeout(Duration::from_millis(300));
    let bucket = AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_bucket_name("profiles")
        .with_region("us-east-1")
        .with_access_key_id("test")
        .with_secret_access_key("test")
        .with_client_options(options)
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    let store = ProfileStore {
        objects: Arc::new(bucket.build().unwrap()),
        ..any
    };
    store.counted(metrics.store_errors())
}

/// The series of errors that are not 0, as in a scrape.
fn counted(metrics: &Metrics) -> Vec<String> {
    let text = metrics.text(Now::default());
    let errors = text
        .lines()
        .filter_map(|line| line.strip_prefix("phpprof_store_errors_total"));
    let errors = errors.filter(|line| !line.ends_with(" 0"));
    errors.map(str::to_owned).collect()
}

async fn check(answer: String, kind: &str) {
    let metrics = Metrics::default();
    let store = s3(answering(answer.clone()).await, &metrics);
    assert!(store.create("a", vec![1]).await.is_err(), "{answer}");
    let expected = format!("{{operation=\"put\",kind=\"{kind}\"}} 1");
    assert_eq!(counted(&metrics), [expected], "{answer}");
}

#[tokio::test]
async fn a_store_error_is_counted_by_its_kind() {
    for (status, kind) in [
        ("500 x", "server"),
        ("429 x", "throttled"),
        ("403 x", "denied"),
        ("401 x", "denied"),
        ("404 x", "not_found"),
        ("507 x", "full"),
        ("400 x", "other"),
    ] {
        check(said(status, ""), kind).await;
    }
    let slow_down = "<Error><Code>SlowDown</Code></Error>";
    check(said("503 x", slow_down), "throttled").await;
    check("no HTTP\r\n\r\n".to_owned(), "other").await;
    check(String::new(), "timeout").await;
}

#[tokio::test]
async fn a_store_without_listener_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let metrics = Metrics::default();
    assert!(s3(address, &metrics).create("a", vec![1]).await.is_err());
    let expected = "{operation=\"put\",kind=\"connection\"} 1";
    assert_eq!(counted(&metrics), [expected]);
}

#[tokio::test]
async fn errors_are_counted_by_the_stores_operation() {
    let metrics = Metrics::default();
    let store = s3(answering(said("500 x", "")).await, &metrics);
    assert!(store.size("a").await.is_err());
    assert!(store.read("a", 10).await.is_err());
    assert!(store.holds("a", &[1]).await.is_err());
    assert!(store.delete("a").await.is_err());
    assert!(store.objects("a").any(async |it| it.is_err()).await);
    let ends = store.keys_ending("manifest.json");
    assert!(ends.any(async |it| it.is_err()).await);
    let expected = [("delete", 1), ("get", 2), ("head", 1), ("list", 2)];
    let expected =
        expected.map(|(what, times)| format!("{{operation=\"{what}\",kind=\"server\"}} {times}"));
    let mut all = counted(&metrics);
    all.sort();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn an_absent_objects_size_is_no_error() {
    let metrics = Metrics::default();
    let store = ProfileStore::in_memory(Arc::new(InMemory::new())).counted(metrics.store_errors());
    assert_eq!(store.size("a").await.unwrap(), None);
    store.delete("a").await.unwrap();
    assert_eq!(counted(&metrics), Vec::<String>::new());
    assert!(store.read("a", 10).await.is_err());
    assert_eq!(
        counted(&metrics),
        ["{operation=\"get\",kind=\"not_found\"} 1"]
    );
}
