//! The relay over real TLS, against a store in memory and one that is away.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use futures::FutureExt as _;
use object_store::memory::InMemory;
use tokio::sync::Notify;

use super::*;
use crate::http::grants::grant;
use crate::http::keyring::GrantPod;
use crate::http::keys::Keys;
use crate::http::runs::ask;
use crate::http::tls::{Certificate, start};
use crate::sampler::grant::KeyGrant;
use crate::sampler::offer::{PollGrant, ResidentPod, RunsOffer};
use crate::testing::{at, store_in};

mod asks;
mod bodies;
mod live;

/// What a sampler shows if it has already got everything.
const SEEN: &str = "all";
const KEY: &str = "shop/first-0b1c/web.fpm.4f9c7a1d.0.pb.gz";
const POD: GrantPod<'_> = GrantPod {
    uid: "4f9c7a1d-0000-4000-8000-000000000000",
    addresses: "127.0.0.1",
};

/// A relay, and what a test observes from outside.
struct RelayScene {
    keyring: Keyring,
    cancellations: Arc<Cancellations>,
    store: ProfileStore,
    address: SocketAddr,
    certificate: Arc<Certificate>,
    live: Arc<Live>,
    relay: Arc<RelayParts>,
    role: Arc<Role>,
    /// Wakes the samplers that have already got everything.
    news: Arc<Notify>,
}

async fn scene(store: ProfileStore) -> RelayScene {
    scene_in(store, false).await
}

async fn scene_in(store: ProfileStore, deleted: bool) -> RelayScene {
    scene_with(store, deleted, VerifySource::Enforce).await
}

async fn scene_with(store: ProfileStore, deleted: bool, verify_source: VerifySource) -> RelayScene {
    let keyring = Keyring::new(Keys::new(at(0)).unwrap());
    let cancellations = Arc::new(Cancellations::default());
    let gone = Box::new(move |_| std::future::ready(deleted).boxed());
    let news = Arc::new(Notify::new());
    let heard = news.clone();
    let runs = Runs::new(
        Box::new(|asker, spoken| std::future::ready(offered(&asker, spoken)).boxed()),
        Box::new(move |_, seen| {
            let heard = heard.clone();
            async move {
                if seen == SEEN {
                    heard.notified().await;
                }
            }
            .boxed()
        }),
    );
    let mut relay = RelayParts::new(
        keyring.clone(),
        store.clone(),
        cancellations.clone(),
        gone,
        runs,
    );
    relay.clock = || at(0);
    relay.verify_source = verify_source;
    let role = Arc::new(Role::new(true));
    let live = Arc::new(Live::new(role.clone(), Arc::new(Semaphore::new(1))));
    relay.live = live.clone();
    let relay = Arc::new(relay);
    let (address, certificate) = start(&keyring, relay.clone().router()).await;
    RelayScene {
        keyring,
        cancellations,
        store,
        address,
        certificate,
        live,
        relay,
        role,
        news,
    }
}

/// As if no sampler that asks had a run. The address says which number of the contract is spoken.
fn offered(asker: &ResidentPod, spoken: u32) -> Result<Option<RunsOffer>, String> {
    match asker.namespace.as_str() {
        "stopped" => Ok(None),
        "broken" => Err("no signature".to_owned()),
        namespace => Ok(Some(RunsOffer {
            ask_again_seconds: 30,
            hold_seconds: Some(25),
            lease_seconds: 900,
            ask: PollGrant {
                url: format!(
                    "https://{namespace}/{}/{spoken}",
                    asker.ephemeral_container_name
                ),
                headers: BTreeMap::new(),
                pins: Vec::new(),
            },
            runs: Vec::new(),
        })),
    }
}

fn in_memory() -> ProfileStore {
    ProfileStore::in_memory(Arc::new(InMemory::new()))
}

impl RelayScene {
    fn grant(&self, until: Timestamp) -> KeyGrant {
        let address = format!("https://{}", self.address);
        grant(&self.keyring, &address, POD, KEY, until).unwrap()
    }

    fn client(&self) -> reqwest::Client {
        reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .build()
            .unwrap()
    }

    /// The answer to a PUT with this grant.
    async fn put(&self, grant: &KeyGrant, body: &'static [u8]) -> (u16, String) {
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
        let digest = format!("sha-256=:{}:", STANDARD.encode(hash));
        self.put_with(grant, body, &digest).await
    }

    async fn put_with(&self, grant: &KeyGrant, body: &'static [u8], digest: &str) -> (u16, String) {
        let answer = self
            .client()
            .put(&grant.url)
            .header("authorization", &grant.headers["authorization"])
            .header("content-digest", digest)
            .body(body)
            .send()
            .await
            .unwrap();
        let status = answer.status().as_u16();
        (status, answer.text().await.unwrap().trim().to_owned())
    }
}

#[tokio::test]
async fn a_repeated_profile_is_stored_once() {
    let scene = scene(in_memory()).await;
    let grant = scene.grant(at(60));
    assert_eq!(scene.put(&grant, b"profile").await, (200, String::new()));
    assert_eq!(scene.put(&grant, b"profile").await, (200, String::new()));
    assert_eq!(
        scene.put(&grant, b"another").await,
        (409, "the key already holds other bytes".into())
    );
    assert_eq!(scene.put(&grant, b"longer one").await.0, 409);
    assert_eq!(scene.store.read(KEY, 100).await.unwrap(), b"profile");
}

/// No store takes longer ones.
#[tokio::test]
async fn the_longest_keys_grant_fits_a_header() {
    let scene = scene(in_memory()).await;
    let address = format!("https://{}", scene.address);
    let key = "a/".repeat(511) + "aa";
    let grant = grant(&scene.keyring, &address, POD, &key, at(60)).unwrap();
    assert_eq!(scene.put(&grant, b"profile").await.0, 200);
}

#[tokio::test]
async fn a_grant_that_is_bent_is_refused() {
    let scene = scene(in_memory()).await;
    let grant = scene.grant(at(60));
    let bent = |from: &str, to: &str| {
        assert!(grant.url.contains(from), "{}", grant.url);
        KeyGrant {
            url: grant.url.replace(from, to),
            ..grant.clone()
        }
    };
    let unsigned = KeyGrant {
        headers: [("authorization".into(), "Bearer x".into())].into(),
        ..grant.clone()
    };
    let twice = KeyGrant {
        url: format!("{}&key=other", grant.url),
        ..grant.clone()
    };
    for bent in [
        bent("web.fpm", "other.fpm"),
        bent("4f9c7a1d-0000", "00000000-0000"),
        bent("expires=1", "expires=9"),
        bent("from=127.0.0.1", "from=127.0.0.2"),
        bent("from=127.0.0.1", "from="),
        bent("&from=127.0.0.1", ""),
        unsigned,
        twice,
    ] {
        let (status, why) = scene.put(&bent, b"profile").await;
        assert_eq!(status, 403, "{}: {why}", bent.url);
    }
    assert_eq!(scene.store.size(KEY).await.unwrap(), None);
}

#[tokio::test]
async fn a_grant_dies_with_its_end() {
    let scene = scene(in_memory()).await;
    let answer = scene.put(&scene.grant(at(-1)), b"profile").await;
    assert_eq!(answer, (403, "the grant has ended".into()));
    assert_eq!(scene.put(&scene.grant(at(0)), b"profile").await.0, 200);
}

#[tokio::test]
async fn a_bound_grant_from_elsewhere_is_refused() {
    let modes = [
        (
            VerifySource::Enforce,
            403,
            "SourceNotPod: 127.0.0.1 is not 10.244.0.5",
        ),
        (VerifySource::Warn, 200, ""),
        (VerifySource::Off, 200, ""),
    ];
    for (mode, status, words) in modes {
        let scene = scene_with(in_memory(), false, mode).await;
        let address = format!("https://{}", scene.address);
        let pod = GrantPod {
            addresses: "10.244.0.5",
            ..POD
        };
        let grant = grant(&scene.keyring, &address, pod, KEY, at(60)).unwrap();
        assert_eq!(
            scene.put(&grant, b"profile").await,
            (status, words.to_owned())
        );
        let ask = scene.client().get(&grant.stop);
        let ask = ask.header("authorization", &grant.headers["authorization"]);
        scene.cancellations.cancel(KEY, Stop::Keep, at(0), at(60));
        assert_eq!(
            ask.send().await.unwrap().status().as_u16(),
            status,
            "{mode:?}"
        );
    }
}

#[tokio::test]
async fn a_body_unlike_its_headers_is_refused() {
    let scene = scene(in_memory()).await;
    let grant = scene.grant(at(60));
    let other = format!("sha-256=:{}:", STANDARD.encode([0; 32]));
    let answer = scene.put_with(&grant, b"profile", &other).await;
    assert_eq!(answer.0, 400, "{}", answer.1);
    let answer = scene.put_with(&grant, b"profile", "md5=:x:").await;
    assert_eq!(answer.0, 400, "{}", answer.1);
    let large: &'static [u8] = vec![0; LARGEST + 1].leak();
    let sent = scene
        .client()
        .put(&grant.url)
        .header("authorization", &grant.headers["authorization"])
        .body(large)
        .send()
        .await;
    // The relay refuses the upload before it reads it, so the connection may end while the client
    // still sends.
    assert!(sent.is_err() || sent.unwrap().status() == 413);
    assert_eq!(scene.store.size(KEY).await.unwrap(), None);
}

#[tokio::test]
async fn an_absent_store_is_503_and_claims_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let scene = scene(store_in(folder.path())).await;
    let grant = scene.grant(at(60));
    let in_the_way = folder.path().join("shop");
    std::fs::write(&in_the_way, "a file where a folder has to be").unwrap();
    assert_eq!(scene.put(&grant, b"profile").await.0, 503);
    std::fs::remove_file(in_the_way).unwrap();
    assert_eq!(scene.put(&grant, b"profile").await.0, 200);
}

#[tokio::test]
async fn who_asks_hears_of_a_stop_at_once() {
    let scene = scene(in_memory()).await;
    let grant = scene.grant(at(60));
    let asking = scene
        .client()
        .get(&grant.stop)
        .header("authorization", &grant.headers["authorization"])
        .send();
    let asking = tokio::spawn(asking);
    scene
        .cancellations
        .cancel(KEY, crate::sampler::cancellation::Stop::Keep, at(0), at(60));
    let answer = asking.await.unwrap().unwrap();
    assert_eq!(answer.text().await.unwrap(), "keep");
    let unsigned = scene.client().get(&grant.stop).send().await.unwrap();
    assert_eq!(unsigned.status(), 403);
}

#[tokio::test]
async fn ended_or_deleted_requests_take_nothing() {
    let told = scene(in_memory()).await;
    told.cancellations.cancel(KEY, Stop::Drop, at(0), at(60));
    let unseen = scene_in(in_memory(), true).await;
    for scene in [told, unseen] {
        let grant = scene.grant(at(60));
        let answer = scene.put(&grant, b"profile").await;
        assert_eq!(answer, (403, "the request is over or was deleted".into()));
        let asked = scene
            .client()
            .get(&grant.stop)
            .header("authorization", &grant.headers["authorization"])
            .send();
        assert_eq!(asked.await.unwrap().text().await.unwrap(), "drop");
        assert_eq!(scene.store.size(KEY).await.unwrap(), None);
    }
}

/// The hash of the public key in the served certificate.
async fn served_pin(address: SocketAddr) -> String {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let client = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .tls_info(true)
        .build()
        .unwrap();
    let answer = client
        .get(format!("https://{address}/"))
        .send()
        .await
        .unwrap();
    let info = answer.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
    let der = rustls::pki_types::CertificateDer::from(info.peer_certificate().unwrap().to_vec());
    let certificate = rustls::server::ParsedCertificate::try_from(&der).unwrap();
    let public = certificate.subject_public_key_info();
    URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA256,
        &public,
    ))
}

#[tokio::test]
async fn running_samplers_have_pinned_a_renewed_key() {
    let scene = scene(in_memory()).await;
    let pins = scene.grant(at(60)).pins;
    assert_eq!(served_pin(scene.address).await, pins[0]);
    scene.keyring.renew_for_test(at(1));
    scene.certificate.renew(&scene.keyring).unwrap();
    assert_eq!(served_pin(scene.address).await, pins[1]);
}

/// A promised length whose bytes never arrive takes no room from others.
#[tokio::test]
async fn uploads_that_send_nothing_hold_no_room() {
    let scene = scene(in_memory()).await;
    let address = format!("https://{}", scene.address);
    let mut silent = Vec::new();
    for number in 0..20 {
        let key = format!("{KEY}{number}");
        let grant = grant(&scene.keyring, &address, POD, &key, at(60)).unwrap();
        let body = reqwest::Body::wrap_stream(futures::stream::pending::<
            Result<Vec<u8>, std::io::Error>,
        >());
        let call = scene
            .client()
            .put(&grant.url)
            .header("authorization", &grant.headers["authorization"])
            .header(
                "content-digest",
                format!("sha-256=:{}:", STANDARD.encode([0; 32])),
            )
            .header("content-length", LARGEST.to_string())
            .body(body);
        silent.push(tokio::spawn(call.send()));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grant = scene.grant(at(60));
    let put = scene.put(&grant, b"profile");
    let (status, answer) = tokio::time::timeout(Duration::from_secs(5), put)
        .await
        .unwrap();
    assert_eq!(status, 200, "{answer}");
    silent.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_grant_has_only_its_share_of_requests() {
    let scene = scene(in_memory()).await;
    let grant = scene.grant(at(60));
    let ask = || {
        scene
            .client()
            .get(&grant.stop)
            .header("authorization", &grant.headers["authorization"])
    };
    let waiting: Vec<_> = (0..SHARE).map(|_| tokio::spawn(ask().send())).collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(ask().send().await.unwrap().status(), 429);
    for one in waiting {
        one.abort();
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (status, answer) = scene.put(&grant, b"profile").await;
    assert_eq!(status, 200, "{answer}");
}
