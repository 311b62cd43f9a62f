//! Uploads as they should be, and as someone hostile makes them, against a store in memory.

use std::sync::Arc;

use flate2::{Compression, write::GzEncoder};
use object_store::memory::InMemory;
use phpprof_crds::{ProfileRequestStatus, Reason, UploadRoute};
use serde_json::json;
use std::io::Write as _;

use super::*;
use crate::decide::effect::record;
use crate::testing::{at, request};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A profile of so many samples that starts with the receipt of the contract.
pub(super) fn profile(samples: i64) -> Vec<u8> {
    use phpprof_profile::proto::{Sample, ValueType};
    let strings = [
        "",
        "samples",
        "count",
        include_str!("../../../../contract/comment.json").trim(),
    ];
    let profile = Profile {
        sample_type: vec![ValueType { r#type: 1, unit: 2 }],
        sample: vec![Sample {
            value: vec![samples],
            ..Sample::default()
        }],
        string_table: strings.map(str::to_owned).to_vec(),
        comment: vec![3],
        ..Profile::default()
    };
    encode_gzip(&profile)
}

fn gzip(write: impl FnOnce(&mut GzEncoder<Vec<u8>>)) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    write(&mut encoder);
    encoder.finish().expect("a vector can be written")
}

fn receipt(bytes: &[u8], samples: i64) -> UploadReceipt {
    UploadReceipt {
        route: Some(UploadRoute::Direct),
        samples,
        size: bytes.len() as u64,
        sha256: sha256(bytes),
    }
}

/// `expected` is the state or the reason that the upload ends in.
async fn check(bytes: Vec<u8>, receipt: UploadReceipt, expected: &str) {
    let store = Store::in_memory(Arc::new(InMemory::new()));
    store.create("key", bytes).await.expect("stored");
    let upload = Upload {
        pod_uid: "u".into(),
        key: "key".into(),
        receipt,
        asked_seconds: None,
    };
    let actual = match Collector::new(store).verify(&upload).await {
        Done::TargetFailed {
            reason, message, ..
        } => format!("{reason}: {message}"),
        Done::Verified { .. } => "verified".to_owned(),
        other => format!("{other:?}"),
    };
    assert!(actual.starts_with(expected), "{actual}");
}

#[tokio::test]
async fn a_profile_that_is_what_its_receipt_says_is_verified() {
    let bytes = profile(7);
    check(bytes.clone(), receipt(&bytes, 7), "verified").await;
}

#[tokio::test]
async fn other_sizes_checksums_and_counts_are_refused() {
    let bytes = profile(7);
    check(
        bytes.clone(),
        UploadReceipt {
            size: 1,
            ..receipt(&bytes, 7)
        },
        "SizeMismatch",
    )
    .await;
    check(
        bytes.clone(),
        UploadReceipt {
            sha256: sha256(b""),
            ..receipt(&bytes, 7)
        },
        "ChecksumMismatch",
    )
    .await;
    check(
        bytes.clone(),
        receipt(&bytes, 8),
        "InvalidProfile: the profile has 7 samples, and the receipt says 8",
    )
    .await;
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_unread() {
    let bytes = vec![0; 100 << 20];
    let receipt = UploadReceipt {
        route: Some(UploadRoute::Direct),
        samples: 1,
        size: 100 << 20,
        sha256: "x".into(),
    };
    check(bytes, receipt, "ProfileTooLarge: the object has 104857600 bytes, and 33554432 are allowed; it was not read").await;
}

#[tokio::test]
async fn a_gzip_bomb_and_random_bytes_are_not_profiles() {
    let bomb = gzip(|encoder| {
        let zeros = vec![0; 1 << 20];
        for _ in 0..100 {
            encoder.write_all(&zeros).expect("a vector can be written");
        }
    });
    check(bomb.clone(), receipt(&bomb, 1), "InvalidProfile").await;
    let random: Vec<u8> = (0..100_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    check(random.clone(), receipt(&random, 1), "InvalidProfile").await;
}

/// What is said of a profile of 30 seconds, where so many were asked for.
#[track_caller]
fn check_length(asked_seconds: Option<i32>, expected: Option<&str>) {
    let full: FullReceipt = serde_json::from_str(include_str!("../../../../contract/comment.json"))
        .expect("the contract's receipt");
    let upload = Upload {
        pod_uid: "u".into(),
        key: "key".into(),
        receipt: receipt(b"x", 1),
        asked_seconds,
    };
    assert_eq!(cut_short(&upload, &full).as_deref(), expected);
}

#[test]
fn a_profile_that_ends_before_its_time_says_so_unless_it_was_cancelled() {
    check_length(Some(30), None);
    check_length(Some(31), None);
    check_length(None, None);
    let why = "PHP ended, or its pod was stopped, before the time was over";
    let said = format!("the profile has the first 30 s of 60: {why}");
    check_length(Some(60), Some(&said));
}

#[tokio::test]
async fn a_receipt_without_an_object_is_a_missing_profile() {
    let upload = Upload {
        pod_uid: "u".into(),
        key: "nothing".into(),
        receipt: receipt(b"x", 1),
        asked_seconds: None,
    };
    let done = Collector::new(Store::in_memory(Arc::new(InMemory::new())))
        .verify(&upload)
        .await;
    assert!(
        matches!(
            done,
            Done::TargetFailed {
                reason: TargetReason::ProfileMissing,
                ..
            }
        ),
        "{done:?}"
    );
}

/// A request whose two pods are uploaded and verified, and one of which failed.
async fn uploaded(store: &Store) -> ProfileRequest {
    let mut request = request(json!({"target": {"podName": "web"}}));
    let mut status = ProfileRequestStatus {
        start_time: Some(Time(at(0))),
        ..Default::default()
    };
    for (name, samples) in [("a", 7), ("b", 5)] {
        let bytes = profile(samples);
        let pod_uid = format!("uid-of-{name}");
        let object_key = key(&request, "", name);
        store
            .create(&object_key, bytes.clone())
            .await
            .expect("stored");
        status.targets.push(TargetStatus {
            pod_name: name.into(),
            pod_uid: pod_uid.clone(),
            object_key: object_key.clone(),
            ..Default::default()
        });
        let upload = Upload {
            pod_uid,
            key: object_key,
            receipt: receipt(&bytes, samples),
            asked_seconds: Some(30),
        };
        let done = Collector::new(store.clone()).verify(&upload).await;
        record(&mut status, &[done], Some(1), at(40));
    }
    let failed = TargetStatus {
        pod_name: "c".into(),
        state: TargetState::Failed,
        reason: Some(TargetReason::NoPhpFound),
        ..Default::default()
    };
    status.targets.push(failed);
    request.status = Some(status);
    request
}

#[tokio::test]
async fn the_pods_are_merged_and_listed_in_a_manifest() {
    let store = Store::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    let done = Collector::new(store.clone())
        .merge(&request, &Limits::default())
        .await;
    let mut status = request.status.take().unwrap();
    record(&mut status, &[done], Some(1), at(41));
    let result = status.profile.clone().unwrap();
    assert_eq!(result.samples, 12);
    assert_eq!(
        status.conditions[0].reason,
        Reason::SomeTargetsFailed.to_string()
    );
    let folder = "shop/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
    assert_eq!(result.url, format!("s3://profiles/{folder}/merged.pb.gz"));
    let manifest = store
        .read(&format!("{folder}/manifest.json"), 1 << 20)
        .await
        .unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    // What follows from the compression alone is not held.
    manifest["merged"]["sizeBytes"] = json!("…");
    for target in manifest["targets"].as_array_mut().unwrap() {
        target["sizeBytes"] = json!("…");
        target["sha256"] = json!("…");
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&manifest).unwrap());
}

#[tokio::test]
async fn pods_without_a_profile_are_listed_in_a_manifest_too() {
    let store = Store::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    for target in &mut request.status.as_mut().expect("uploaded").targets {
        crate::decide::status::fail(target, TargetReason::InvalidProfile, "no".into());
    }
    let limits = Limits::default();
    let collector = Collector::new(store.clone());
    for _ in 0..2 {
        assert_eq!(collector.list(&request, &limits).await, Done::Listed);
    }
    let manifest = store
        .read(&key(&request, &limits.key_prefix, "manifest.json"), 1 << 20)
        .await
        .expect("stored");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(manifest["merged"], json!(null));
    assert_eq!(manifest["targets"][0]["reason"], "InvalidProfile");
    assert!(manifest["targets"][1]["objectKey"].is_string());
}

#[tokio::test]
async fn merging_again_after_a_crash_gives_the_same_result() {
    let store = Store::in_memory(Arc::new(InMemory::new()));
    let request = uploaded(&store).await;
    let first = Collector::new(store.clone())
        .merge(&request, &Limits::default())
        .await;
    let again = Collector::new(store)
        .merge(&request, &Limits::default())
        .await;
    assert_eq!(first, again);
}

#[tokio::test]
async fn a_verified_profile_that_has_vanished_is_never_claimed() {
    let store = Store::in_memory(Arc::new(InMemory::new()));
    let request = uploaded(&store).await;
    let empty = Store::in_memory(Arc::new(InMemory::new()));
    let limits = Limits::default();
    let done = Collector::new(empty.clone()).merge(&request, &limits).await;
    assert!(matches!(done, Done::MergeFailed(_)), "{done:?}");
    let manifest = empty
        .size(&key(&request, &limits.key_prefix, MANIFEST))
        .await;
    assert!(manifest.expect("asked").is_some());
}
