//! An archive's status, for different answers of the API server and the store.

use std::sync::Mutex;

use axum::http::{Request, Response};
use kube::client::Body;
use object_store::memory::InMemory;
use serde_json::Value;
use tower::service_fn;

use super::*;
use crate::storage::store::ProfileStore as Objects;
use crate::testing::NAMESPACE_UID;

const KEY: &str = "key";

fn archive(status: Option<ProfileArchiveStatus>) -> ProfileArchive {
    let mut archive = ProfileArchive::new(ARCHIVE, ProfileArchiveSpec::default());
    archive.metadata.namespace = Some("shop".into());
    archive.metadata.uid = Some("a1".into());
    archive.status = status;
    archive
}

#[test]
fn a_status_is_written_only_on_changes() {
    let status = opened(&archive(None), "n1", KEY.into(), "").unwrap();
    let written = archive(Some(status));
    assert_eq!(opened(&written, "n1", KEY.into(), ""), None);
    assert!(opened(&written, "n1", "rotated".into(), "").is_some());
    assert!(opened(&written, "n1", KEY.into(), "https://x").is_some());
    let listing = ArchiveListing {
        left_out: 2,
        bytes: 7,
        ..ArchiveListing::default()
    };
    let status = counted(&written, &listing).unwrap();
    assert_eq!((status.profiles, status.bytes), (Some(2), Some(7)));
    assert_eq!(&*status.access_key, KEY);
    assert_eq!(counted(&archive(Some(status)), &listing), None);
}

#[test]
fn a_namespace_that_goes_is_no_failure() {
    let check = |code, message: &str, expected| {
        let status = Status {
            code,
            message: message.into(),
            ..Status::default()
        };
        assert_eq!(is_of_a_namespace_that_goes(&status), expected, "{message}");
    };
    check(
        403,
        "unable to create new content in namespace shop because it is being terminated",
        true,
    );
    check(403, "profilearchives.phpprof.dev is forbidden", false);
    check(404, "namespaces \"shop\" not found", true);
    check(
        404,
        "the server could not find the requested resource",
        false,
    );
}

/// The writes to an API server with the namespace shop: method, path and body.
type WriteLog = Arc<Mutex<Vec<(String, String, Value)>>>;

async fn answer(request: Request<Body>, written: WriteLog) -> Result<Response<Body>, kube::Error> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(axum::body::Body::new(body), 1 << 20);
    let body: Value = serde_json::from_slice(&body.await.unwrap()).unwrap_or_default();
    let path = head.uri.path().to_owned();
    let (code, said) = match (head.method.as_str(), &*path) {
        ("GET", "/api/v1/namespaces/shop") => {
            let metadata = json!({"name": "shop", "uid": NAMESPACE_UID});
            (200, json!({"metadata": metadata}))
        }
        ("GET", _) => (
            404,
            json!({"kind": "Status", "code": 404, "message": "gone"}),
        ),
        (method, _) => {
            let method = method.to_owned();
            written.lock().unwrap().push((method, path, body));
            (200, json!(archive(None)))
        }
    };
    let answer = Response::builder().status(code);
    Ok(answer
        .body(Body::from(said.to_string().into_bytes()))
        .unwrap())
}

fn archives(store: Objects) -> (Arc<Archives>, WriteLog) {
    let written = WriteLog::default();
    let to = written.clone();
    let client = Client::new(service_fn(move |it| answer(it, to.clone())), "default");
    let archive = Arc::new(Archive::new(store));
    let (archives, _) = Archives::new(
        client,
        Keyring::for_test(),
        archive,
        Arc::new(Role::new(true)),
        None,
    );
    (archives, written)
}

/// Reconciles an archive, and returns the status that was written, if any.
async fn look(archives: &Arc<Archives>, written: &WriteLog, archive: &ProfileArchive) -> Value {
    let guarded = Arc::new(DeserializeGuard(Ok(archive.clone())));
    reconcile(guarded, archives.clone()).await.unwrap();
    let Some((method, path, body)) = written.lock().unwrap().pop() else {
        return Value::Null;
    };
    let place = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilearchives/profiles/status";
    assert_eq!((&*method, &*path), ("PATCH", place));
    // The write is bound to the archive's uid.
    assert_eq!(body["metadata"]["uid"], "a1");
    body["status"].clone()
}

#[tokio::test]
async fn an_archive_gets_key_and_counts_and_rests() {
    let store = Objects::in_memory(Arc::new(InMemory::new()));
    let object = format!("shop/{NAMESPACE_UID}/r-1-x/web.pb.gz");
    store.create(&object, vec![0; 9]).await.unwrap();
    let (archives, written) = archives(store);
    let mut archive = archive(None);
    let status = look(&archives, &written, &archive).await;
    assert_eq!(
        (&status["namespaceUID"], &status["profiles"]),
        (&json!(NAMESPACE_UID), &Value::Null)
    );
    archive.status = serde_json::from_value(status.clone()).unwrap();
    let counted = look(&archives, &written, &archive).await;
    assert_eq!(
        (&counted["profiles"], &counted["bytes"]),
        (&json!(0), &json!(9))
    );
    assert_eq!(counted["accessKey"], status["accessKey"]);
    archive.status = serde_json::from_value(counted.clone()).unwrap();
    assert_eq!(look(&archives, &written, &archive).await, Value::Null);
    let counted_at = archive
        .status
        .as_ref()
        .and_then(|it| it.last_update_time.clone());
    let counted_at = counted_at.unwrap().0;
    let rests_for = |seconds| {
        let now = later(counted_at, SignedDuration::from_secs(seconds));
        rests(&archive, &archives.keyring, now)
    };
    assert_eq!(rests_for(4), Some(Duration::from_secs(6)));
    assert_eq!(rests_for(10), None);
    archive.spec.access_key_generation = 1;
    let rotated = look(&archives, &written, &archive).await;
    assert_ne!(rotated["accessKey"], status["accessKey"]);
    // The counts stay.
    assert_eq!(rotated["bytes"], 9);
}

#[tokio::test]
async fn one_of_another_name_is_left_alone() {
    let (archives, written) = archives(Objects::in_memory(Arc::new(InMemory::new())));
    let mut archive = archive(None);
    archive.metadata.name = Some("another".into());
    assert_eq!(look(&archives, &written, &archive).await, Value::Null);
}

#[tokio::test]
async fn the_operator_makes_one_that_is_not_known() {
    let (archives, written) = archives(Objects::in_memory(Arc::new(InMemory::new())));
    archives.create("shop").await.unwrap();
    let (method, path, body) = written.lock().unwrap().pop().unwrap();
    let place = "/apis/phpprof.dev/v1alpha1/namespaces/shop/profilearchives";
    assert_eq!((&*method, &*path), ("POST", place));
    assert_eq!(body["metadata"]["name"], ARCHIVE);
    assert_eq!(body["spec"], json!({"accessKeyGeneration": 0}));
}
