//! What a namespace's listing has, in which order, and how often it reads from the store.

use object_store::memory::InMemory;
use serde_json::{Value, json};

use super::*;
use crate::testing::at;

fn uid(number: usize) -> String {
    format!("0b1c2d3e-4f50-4a6b-8c7d-{number:012}")
}

/// A manifest as the operator writes it, by the number and the second of its request; `change`
/// modifies it.
fn manifest(number: usize, change: impl FnOnce(&mut Value)) -> String {
    let mut manifest = json!({
        "version": 1, "namespace": "shop", "name": format!("r-{number}"), "uid": uid(number), "namespaceUID": "n1",
        "target": {"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxPods": 5},
        "durationSeconds": 30, "startTime": at(number as i64), "expiresAt": at(604_800),
        "merged": {"objectKey": "x", "samples": 240, "sizeBytes": 400},
        "targets": [
            {"podName": "web-1", "containerName": "fpm", "state": "Uploaded", "objectKey": "x", "samples": 100, "sizeBytes": 150},
            {"podName": "web-2", "containerName": "fpm", "state": "Failed", "message": "…"},
        ],
    });
    change(&mut manifest);
    manifest.to_string()
}

fn key(namespace: &str, number: usize) -> String {
    format!("{namespace}/r-{number}-{}/manifest.json", uid(number))
}

async fn names(archive: &Archive, namespace_uid: &str) -> Vec<String> {
    let listing = archive.list("shop", namespace_uid).await.unwrap();
    let names = listing.profiles.iter().map(|it| it.name.clone());
    names.collect()
}

#[tokio::test]
async fn a_namespaces_manifests_are_listed_newest_first() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    for number in [1, 3, 2] {
        let text = manifest(number, |it| it["requestedBy"] = json!("alice"));
        store.create(&key("shop/n1", number), text).await.unwrap();
    }
    store
        .create("shop/n1/r-1-x/merged.pb.gz", vec![0; 50])
        .await
        .unwrap();
    let other = manifest(4, |_| {});
    store.create(&key("shop/n2", 4), other).await.unwrap();
    let legacy = manifest(5, |_| {});
    store.create(&key("shop", 5), legacy).await.unwrap();
    let archive = Archive::new(store.clone());
    assert_eq!(names(&archive, "n1").await, ["r-3", "r-2", "r-1"]);
    assert_eq!(names(&archive, "n2").await, ["r-4"]);
    assert_eq!(names(&archive, "n3").await, [""; 0]);
    let listing = archive.list("shop", "n1").await.unwrap();
    assert!(listing.bytes > 50 + 3 * 400, "{}", listing.bytes);
    let expected = Summary {
        name: "r-3".into(),
        uid: uid(3),
        target: "deployment/web".into(),
        requested_by: "alice".into(),
        start_time: at(3),
        duration_seconds: Some(30),
        pods: 1,
        samples: 240,
        size_bytes: 400,
        expires_at: at(604_800),
    };
    assert_eq!(*listing.profiles[0], expected);
}

#[tokio::test]
async fn entries_need_a_profile_and_count_unmerged_pods() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let none = manifest(1, |it| {
        it["merged"] = Value::Null;
        it["targets"][0]["state"] = json!("Failed");
    });
    let unmerged = manifest(2, |it| {
        let fields = it.as_object_mut().unwrap();
        // Manifests of older operators lack these fields, too.
        for field in ["merged", "target", "durationSeconds"] {
            fields.remove(field);
        }
    });
    for (number, text) in [(1, none), (2, unmerged), (3, "{}".into()), (4, "[".into())] {
        store.create(&key("shop/n1", number), text).await.unwrap();
    }
    let listing = Archive::new(store).list("shop", "n1").await.unwrap();
    assert_eq!(listing.profiles.len(), 1);
    let listed = &listing.profiles[0];
    assert_eq!((listed.samples, listed.size_bytes), (100, 150));
    assert_eq!((&*listed.target, listed.duration_seconds), ("", None));
}

#[tokio::test]
async fn a_manifest_is_read_once_until_swept() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let archive = Archive::new(store.clone());
    for number in [1, 2] {
        let text = manifest(number, |_| {});
        store.create(&key("shop/n1", number), text).await.unwrap();
    }
    assert_eq!(names(&archive, "n1").await, ["r-2", "r-1"]);
    // A manifest never changes, so another object under the same key is not read.
    store.delete(&key("shop/n1", 1)).await.unwrap();
    store.create(&key("shop/n1", 1), "{}").await.unwrap();
    assert_eq!(names(&archive, "n1").await, ["r-2", "r-1"]);
    store.delete(&key("shop/n1", 1)).await.unwrap();
    assert_eq!(names(&archive, "n1").await, ["r-2"]);
}

#[tokio::test]
async fn entries_over_the_bound_are_counted() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    for number in 0..MOST + 3 {
        let text = manifest(number, |_| {});
        store.create(&key("shop/n1", number), text).await.unwrap();
    }
    let archive = Archive::new(store);
    let listing = archive.list("shop", "n1").await.unwrap();
    assert_eq!((listing.profiles.len(), listing.left_out), (MOST, 3));
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    let archive = Archive::new(ProfileStore::in_memory(Arc::new(InMemory::new())));
    let manifest = |key: usize| ListedObject {
        changed_millis: 0,
        key: format!("blog/n9/{key}/manifest.json"),
        size: 0,
    };
    let known = |key: usize| (manifest(key).key, None);
    *archive.known() = (0..REMEMBERED).map(known).collect();
    assert_eq!(archive.unknown(&[manifest(7)]), []);
    assert_eq!(archive.known().len(), REMEMBERED);
    let new = manifest(REMEMBERED);
    assert_eq!(archive.unknown(&[manifest(7), new.clone()]), [new]);
    assert_eq!(archive.known().len(), 1);
}

#[test]
fn targets_are_said_in_the_plugins_words() {
    let check = |target: Value, expected: &str| {
        let target: ProfileTarget = serde_json::from_value(target).unwrap();
        assert_eq!(words(&target), expected);
    };
    check(json!({"podName": "web-1"}), "pod/web-1");
    let labels = json!({"app": "web", "stage": "canary"});
    check(
        json!({"selector": {"matchLabels": labels}}),
        "app=web,stage=canary",
    );
    check(json!({"selector": {"matchExpressions": []}}), "…");
}
