//! Links: who gets them, what each opens, and for how long.

use axum::http::Request;
use base64::Engine as _;
use futures::FutureExt as _;
use object_store::memory::InMemory;
use phpprof_crds::{ProfileRequestStatus, ProfileResult, TargetStatus};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use tower::ServiceExt as _;

use super::*;
use crate::http::keys::Keys;
use crate::testing::{at, request};

const UID: &str = "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
const POD_KEY: &str = "shop/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/web.fpm.4f9c7a1d.0.pb.gz";

/// A profile with one function, as one pod uploads it.
fn profile() -> Vec<u8> {
    use phpprof_profile::proto::{Function, Line, Location, Profile, Sample, ValueType};
    let profile = Profile {
        sample_type: vec![ValueType { r#type: 1, unit: 2 }],
        sample: vec![Sample {
            location_id: vec![1],
            value: vec![7],
            ..Sample::default()
        }],
        location: vec![Location {
            id: 1,
            line: vec![Line {
                function_id: 1,
                ..Line::default()
            }],
            ..Location::default()
        }],
        function: vec![Function {
            id: 1,
            name: 3,
            ..Function::default()
        }],
        string_table: ["", "samples", "count", "checkout"]
            .map(str::to_owned)
            .to_vec(),
        ..Profile::default()
    };
    phpprof_profile::encode_gzip(&profile)
}

thread_local! {
    /// Seconds since the zero hour; each test has its own thread.
    static NOW: AtomicI64 = const { AtomicI64::new(0) };
}

fn pass(seconds: i64) {
    NOW.with(|now| now.store(seconds, Ordering::Relaxed));
}

struct Scene {
    router: Router,
    keyring: Keyring,
}

async fn scene() -> Scene {
    let keyring = Keyring::new(Keys::new(at(0)).unwrap());
    let store = Store::in_memory(Arc::new(InMemory::new()));
    let mut first = request(json!({"target": {"podName": "web"}}));
    first.status = Some(ProfileRequestStatus {
        profile: Some(ProfileResult::default()),
        targets: vec![TargetStatus {
            pod_name: "web".into(),
            container_name: "fpm".into(),
            state: TargetState::Uploaded,
            object_key: POD_KEY.into(),
            ..TargetStatus::default()
        }],
        ..ProfileRequestStatus::default()
    });
    let limits = Limits::default();
    let bytes = profile();
    store.create(POD_KEY, bytes.clone()).await.unwrap();
    store
        .create(&key(&first, &limits.key_prefix, MERGED), bytes)
        .await
        .unwrap();
    let whole = first.clone();
    let fetch = move |_, _| {
        let whole = whole.clone();
        async move { Ok(Some(whole)) }.boxed()
    };
    // What is known of a request that is over.
    first.status.as_mut().unwrap().targets.clear();
    let find = move |namespace: &str, name: &str| {
        (namespace == "shop" && name == "first").then(|| first.clone())
    };
    let results = Results {
        keyring: keyring.clone(),
        store,
        limits,
        find: Box::new(find),
        fetch: Box::new(fetch),
        clock: || at(NOW.with(|now| now.load(Ordering::Relaxed))),
        desk: Arc::new(Semaphore::new(1)),
    };
    Scene {
        router: results.router(),
        keyring,
    }
}

impl Scene {
    async fn call(&self, method: &str, path: &str, body: &str) -> (u16, HeaderMap, String) {
        let call = Request::builder().method(method).uri(path);
        let call = call.body(Body::from(body.to_owned())).unwrap();
        let answer = self.router.clone().oneshot(call).await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = axum::body::to_bytes(answer.into_body(), 32 << 20).await;
        let text = String::from_utf8_lossy(&body.unwrap()).into_owned();
        (status, headers, text)
    }

    async fn links(&self) -> Value {
        let question = json!({"accessKey": self.keyring.access_key(UID)}).to_string();
        let (status, _, answer) = self.call("POST", "/r/shop/first", &question).await;
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()["links"].clone()
    }

    async fn get(&self, path: &str) -> (u16, HeaderMap, String) {
        self.call("GET", path, "").await
    }
}

fn path<'a>(links: &'a Value, name: &str) -> &'a str {
    let mut links = links.as_array().unwrap().iter();
    let link = links.find(|link| link["name"] == name).unwrap();
    link["path"].as_str().unwrap()
}

#[tokio::test]
async fn who_has_the_access_key_gets_every_result_as_the_contract_says() {
    let scene = scene().await;
    let links = scene.links().await;
    let golden: Value =
        serde_json::from_str(include_str!("../../../../contract/results.json")).unwrap();
    for link in golden["answer"]["links"].as_array().unwrap() {
        let name = link["name"].as_str().unwrap().replace("web-1", "web");
        let ours = path(&links, &name).split('/');
        let theirs = link["path"].as_str().unwrap().split('/');
        assert_eq!(ours.count(), theirs.count(), "{name}");
    }
    let plain = |path: &str| {
        path.chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "/-_.~%=&?".contains(letter))
    };
    assert!(plain(path(&links, "profile")));
    let (status, headers, _) = scene.get(path(&links, "profile")).await;
    assert_eq!(status, 200);
    assert_eq!(headers["cache-control"], "private, no-store");
    assert_eq!(scene.get(path(&links, "pod/web/fpm")).await.0, 200);
    assert_eq!(scene.get(path(&links, "manifest")).await.0, 404);
}

#[tokio::test]
async fn the_flame_graph_is_a_page_that_loads_nothing() {
    let scene = scene().await;
    let links = scene.links().await;
    let (status, headers, page) = scene.get(path(&links, "flame")).await;
    assert_eq!(status, 200);
    assert!(page.contains("checkout"));
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
}

#[tokio::test]
async fn an_access_key_of_another_request_opens_nothing() {
    let scene = scene().await;
    let check = async |path: &str, access_key: &str| {
        let question = json!({"accessKey": access_key}).to_string();
        let (status, _, answer) = scene.call("POST", path, &question).await;
        assert_eq!(status, 403, "{answer}");
        assert!(answer.contains("kubectl get profilerequest"), "{answer}");
    };
    check("/r/shop/first", &scene.keyring.access_key("another")).await;
    check("/r/shop/first", "").await;
    check("/r/shop/second", &scene.keyring.access_key(UID)).await;
}

#[tokio::test]
async fn a_link_that_is_forged_or_of_another_object_or_too_old_says_how_to_get_a_new_one() {
    let scene = scene().await;
    let links = scene.links().await;
    let link = path(&links, "profile");
    let check = async |link: &str| {
        let (status, _, answer) = scene.get(link).await;
        assert_eq!(status, 403, "{link}: {answer}");
        assert!(answer.contains("get a new one"), "{answer}");
    };
    check(&link.replace("merged.pb.gz", "manifest.json")).await;
    check(&link.replace("/shop/first", "/shop/second")).await;
    check(&link.replace("/l/1", "/l/2")).await;
    check("/l/9999999999./shop/first/merged.pb.gz").await;
    check("/l/x/shop/first/merged.pb.gz").await;
    pass(300);
    assert_eq!(scene.get(link).await.0, 200);
    pass(301);
    check(link).await;
}

#[tokio::test]
async fn the_page_behind_a_statuss_link_runs_its_own_script_and_no_other() {
    let (status, headers, page) = scene().await.get("/r/shop/first").await;
    assert_eq!(status, 200);
    let script = page.split("<script>").nth(1).unwrap();
    let script = script.split("</script>").next().unwrap();
    let hash = ring::digest::digest(&ring::digest::SHA256, script.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains(&format!("'sha256-{hash}'")), "{hash}");
}
