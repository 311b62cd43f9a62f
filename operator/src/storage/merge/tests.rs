//! Merges a request's pods, with a store in memory.

use std::sync::Arc;

use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use object_store::memory::InMemory;
use phpprof_crds::{ProfileRequestStatus, RequestReason, TargetReason, UploadRoute};
use phpprof_profile::{
    Builder, DecodeLimits as Bounds, FrameRef, IN_USE, Profile, SampleTag, View, decode,
    encode_gzip,
};
use serde_json::json;

use super::*;
use crate::lifecycle::effect::{ReportedUpload, record};
use crate::sampler::object_keys::stop_key;
use crate::storage::collector::sha256;
use crate::storage::expiry::sweep;
use crate::storage::store::ProfileStore;
use crate::testing::{at, profile, request};

/// A request with two pods that are uploaded and verified, and one that failed.
async fn uploaded(store: &ProfileStore) -> ProfileRequest {
    let mut request = verified(
        store,
        json!({"target": {"podName": "web"}}),
        [("a", 7, profile(7)), ("b", 5, profile(5))],
    )
    .await;
    let failed = TargetStatus {
        pod_name: "c".into(),
        object_key: key(&request, "", "c"),
        state: TargetState::Failed,
        reason: Some(TargetReason::NoPhpFound),
        ..Default::default()
    };
    let status = request.status.as_mut().expect("verified");
    status.targets.push(failed);
    request
}

/// A request whose pods have stored these profiles, each with what its receipt counts.
async fn verified<const PODS: usize>(
    store: &ProfileStore,
    spec: serde_json::Value,
    pods: [(&str, i64, Vec<u8>); PODS],
) -> ProfileRequest {
    let mut request = request(spec);
    let mut status = ProfileRequestStatus {
        start_time: Some(Time(at(0))),
        ..Default::default()
    };
    for (name, samples, bytes) in pods {
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
        let upload = ReportedUpload {
            pod_uid,
            key: object_key,
            receipt: UploadReceipt {
                route: Some(UploadRoute::Direct),
                samples,
                size: bytes.len() as u64,
                sha256: sha256(&bytes),
            },
            asked_seconds: Some(request.spec.duration_seconds),
        };
        let done = Collector::new(store.clone()).verify(&upload).await;
        record(&mut status, &[done], Some(1), at(40));
    }
    request.status = Some(status);
    request
}

/// What a sampler stores of the heaps of its pod's workers, as the contract has it: these objects
/// of a class, each of 64 bytes, held by a static property.
fn heaps(objects: i64, in_heap: &str) -> Vec<u8> {
    let frame = |name| FrameRef {
        name,
        ..FrameRef::default()
    };
    // Leaf first.
    let path = ["Shop\\Order", "[int key]", "Shop\\Cache::$items"].map(frame);
    let mut builder = Builder::new(Settings::in_use());
    let labels = [SampleTag::Num("pid", 7, "")];
    builder.add(&path, &[objects, objects * 64], &labels);
    builder.comment(format!(
        r#"{{"phpprof":"0.1.0","contract":1,"php":{{"version":"8.4.1","sapi":"cli"}},"workers":2,"samples":{objects},"durationSeconds":0,"inHeap":{in_heap}}}"#
    ));
    encode_gzip(&builder.finish())
}

fn for_heaps() -> serde_json::Value {
    json!({"target": {"podName": "web"}, "mode": "Heap", "durationSeconds": 1})
}

#[tokio::test]
async fn heaps_of_pods_are_added_path_by_path() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let (quiet, torn) = (
        r#"{"workers":2,"moments":2}"#,
        r#"{"workers":2,"moments":1}"#,
    );
    let pods = [("a", 7, heaps(7, quiet)), ("b", 5, heaps(5, torn))];
    let request = verified(&store, for_heaps(), pods).await;
    let (profile, request) = merged(&store, request).await;
    let types: Vec<_> = profile.sample_types().collect();
    assert_eq!(types, IN_USE);
    let default = profile.string(profile.default_sample_type);
    assert_eq!((default, profile.period), ("inuse_space", 1));
    let rows = phpprof_profile::top(&profile, "inuse_space");
    let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    let (class, holder) = (of("Shop\\Order"), of("Shop\\Cache::$items"));
    assert_eq!((class.flat, holder.flat, holder.cum), (768, 0, 768));
    let status = request.status.unwrap();
    assert_eq!(status.profile.unwrap().samples, 12);
    let target = &status.targets[0];
    assert_eq!((target.samples, target.workers), (Some(7), Some(2)));
    let sampled = (&target.quality, target.effective_samples_per_second);
    assert_eq!(sampled, (&None, None));
    let said = &status.conditions[0];
    assert_eq!(said.reason, RequestReason::Complete.to_string());
    let expected = "profiled 2 pods; 1 of 4 workers ran while the heap was read (Torn)";
    assert!(said.message.starts_with(expected), "{}", said.message);
}

#[tokio::test]
async fn empty_heaps_are_no_lack_of_work() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let pods = [("a", 0, heaps(0, r#"{"workers":2,"moments":2}"#))];
    let request = verified(&store, for_heaps(), pods).await;
    let (_, request) = merged(&store, request).await;
    let status = request.status.unwrap();
    let said = &status.conditions[0];
    assert_eq!(said.reason, RequestReason::Complete.to_string());
    assert!(
        said.message.contains("php-fpm empties its heap"),
        "{}",
        said.message
    );
}

#[tokio::test]
async fn a_pod_with_another_kind_fails_alone() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let moments = r#"{"workers":1,"moments":1}"#;
    let pods = || [("a", 7, profile(7)), ("b", 5, heaps(5, moments))];
    let sampled = json!({"target": {"podName": "web"}});
    for (spec, kept, left_out) in [(for_heaps(), 5, "a"), (sampled, 7, "b")] {
        let request = verified(&store, spec, pods()).await;
        let (_, request) = merged(&store, request).await;
        let status = request.status.unwrap();
        assert_eq!(status.profile.unwrap().samples, kept);
        assert_eq!(status.targets[0].pod_name, left_out);
        assert_eq!(status.targets[0].reason, Some(TargetReason::InvalidProfile));
    }
}

#[tokio::test]
async fn merged_pods_are_listed_in_a_manifest() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    let done = Collector::new(store.clone())
        .merge(&request, &AdminLimits::default())
        .await;
    let mut status = request.status.take().unwrap();
    record(&mut status, &[done], Some(1), at(41));
    let result = status.profile.clone().unwrap();
    assert_eq!(result.samples, 12);
    assert_eq!(
        status.conditions[0].reason,
        RequestReason::SomeTargetsFailed.to_string()
    );
    let folder = "shop/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
    assert_eq!(result.url, format!("s3://profiles/{folder}/merged.pb.gz"));
    let manifest = store
        .read(&format!("{folder}/manifest.json"), 1 << 20)
        .await
        .unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    // The size depends on the compression, so it is not compared.
    manifest["merged"]["sizeBytes"] = json!("…");
    for target in manifest["targets"].as_array_mut().unwrap() {
        target["sizeBytes"] = json!("…");
        target["sha256"] = json!("…");
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&manifest).unwrap());
}

#[tokio::test]
async fn pods_without_profile_are_in_the_manifest_too() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    for target in &mut request.status.as_mut().expect("uploaded").targets {
        crate::lifecycle::status::fail(target, TargetReason::InvalidProfile, "no");
    }
    let limits = AdminLimits::default();
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
async fn routes_bring_a_list_of_requests_to_manifests() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    request.spec.labels = vec![phpprof_crds::RequestLabel::Route];
    let (_, request) = merged(&store, request).await;
    let read = |file: &str| {
        let (store, key) = (store.clone(), key(&request, "", file));
        async move { store.read(&key, 1 << 20).await.expect("stored") }
    };
    let manifest: serde_json::Value = serde_json::from_slice(&read(MANIFEST).await).unwrap();
    let listed = &manifest["requests"];
    assert_eq!(listed["objectKey"], key(&request, "", "requests.json.gz"));
    // No pod had stored a list.
    assert_eq!(listed["pods"], 0);
    let list = phpprof_profile::timeline::decode(&read("requests.json.gz").await);
    assert_eq!(list.unwrap().requests, []);
}

/// The keys of the store once every retention is over.
async fn left(store: &ProfileStore) -> Vec<String> {
    sweep(store, at(1 << 30)).await.expect("swept");
    let keys = store.keys_ending("").try_collect().await;
    keys.expect("listed")
}

#[tokio::test]
async fn a_deleted_requests_late_merge_goes_too() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    request.spec.labels = vec![phpprof_crds::RequestLabel::Route];
    let (collector, limits) = (Collector::new(store.clone()), AdminLimits::default());
    let mut deleted = request.clone();
    deleted.metadata.deletion_timestamp = Some(Time(at(41)));
    assert_eq!(collector.list(&deleted, &limits).await, Done::Listed);
    let done = collector.merge(&request, &limits).await;
    assert!(matches!(done, Done::Merged { .. }), "{done:?}");
    assert_eq!(left(&store).await, [""; 0]);
}

#[tokio::test]
async fn stop_markers_go_with_the_rest() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    let (whole, checkpoint) = ("web.pb.gz", "web.checkpoint-1.pb.gz");
    let [whole, checkpoint] = [whole, checkpoint].map(|file| key(&request, "", file));
    let targets = &mut request.status.as_mut().expect("uploaded").targets;
    let stops = [stop_key(&targets[1].object_key), stop_key(&whole)];
    targets[0].object_key = checkpoint;
    for stop in &stops {
        store.create(stop, "keep").await.expect("stored");
    }
    let collector = Collector::new(store.clone());
    let done = collector.list(&request, &AdminLimits::default()).await;
    assert_eq!(done, Done::Listed);
    let left = left(&store).await;
    assert!(!left.iter().any(|key| stops.contains(key)), "{left:?}");
}

#[tokio::test]
async fn merging_again_after_a_crash_changes_nothing() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let request = uploaded(&store).await;
    let first = Collector::new(store.clone())
        .merge(&request, &AdminLimits::default())
        .await;
    let again = Collector::new(store)
        .merge(&request, &AdminLimits::default())
        .await;
    assert_eq!(first, again);
}

#[tokio::test]
async fn a_vanished_verified_profile_is_never_claimed() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let request = uploaded(&store).await;
    let empty = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let limits = AdminLimits::default();
    let done = Collector::new(empty.clone()).merge(&request, &limits).await;
    assert!(matches!(done, Done::MergeFailed(_)), "{done:?}");
    let manifest = empty
        .size(&key(&request, &limits.key_prefix, MANIFEST))
        .await;
    assert!(manifest.expect("asked").is_some());
}

/// The merged profile of a request, and the request with the results of merging.
async fn merged(store: &ProfileStore, mut request: ProfileRequest) -> (Profile, ProfileRequest) {
    let collector = Collector::new(store.clone());
    let done = collector.merge(&request, &AdminLimits::default()).await;
    let status = request.status.as_mut().expect("uploaded");
    record(status, &[done], Some(1), at(41));
    let file = collector.merged(&request, &AdminLimits::default()).await;
    let profile = decode(&file.expect("stored"), &Bounds::default()).expect("a profile");
    (profile, request)
}

#[tokio::test]
async fn no_pod_speaks_for_other_pods_or_times() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let request = uploaded(&store).await;
    let (profile, _) = merged(&store, request).await;
    let of = |pod: &str| {
        let view = View {
            sample_type: None,
            labels: vec![("pod".to_owned(), pod.to_owned())],
        };
        phpprof_profile::total(&view.filtered(&profile), "samples")
    };
    assert_eq!([of("a"), of("b"), of("forged")], [7, 5, 0]);
    // The samplers reported 1 ns after 1970, and centuries.
    assert_eq!(profile.time_nanos, at(0).as_second() * 1_000_000_000);
    assert_eq!(profile.duration_nanos, 31_000_000_000);
    assert_eq!(profile.period, 1_000_000_000 / 99);
}

#[tokio::test]
async fn a_pod_whose_object_was_changed_fails_alone() {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let mut request = uploaded(&store).await;
    let status = request.status.as_mut().expect("uploaded");
    let lost = status
        .targets
        .iter_mut()
        .find(|target| target.pod_name == "a");
    lost.expect("there").object_key = "nothing".into();
    let (profile, request) = merged(&store, request).await;
    assert_eq!(phpprof_profile::total(&profile, "samples"), 5);
    let status = request.status.expect("merged");
    assert_eq!((status.succeeded, status.failed), (1, 2));
    let said = &status.conditions[0];
    assert_eq!(said.reason, RequestReason::SomeTargetsFailed.to_string());
    let why = "pod a, the first of 2: ProfileMissing: the profile of pod a has changed since it was verified: the store has no object nothing";
    assert!(said.message.contains(why), "{}", said.message);
}

#[test]
fn what_found_no_room_is_counted_and_said() {
    let merged = Merged {
        file: Vec::new(),
        totals: vec![1000, 0, 1_000_000],
        other: vec![5, 0, 7_000],
        cut: 3,
    };
    assert_eq!(
        note(&merged, None),
        "0.7 % of the time is [other]: 3 of the profiles have more stacks than a merged profile may have; each pod's own profile is complete"
    );
    let said = note(&merged, Some(&InHeap::default()));
    assert!(said.starts_with("0.7 % of the bytes is [other]"), "{said}");
    assert_eq!(note(&Merged { cut: 0, ..merged }, None), "");
}
