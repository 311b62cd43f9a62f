//! Valid and hostile uploads, with a store in memory.

use std::sync::Arc;

use flate2::{Compression, write::GzEncoder};
use object_store::memory::InMemory;
use phpprof_crds::UploadRoute;
use std::io::Write as _;

use super::*;
use crate::storage::collector::sha256;
use crate::storage::store::ProfileStore;
use crate::testing::{profile, profile_with};

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
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    store.create("key", bytes).await.expect("stored");
    let upload = ReportedUpload {
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
async fn a_profile_matching_its_receipt_is_verified() {
    let bytes = profile(7);
    check(bytes.clone(), receipt(&bytes, 7), "verified").await;
}

#[tokio::test]
async fn another_contracts_sampler_is_refused_with_remedy() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("../../../../contract/versions.json")).expect("JSON");
    let pairs = golden["pairs"].as_array().expect("a list").iter();
    let ours = pairs.filter(|pair| pair["operator"] == golden["number"]);
    let told = ours.map(|pair| {
        let receipt = format!(r#"{{"contract":{}}}"#, pair["sampler"]);
        (receipt, pair["speak"].is_u64())
    });
    for (receipt_of_peer, works) in told.chain([("{}".to_owned(), true)]) {
        let bytes = profile_with(7, &receipt_of_peer);
        let expected = if works {
            "verified"
        } else {
            "Usage: the sampler has contract"
        };
        check(bytes.clone(), receipt(&bytes, 7), expected).await;
    }
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
        "InvalidProfile: the profile has 7 samples, but the receipt says 8",
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
    check(bytes, receipt, "ProfileTooLarge: the object has 104857600 bytes, but at most 33554432 are allowed; it was not read").await;
}

#[tokio::test]
async fn gzip_bombs_and_random_bytes_are_no_profiles() {
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

/// Checks the remark on a profile of 30 seconds, if this many were asked for.
#[track_caller]
fn check_length(asked_seconds: Option<i32>, expected: Option<&str>) {
    let full: FullReceipt = serde_json::from_str(include_str!("../../../../contract/comment.json"))
        .expect("the contract's receipt");
    let upload = ReportedUpload {
        pod_uid: "u".into(),
        key: "key".into(),
        receipt: receipt(b"x", 1),
        asked_seconds,
    };
    assert_eq!(cut_short(&upload, &full).as_deref(), expected);
}

#[test]
fn an_early_end_is_said_unless_cancelled() {
    check_length(Some(30), None);
    check_length(Some(31), None);
    check_length(None, None);
    let why = "PHP ended, or its pod was stopped, before the time was over";
    let said = format!("the profile has the first 30 s of 60: {why}");
    check_length(Some(60), Some(&said));
}

#[tokio::test]
async fn a_receipt_without_object_is_a_missing_profile() {
    let upload = ReportedUpload {
        pod_uid: "u".into(),
        key: "nothing".into(),
        receipt: receipt(b"x", 1),
        asked_seconds: None,
    };
    let done = Collector::new(ProfileStore::in_memory(Arc::new(InMemory::new())))
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

#[tokio::test]
async fn a_profile_of_another_program_is_not_ours() {
    use phpprof_profile::{Builder, Settings, encode_gzip};
    let other = Settings {
        sample_types: vec![("inuse_space", "bytes")],
        ..Settings::default()
    };
    let bytes = encode_gzip(&Builder::new(other).finish());
    let refused = "InvalidProfile: not a profile of phpprof: its sample types are";
    check(bytes.clone(), receipt(&bytes, 0), refused).await;
}
