//! Writes to servers with odd sides, over HTTP. No real server that can be had here ignores
//! If-None-Match or answers 501 or 409, so this one is a mock; the cluster's tests use a real one
//! (versitygw).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use object_store::RetryConfig;

use super::*;
use crate::storage::store::{StoreConfig, s3};

/// What the server does with a PUT.
#[derive(Clone, Copy, PartialEq)]
enum PutMode {
    /// What S3 does.
    Good,
    /// Ignores If-None-Match, and overwrites: older Ceph, some gateways.
    Ignores,
    /// Answers 501 to If-None-Match: Alibaba OSS, older servers.
    NotImplemented,
    /// Answers that another write is under way.
    Conflict,
    /// Refuses a PUT without encryption headers, by the bucket's policy.
    Kms,
    /// The credentials' session has ended.
    Expired,
}

#[derive(Clone)]
struct PutServer {
    mode: PutMode,
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    puts: Arc<Mutex<Vec<String>>>,
}

fn error(status: u16, code: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
    (status, body).into_response()
}

async fn answer(
    State(server): State<PutServer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = uri.path().to_owned();
    let mut objects = server.objects.lock().unwrap();
    let found = objects.get(&key).cloned();
    match method {
        Method::PUT => {
            let is_conditional = headers.contains_key("if-none-match");
            server
                .puts
                .lock()
                .unwrap()
                .push(format!("{is_conditional}"));
            let is_encrypted = headers.contains_key("x-amz-server-side-encryption");
            match (server.mode, is_conditional) {
                (PutMode::Expired, _) => return error(403, "ExpiredToken"),
                (PutMode::Kms, _) if !is_encrypted => return error(403, "AccessDenied"),
                (PutMode::Conflict, true) => return error(409, "ConditionalRequestConflict"),
                (PutMode::NotImplemented, true) => return error(501, "NotImplemented"),
                (PutMode::Ignores, _) | (_, false) => {}
                (_, true) if found.is_some() => return error(412, "PreconditionFailed"),
                _ => {}
            }
            objects.insert(key, body);
            ([("etag", "\"1\"")], "").into_response()
        }
        Method::DELETE => {
            objects.remove(&key);
            StatusCode::NO_CONTENT.into_response()
        }
        _ => match found {
            None => error(404, "NoSuchKey"),
            Some(bytes) => {
                let length = bytes.len().to_string();
                let headers = [
                    ("etag", "\"1\"".to_owned()),
                    ("content-length", length),
                    ("last-modified", "Sat, 28 Nov 2026 00:00:00 GMT".to_owned()),
                ];
                (headers, bytes).into_response()
            }
        },
    }
}

impl PutServer {
    async fn start(mode: PutMode) -> (Self, SocketAddr) {
        let server = PutServer {
            mode,
            objects: Arc::default(),
            puts: Arc::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, address)
    }

    /// The objects, by the end of their keys.
    fn objects(&self) -> Vec<String> {
        let objects = self.objects.lock().unwrap();
        let all = objects.iter();
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        all.map(|(key, bytes)| format!("{key}={}", text(bytes)))
            .collect()
    }
}

fn store(address: SocketAddr, allow_overwrite: bool, encryption: Option<&str>) -> ProfileStore {
    let config = StoreConfig {
        url: "s3://profiles/p".into(),
        endpoint: Some(format!("http://{address}")),
        region: Some("us-east-1".into()),
        path_style: true,
        allow_insecure: true,
        encryption: encryption.map(ToOwned::to_owned),
        allow_overwrite,
        ..StoreConfig::default()
    };
    let settings = s3::settings(&config, "profiles".into()).unwrap();
    let settings = settings
        .with_allow_http(true)
        .with_access_key_id("test")
        .with_secret_access_key("test")
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        });
    ProfileStore {
        objects: Arc::new(settings.build().unwrap()),
        prefix: "p".to_owned(),
        allow_overwrite,
        ..ProfileStore::in_memory(Arc::new(object_store::memory::InMemory::new()))
    }
}

async fn with(mode: PutMode, allow_overwrite: bool) -> (PutServer, ProfileStore) {
    let (server, address) = PutServer::start(mode).await;
    (server, store(address, allow_overwrite, None))
}

#[tokio::test]
async fn probe_learns_the_stores_behaviour_and_leaves_nothing() {
    for (mode, expected) in [
        (PutMode::Good, WriteGuard::CreateOnly),
        (PutMode::Ignores, WriteGuard::Overwrites),
        (PutMode::NotImplemented, WriteGuard::NotImplemented),
    ] {
        let (server, store) = with(mode, false).await;
        assert_eq!(store.health().writes, WriteGuard::Unknown);
        assert_eq!(store.probe().await.unwrap(), expected);
        assert_eq!(store.health().writes, expected);
        assert_eq!(server.objects(), Vec::<String>::new());
        assert_eq!(store.is_refused(), expected.is_unsafe());
        assert_eq!(store.signs(), !expected.is_unsafe());
    }
}

#[tokio::test]
async fn probe_of_a_refusing_store_keeps_the_cause() {
    let (_server, store) = with(PutMode::Expired, false).await;
    let error = store.probe().await.unwrap_err().to_string();
    let cause =
        "the session token of the operator's credentials has expired (HTTP 403 ExpiredToken)";
    assert_eq!(error, cause);
    assert_eq!(store.health().writes, WriteGuard::Unknown);
    assert_eq!(
        store.health().last_error.unwrap().message,
        format!("put: {cause}")
    );
    assert!(store.signs() && !store.is_refused());
}

#[tokio::test]
async fn create_overwrites_nothing_on_a_store_that_would() {
    for mode in [PutMode::Ignores, PutMode::NotImplemented] {
        let (server, store) = with(mode, true).await;
        store.probe().await.unwrap();
        assert_eq!(store.create("p/a", vec![b'1']).await.unwrap(), Created::Now);
        assert_eq!(
            store.create("p/a", vec![b'2']).await.unwrap(),
            Created::Before
        );
        assert_eq!(server.objects(), ["/profiles/p/a=1"]);
        let refused = store.grant("p/a", std::time::Duration::from_secs(9)).await;
        assert!(
            matches!(refused, Err(StoreError::CannotSign)),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn create_is_refused_on_overwriting_stores_unless_allowed() {
    let (server, store) = with(PutMode::Ignores, false).await;
    store.probe().await.unwrap();
    let error = store.create("p/a", vec![1]).await.unwrap_err().to_string();
    assert!(
        error.contains("ignores If-None-Match") && error.contains("store.allowOverwrite"),
        "{error}"
    );
    assert_eq!(server.objects(), Vec::<String>::new());
}

#[tokio::test]
async fn create_learns_from_a_501_without_a_probe() {
    let (server, store) = with(PutMode::NotImplemented, true).await;
    assert_eq!(store.create("p/a", vec![b'1']).await.unwrap(), Created::Now);
    assert_eq!(store.health().writes, WriteGuard::NotImplemented);
    assert_eq!(
        store.create("p/a", vec![b'2']).await.unwrap(),
        Created::Before
    );
    assert_eq!(server.objects(), ["/profiles/p/a=1"]);
    assert_eq!(*server.puts.lock().unwrap(), ["true", "false"]);
}

#[tokio::test]
async fn create_retries_a_conflict() {
    let (_server, store) = with(PutMode::Conflict, false).await;
    let error = store.create("p/a", vec![1]).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "another write of the key was under way (HTTP 409 ConditionalRequestConflict)"
    );
}

#[tokio::test]
async fn create_sends_the_buckets_encryption_headers() {
    let (server, address) = PutServer::start(PutMode::Kms).await;
    let error = store(address, false, None).create("p/a", vec![b'1']).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("store.encryption in the chart"), "{error}");
    let encrypted = store(address, false, Some("aws:kms"));
    assert_eq!(
        encrypted.create("p/a", vec![b'1']).await.unwrap(),
        Created::Now
    );
    assert_eq!(server.objects(), ["/profiles/p/a=1"]);
}

#[tokio::test]
async fn probe_keeps_to_its_folder_below_the_prefix() {
    let (_server, mut store) = with(PutMode::Good, false).await;
    let key = store.probe_key();
    assert!(key.starts_with("p/.probe/") && key.len() == 9 + 32, "{key}");
    assert_ne!(key, store.probe_key());
    store.prefix.clear();
    assert!(store.probe_key().starts_with(".probe/"));
}
