//! Compares what a store has of two requests.

use std::sync::Arc;

use object_store::memory::InMemory;
use phpprof_crds::ProfileRequestStatus;
use phpprof_profile::change::ChangeVerdict;
use serde_json::json;

use super::*;
use crate::storage::store::ProfileStore;
use crate::testing::release::release;
use crate::testing::{NAMESPACE_UID, request};

const RECEIPT: &str = include_str!("../../../../contract/comment.json");

fn finished(name: &str, labels: &[&str]) -> ProfileRequest {
    let mut request = request(json!({"target": {"podName": "web"}, "labels": labels}));
    request.metadata.name = Some(name.to_owned());
    request.status = Some(ProfileRequestStatus {
        namespace_uid: Some(NAMESPACE_UID.to_owned()),
        ..ProfileRequestStatus::default()
    });
    request
}

fn both() -> [ProfileRequest; 2] {
    ["old", "new"].map(|name| finished(name, &["Route"]))
}

fn question(is_forced: bool) -> ComparisonQuestion {
    ComparisonQuestion {
        settings: ChangeSettings::default(),
        is_forced,
    }
}

/// A collector of a store with these files of both requests; an empty one is missing.
async fn collector(files: [[Vec<u8>; 2]; 2]) -> Collector {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    for (request, files) in both().iter().zip(files) {
        for (name, file) in [MERGED, REQUESTS].into_iter().zip(files) {
            if !file.is_empty() {
                store.create(&key(request, "p", name), file).await.unwrap();
            }
        }
    }
    Collector::new(store)
}

async fn verdict(collector: &Collector) -> Result<ComparedProfiles, NotCompared> {
    collector.compare(&both(), "p", &question(false)).await
}

#[track_caller]
fn check_never(
    compared: Result<ComparedProfiles, NotCompared>,
    reason: ComparisonReason,
    words: &str,
) {
    match compared {
        Err(NotCompared::Never(why)) => {
            assert_eq!(why.reason, reason);
            assert!(why.found.contains(words), "{}", why.found);
        }
        Err(other) => panic!("{other:?}"),
        Ok(compared) => panic!("{:?}", compared.report.verdict),
    }
}

#[tokio::test]
async fn a_slower_function_is_named_with_its_caller() {
    let collector = collector([release(10.0, 1, RECEIPT), release(30.0, 2, RECEIPT)]).await;
    let report = verdict(&collector).await.unwrap().report;
    assert_eq!(report.verdict, ChangeVerdict::Worse, "{report:?}");
    let names: Vec<&str> = report.functions.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["Cart::total"]);
    assert_eq!(report.sides[0].requests, 960);
}

#[tokio::test]
async fn the_same_release_has_not_changed() {
    let collector = collector([release(10.0, 1, RECEIPT), release(10.0, 2, RECEIPT)]).await;
    let compared = verdict(&collector).await.unwrap();
    assert_eq!(compared.report.verdict, ChangeVerdict::NoChange);
    assert!(compared.likeness.unlike.is_empty());
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let whole = || release(10.0, 1, RECEIPT);
    let [profile, list] = whole();
    let gone = collector([whole(), [Vec::new(), list.clone()]]).await;
    check_never(
        verdict(&gone).await,
        ComparisonReason::ProfileGone,
        "request new",
    );
    let unlisted = collector([[profile, Vec::new()], whole()]).await;
    check_never(
        verdict(&unlisted).await,
        ComparisonReason::NoCells,
        "request old",
    );
    let without = [finished("old", &["Script"]), finished("new", &["Route"])];
    let compared = unlisted.compare(&without, "p", &question(false)).await;
    check_never(compared, ComparisonReason::NoCells, "by route");
}

#[tokio::test]
async fn files_that_cannot_be_read_are_named() {
    let whole = || release(10.0, 1, RECEIPT);
    let [profile, list] = whole();
    let broken = collector([[b"x".to_vec(), list], whole()]).await;
    let reason = ComparisonReason::UnreadableProfile;
    check_never(verdict(&broken).await, reason, "profile of request old");
    let broken = collector([whole(), [profile, b"x".to_vec()]]).await;
    check_never(verdict(&broken).await, reason, "list of request new");
}

#[tokio::test]
async fn a_profile_over_the_limit_is_not_compared() {
    let [_, list] = release(10.0, 1, RECEIPT);
    let large = [vec![0; LARGEST_COMPARED + 1], list];
    let collector = collector([large, release(10.0, 2, RECEIPT)]).await;
    let reason = ComparisonReason::TooLargeToCompare;
    check_never(verdict(&collector).await, reason, "request old");
}

#[tokio::test]
async fn unlike_profiles_are_compared_by_force_only() {
    let receipt =
        |labels: &str| format!(r#"{{"phpprof":"0.1.0","asked":{{"labels":[{labels}]}}}}"#);
    let (one, other) = (receipt(r#""route""#), receipt(r#""route","method""#));
    let collector = collector([release(10.0, 1, &one), release(10.0, 2, &other)]).await;
    let reason = ComparisonReason::ProfilesUnlike;
    check_never(verdict(&collector).await, reason, "method");
    let forced = collector.compare(&both(), "p", &question(true)).await;
    assert_eq!(forced.unwrap().likeness.unlike.len(), 1);
}
