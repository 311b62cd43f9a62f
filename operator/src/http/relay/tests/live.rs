//! The seconds of a live request on their way in: who may send them, and what the relay does with
//! them.

use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};

use super::*;

fn second(label: &str) -> &'static [u8] {
    let mut builder = Builder::new(Settings::default());
    let labels = [SampleTag::Str(label, "x")];
    builder.add(&[FrameRef::default()], &[1, 2, 3], &labels);
    encode_gzip(&builder.finish()).leak()
}

/// The grant, used to send seconds.
fn live(grant: &KeyGrant) -> KeyGrant {
    KeyGrant {
        url: grant.live.clone(),
        ..grant.clone()
    }
}

#[tokio::test]
async fn a_second_is_held_but_never_stored() {
    let scene = scene(in_memory()).await;
    let grant = live(&scene.grant(at(60)));
    let profile = second("route");
    assert_eq!(scene.put(&grant, profile).await, (200, String::new()));
    assert_eq!(scene.put(&grant, profile).await.0, 200);
    let read = scene.live.read(&[KEY], 0, 1 << 20, at(0));
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].1.profile, profile);
    assert_eq!(scene.store.size(KEY).await.unwrap(), None);
}

#[tokio::test]
async fn foreign_grants_and_foreign_profiles_are_refused() {
    let scene = scene(in_memory()).await;
    let grant = live(&scene.grant(at(60)));
    let bent = KeyGrant {
        url: grant.url.replace("web.fpm", "other.fpm"),
        ..grant.clone()
    };
    assert_eq!(scene.put(&bent, second("route")).await.0, 403);
    let over = live(&scene.grant(at(-1)));
    assert_eq!(scene.put(&over, second("route")).await.0, 403);
    let (status, why) = scene.put(&grant, second("password")).await;
    assert_eq!((status, why.contains("password")), (422, true), "{why}");
    assert_eq!(scene.put(&grant, b"no profile").await.0, 422);
    let large: &'static [u8] = vec![0; crate::http::live::LARGEST + 1].leak();
    assert_eq!(scene.put(&grant, large).await.0, 413);
    assert!(scene.live.read(&[KEY], 0, 1 << 20, at(0)).is_empty());
}

#[tokio::test]
async fn a_sampler_hears_of_missing_readers_and_leadership() {
    let scene = scene(in_memory()).await;
    let grant = live(&scene.grant(at(60)));
    // As if it had begun eleven seconds earlier.
    scene.live.bring(KEY, second("route").into(), at(-11));
    let told = scene.put(&grant, second("route")).await;
    assert_eq!(told, (410, "nobody reads the live profile any more".into()));
    scene.role.set(false);
    assert_eq!(scene.put(&grant, second("route")).await.0, 421);
}

#[tokio::test]
async fn a_deleted_live_request_takes_nothing() {
    let scene = scene(in_memory()).await;
    scene.cancellations.cancel(KEY, Stop::Drop, at(0), at(60));
    let grant = live(&scene.grant(at(60)));
    assert_eq!(scene.put(&grant, second("route")).await.0, 403);
}
