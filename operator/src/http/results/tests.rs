//! Links: who gets them, what each opens, and how long they are valid.

use axum::http::Request;
use base64::Engine as _;
use futures::FutureExt as _;
use object_store::memory::InMemory;
use phpprof_crds::{ProfileArchiveSpec, ProfileArchiveStatus, ProfileRequestStatus, ProfileResult};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use tower::ServiceExt as _;

use axum::http::HeaderMap;

use super::*;
use crate::http::keyring::ArchiveRef;
use crate::http::keys::Keys;
use crate::lease::Role;
use crate::sampler::object_keys::key;
use crate::storage::manifest::manifest;
use crate::testing::{NAMESPACE_UID, at, request, target};

const UID: &str = "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
const FOLDER: &str =
    "shop/5a0e7c11-2b3d-4c4e-9f50-6a7b8c9d0e1f/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
const FILE: &str = "web.fpm.4f9c7a1d.0.pb.gz";
const ARCHIVE_UID: &str = "7d9f5c6b-aaaa-4bbb-8ccc-111122223333";

mod drawing;
mod live;

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
    /// The current second, as in `at`; each test has its own thread.
    static NOW: AtomicI64 = const { AtomicI64::new(0) };
}

fn pass(seconds: i64) {
    NOW.with(|now| now.store(seconds, Ordering::Relaxed));
}

struct ResultsScene {
    router: Router,
    keyring: Keyring,
    live: Arc<Live>,
    role: Arc<Role>,
    /// The key of the request `running`.
    object_key: String,
}

async fn scene() -> ResultsScene {
    scene_with(false).await
}

/// Optionally with a request whose keys have the form of older operators.
async fn scene_with(is_old: bool) -> ResultsScene {
    let keyring = Keyring::new(Keys::new(at(0)).unwrap());
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut first = request(json!({"target": {"podName": "web"}}));
    let namespace_uid = (!is_old).then(|| NAMESPACE_UID.to_owned());
    first.status = Some(ProfileRequestStatus {
        namespace_uid,
        profile: Some(ProfileResult::default()),
        targets: vec![target("web", TargetState::Uploaded)],
        ..ProfileRequestStatus::default()
    });
    let bytes = profile();
    for file in [FILE, MERGED] {
        let key = key(&first, "", file);
        store.create(&key, bytes.clone()).await.unwrap();
        let status = first.status.as_mut().unwrap();
        if file == FILE {
            status.targets[0].object_key = key;
        }
    }
    let listed = manifest(&first, Some((MERGED, &ProfileResult::default())), None);
    store
        .create(&key(&first, "", MANIFEST), listed)
        .await
        .unwrap();
    let whole = first.clone();
    let fetch = move |_, _| {
        let whole = whole.clone();
        async move { Ok(Some(whole)) }.boxed()
    };
    let running = first.clone();
    let targets = &running.status.as_ref().unwrap().targets;
    let object_key = targets[0].object_key.clone();
    // The watch keeps no targets of a finished request.
    first.status.as_mut().unwrap().targets.clear();
    let find = move |namespace: &str, name: &str| match (namespace, name) {
        ("shop", "first") => Some(first.clone()),
        ("shop", "running") => Some(running.clone()),
        _ => None,
    };
    let (shares, page_shares) = Results::shares();
    let role = Arc::new(Role::new(true));
    let live = Arc::new(Live::new(role.clone(), Arc::new(Semaphore::new(1))));
    let results = Results {
        keyring: keyring.clone(),
        archive: Arc::new(Archive::new(store.clone())),
        store,
        find: Box::new(find),
        fetch: Box::new(fetch),
        find_archive: Box::new(|namespace| (namespace == "shop").then(archive_of_shop)),
        clock: || at(NOW.with(|now| now.load(Ordering::Relaxed))),
        desk: Arc::new(Semaphore::new(2)),
        pages: Arc::new(Semaphore::new(1)),
        shares,
        page_shares,
        live: live.clone(),
        live_turns: Results::live_turns(),
    };
    ResultsScene {
        router: results.router(),
        keyring,
        live,
        role,
        object_key,
    }
}

fn archive_of_shop() -> ProfileArchive {
    let mut archive = ProfileArchive::new("profiles", ProfileArchiveSpec::default());
    archive.metadata.namespace = Some("shop".into());
    archive.metadata.uid = Some(ARCHIVE_UID.into());
    archive.status = Some(ProfileArchiveStatus {
        namespace_uid: NAMESPACE_UID.into(),
        ..ProfileArchiveStatus::default()
    });
    archive
}

impl ResultsScene {
    async fn call(&self, method: &str, path: &str, body: &str) -> (u16, HeaderMap, String) {
        let call = Request::builder().method(method).uri(path);
        let call = call.body(Body::from(body.to_owned())).unwrap();
        let answer = self.router.clone().oneshot(call).await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = axum::body::to_bytes(answer.into_body(), 32 << 20).await;
        let text = String::from_utf8_lossy(&body.unwrap()).into_owned();
        (status, headers, text)
    }

    /// Asks with an archive's key. `differs` changes the archive that the key belongs to.
    async fn ask(
        &self,
        path: &str,
        differs: impl FnOnce(&mut ProfileArchive, &mut String),
    ) -> (u16, Value) {
        let (mut archive, mut namespace_uid) = (archive_of_shop(), NAMESPACE_UID.to_owned());
        differs(&mut archive, &mut namespace_uid);
        let bound = ArchiveRef::new(&archive, &namespace_uid);
        let question = json!({"accessKey": self.keyring.archive_key(&bound)}).to_string();
        let (status, _, answer) = self.call("POST", path, &question).await;
        (status, serde_json::from_str(&answer).unwrap())
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
async fn the_access_key_opens_every_result() {
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
    assert_eq!(scene.get(path(&links, "manifest")).await.0, 200);
}

#[tokio::test]
async fn the_flame_graph_page_loads_nothing() {
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
async fn an_unusable_link_says_how_to_renew_it() {
    let scene = scene().await;
    let links = scene.links().await;
    let link = path(&links, "profile");
    let check = async |link: &str| {
        let (status, _, answer) = scene.get(link).await;
        assert_eq!(status, 403, "{link}: {answer}");
        assert!(answer.contains("get a new one"), "{answer}");
    };
    check(&link.replace("merged.pb.gz", "manifest.json")).await;
    check(&link.replace("/first-", "/second-")).await;
    check(&link.replace("/shop/", "/blog/")).await;
    check(&link.replace("/l/1", "/l/2")).await;
    check(&format!("/l/9999999999./{FOLDER}/merged.pb.gz")).await;
    check(&format!("/l/x/{FOLDER}/merged.pb.gz")).await;
    pass(300);
    assert_eq!(scene.get(link).await.0, 200);
    pass(301);
    check(link).await;
}

#[tokio::test]
async fn linked_pages_run_only_their_own_script() {
    for path in ["/r/shop/first", "/a/shop", "/a/blog"] {
        check_script(path).await;
    }
}

async fn check_script(path: &str) {
    let (status, headers, page) = scene().await.get(path).await;
    assert_eq!(status, 200);
    let script = page.split("<script>").nth(1).unwrap();
    let script = script.split("</script>").next().unwrap();
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, script.as_bytes());
    let hash = base64::engine::general_purpose::STANDARD.encode(hash);
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains(&format!("'sha256-{hash}'")), "{hash}");
}

#[tokio::test]
async fn results_of_an_older_operator_stay_readable() {
    let scene = scene_with(true).await;
    let links = scene.links().await;
    for name in ["profile", "flame", "manifest", "pod/web/fpm"] {
        let link = path(&links, name);
        let folder = link.splitn(4, '/').nth(3).unwrap();
        assert!(folder.starts_with(&format!("shop/first-{UID}/")), "{link}");
        assert_eq!(scene.get(link).await.0, 200, "{link}");
    }
}

#[tokio::test]
async fn an_archive_key_opens_the_list_and_files() {
    let scene = scene().await;
    let (status, listed) = scene.ask("/a/shop", |_, _| {}).await;
    assert_eq!(status, 200, "{listed}");
    let golden: Value =
        serde_json::from_str(include_str!("../../../../contract/archive.json")).unwrap();
    let fields = |value: &Value| -> Vec<String> {
        let fields = value.as_object().unwrap();
        fields.keys().cloned().collect()
    };
    assert_eq!(fields(&listed), fields(&golden["answer"]));
    let (ours, theirs) = (&listed["profiles"][0], &golden["answer"]["profiles"][0]);
    assert_eq!(fields(ours), fields(theirs));
    assert_eq!(
        (&ours["name"], &ours["uid"]),
        (&json!("first"), &json!(UID))
    );
    let (status, opened) = scene.ask(&format!("/a/shop/first/{UID}"), |_, _| {}).await;
    assert_eq!(status, 200, "{opened}");
    for name in ["profile", "flame", "manifest", "pod/web/fpm"] {
        let link = path(&opened["links"], name);
        assert_eq!(scene.get(link).await.0, 200, "{link}");
    }
    let page = scene.get(path(&opened["links"], "flame")).await.2;
    assert!(page.contains("shop/first"), "no title");
}

/// Asks for a comparison of a stored request with another one, with the namespace's key.
async fn compared(scene: &ResultsScene, before: Value) -> (u16, Value) {
    let archive = archive_of_shop();
    let bound = ArchiveRef::new(&archive, NAMESPACE_UID);
    let key = scene.keyring.archive_key(&bound);
    let question = json!({"accessKey": key, "before": before}).to_string();
    let path = format!("/a/shop/first/{UID}");
    let (status, _, answer) = scene.call("POST", &path, &question).await;
    (status, serde_json::from_str(&answer).unwrap())
}

#[tokio::test]
async fn a_comparison_of_stored_profiles_loads_nothing() {
    let scene = scene().await;
    let (status, opened) = compared(&scene, json!({"name": "first", "uid": UID})).await;
    assert_eq!(status, 200, "{opened}");
    let link = path(&opened["links"], "diff");
    let (status, headers, page) = scene.get(link).await;
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("shop/first → shop/first") && page.contains("checkout"));
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    // The link is only for these two requests.
    let other = link.replace("diff-from-first", "diff-from-second");
    assert_eq!(scene.get(&other).await.0, 403);
}

#[tokio::test]
async fn comparing_with_missing_or_foreign_profiles_is_refused() {
    let scene = scene().await;
    for (name, uid, expected) in [
        ("second", UID, 404),
        ("..", UID, 404),
        ("x/../first", UID, 400),
        ("first", "0b1c2d3e", 400),
        ("", UID, 400),
    ] {
        let (status, answer) = compared(&scene, json!({"name": name, "uid": uid})).await;
        assert_eq!(status, expected, "{name} {uid}: {answer}");
    }
}

#[tokio::test]
async fn a_foreign_key_opens_no_archive() {
    let scene = scene().await;
    let opened = format!("/a/shop/first/{UID}");
    for path in ["/a/shop", &opened] {
        let check = async |differs: fn(&mut ProfileArchive, &mut String)| {
            let (status, answer) = scene.ask(path, differs).await;
            assert_eq!(status, 403, "{answer}");
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains("kubectl get profilearchive"), "{message}");
        };
        check(|archive, _| archive.metadata.namespace = Some("blog".into())).await;
        check(|archive, _| archive.metadata.uid = Some("another".into())).await;
        check(|archive, _| archive.spec.access_key_generation = 1).await;
        check(|_, namespace_uid| *namespace_uid = "another".into()).await;
        let of_request = json!({"accessKey": scene.keyring.access_key(ARCHIVE_UID)}).to_string();
        assert_eq!(scene.call("POST", path, &of_request).await.0, 403);
        assert_eq!(scene.call("POST", path, "{}").await.0, 400);
    }
    assert_eq!(scene.ask("/a/blog", |_, _| {}).await.0, 403);
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_refused() {
    let scene = scene().await;
    let other = UID.replace("0b1c", "ffff");
    for (name, uid, expected) in [
        ("first", &*other, 404),
        ("second", UID, 404),
        ("first", "", 404),
        ("first", "0b1c2d3e", 400),
        ("x%2Fy", UID, 400),
        ("%2E%2E%2Ffirst", UID, 400),
        ("First", UID, 400),
    ] {
        let path = format!("/a/shop/{name}/{uid}");
        let call = Request::builder().method("POST").uri(&path);
        let archive = archive_of_shop();
        let bound = ArchiveRef::new(&archive, NAMESPACE_UID);
        let question = json!({"accessKey": scene.keyring.archive_key(&bound)}).to_string();
        let call = call.body(Body::from(question)).unwrap();
        let answer = scene.router.clone().oneshot(call).await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{path}");
    }
}

/// Asks, but does not read the answer's body.
async fn begin(scene: &ResultsScene, path: &str) -> Response {
    let call = Request::builder().uri(path).body(Body::empty()).unwrap();
    scene.router.clone().oneshot(call).await.unwrap()
}

#[tokio::test]
async fn untaken_answers_of_one_link_block_no_others() {
    let scene = scene().await;
    let links = scene.links().await;
    let (profile, manifest) = (path(&links, "profile"), path(&links, "manifest"));
    let mut untaken = Vec::new();
    for link in [profile, manifest].into_iter().cycle().take(SHARE) {
        let answer = begin(&scene, link).await;
        assert_eq!(answer.status(), 200);
        untaken.push(answer);
    }
    let refused = begin(&scene, profile).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    let question = json!({"accessKey": scene.keyring.access_key(UID)}).to_string();
    let (status, _, answer) = scene.call("POST", "/r/shop/first", &question).await;
    assert_eq!(status, 429);
    assert!(answer.contains("try again"), "{answer}");
    // Requests of another folder are answered.
    let (status, _) = scene.ask("/a/shop", |_, _| {}).await;
    assert_eq!(status, 200);
    drop(untaken.pop());
    assert_eq!(begin(&scene, profile).await.status(), 200);
}

#[tokio::test]
async fn a_taken_answer_gives_its_share_back() {
    let scene = scene().await;
    let links = scene.links().await;
    for _ in 0..2 * SHARE {
        let (status, headers, page) = scene.get(path(&links, "flame")).await;
        assert_eq!(status, 200);
        assert_eq!(headers["content-length"], page.len().to_string());
    }
}

#[test]
fn only_a_list_of_requests_has_its_link() {
    let links = |is_merged, has_requests| {
        let files = files(is_merged, has_requests, std::iter::empty()).into_iter();
        files.map(|file| file.link).collect::<Vec<_>>()
    };
    let listed = ["profile", "flame", "requests", "manifest"];
    assert_eq!(links(true, true), listed);
    assert_eq!(links(true, false), ["profile", "flame", "manifest"]);
    assert_eq!(links(false, false), ["manifest"]);
}
