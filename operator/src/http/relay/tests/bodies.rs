//! Bodies that arrive at the same time: what those of one pod take from each other, and what they
//! leave to other pods.

use futures::channel::oneshot;
use futures::stream;
use tokio::task::JoinHandle;

use super::*;

const OTHER: GrantPod<'_> = GrantPod {
    uid: "5a0d8b2e-0000-4000-8000-000000000000",
    ..POD
};

fn granted(scene: &RelayScene, pod: GrantPod<'_>, key: &str) -> KeyGrant {
    let address = format!("https://{}", scene.address);
    grant(&scene.keyring, &address, pod, key, at(60)).unwrap()
}

/// An upload of two parts. The second one is sent once this is said, or never.
fn upload_in_parts(
    scene: &RelayScene,
    grant: &KeyGrant,
    first: Vec<u8>,
    second: &'static [u8],
) -> (JoinHandle<u16>, oneshot::Sender<()>) {
    let whole = [&first, second].concat();
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &whole);
    let (said, heard) = oneshot::channel();
    let rest = stream::once(async move {
        match heard.await {
            Ok(()) => Ok(second.to_vec()),
            Err(_) => std::future::pending().await,
        }
    });
    let parts = stream::iter([Ok::<_, std::io::Error>(first)]).chain(rest);
    let call = scene
        .client()
        .put(&grant.url)
        .header("authorization", &grant.headers["authorization"])
        .header(
            "content-digest",
            format!("sha-256=:{}:", STANDARD.encode(hash)),
        )
        .header("content-length", whole.len())
        .body(reqwest::Body::wrap_stream(parts));
    let call = tokio::spawn(async move { call.send().await.unwrap().status().as_u16() });
    (call, said)
}

/// Waits until bytes have arrived and no more arrive.
async fn settled(scene: &RelayScene) {
    let mut before = ROOM as usize;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = scene.relay.room.available_permits();
        if now == before && now < ROOM as usize {
            return;
        }
        before = now;
    }
    panic!("the room does not settle: {before}");
}

#[tokio::test]
async fn a_stalled_upload_leaves_room_to_other_pods() {
    let scene = scene(in_memory()).await;
    let mut stalled = Vec::new();
    for number in 0..4 {
        let grant = granted(&scene, POD, &format!("{KEY}{number}"));
        stalled.push(upload_in_parts(&scene, &grant, vec![0; 9 << 20], b"end"));
    }
    settled(&scene).await;
    let grant = granted(&scene, OTHER, KEY);
    let put = scene.put(&grant, b"profile");
    let put = tokio::time::timeout(Duration::from_secs(5), put).await;
    assert_eq!(put.unwrap(), (200, String::new()));
    stalled.iter().for_each(|(call, _)| call.abort());
}

#[tokio::test]
async fn one_pods_simultaneous_uploads_are_stored_in_turn() {
    let scene = scene(in_memory()).await;
    let first = granted(&scene, POD, &format!("{KEY}1"));
    let (first, go_on) = upload_in_parts(&scene, &first, b"pro".to_vec(), b"file");
    settled(&scene).await;
    let second = granted(&scene, POD, &format!("{KEY}2"));
    let (second, end) = upload_in_parts(&scene, &second, b"profi".to_vec(), b"le");
    end.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!second.is_finished());
    go_on.send(()).unwrap();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (200, 200));
}
