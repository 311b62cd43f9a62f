//! Merges the lists of a request's pods, with a store in memory.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use object_store::memory::InMemory;
use phpprof_crds::{ProfileRequestStatus, TargetStatus};
use phpprof_profile::timeline::{
    CellTable, FIRST_SLICE, RouteCell, TimelineCell, TimelineRequest, TreeFunction, VERSION,
    WorkerRow, decode, encode,
};
use serde_json::json;

use super::*;
use crate::storage::store::ProfileStore;
use crate::testing::{at, request, target};

const STEP: i64 = 80_000_000;

/// A pod's list that began this many nanoseconds after 1970, with a request of this duration.
fn list(began: i64, duration: i64) -> Vec<u8> {
    let list = Timeline {
        version: VERSION,
        began_unix_nanoseconds: began,
        duration_nanoseconds: 30_000_000_000,
        step_nanoseconds: STEP,
        workers: vec![WorkerRow {
            pod: "forged".to_owned(),
            pid: 7,
            thread: 0,
            cells: vec![TimelineCell {
                busy: duration,
                ..TimelineCell::default()
            }],
        }],
        requests: vec![TimelineRequest {
            pod: "forged".to_owned(),
            end: duration,
            route: "/".to_owned(),
            ..TimelineRequest::default()
        }],
        ..Timeline::default()
    };
    encode(&list).expect("written")
}

/// A request whose pods have stored these lists.
async fn stored(store: &ProfileStore, lists: &[Option<Vec<u8>>]) -> ProfileRequest {
    let mut request = request(json!({"target": {"podName": "web"}, "labels": ["Route"]}));
    let mut status = ProfileRequestStatus {
        start_time: Some(Time(at(0))),
        ..ProfileRequestStatus::default()
    };
    for (index, list) in lists.iter().enumerate() {
        let target = TargetStatus {
            object_key: key(&request, "", &format!("{index}.pb.gz")),
            ..target(&format!("pod-{index}"), TargetState::Uploaded)
        };
        if let Some(list) = list {
            let key = requests_key(&target);
            store.create(&key, list.clone()).await.expect("stored");
        }
        status.targets.push(target);
    }
    request.status = Some(status);
    request
}

/// The merged list, the number of pods in it, and the note.
async fn merged(lists: &[Option<Vec<u8>>]) -> (Timeline, usize, String) {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let request = stored(&store, lists).await;
    let collector = Collector::new(store.clone());
    let merged = collector
        .store_requests(&request, &AdminLimits::default())
        .await;
    let Ok(((key, size, pods), note)) = merged else {
        panic!("the store was away");
    };
    assert!(key.ends_with("/requests.json.gz"), "{key}");
    let file = store.read(&key, MAX_BYTES as u64).await.expect("stored");
    assert_eq!(file.len() as u64, size);
    (decode(&file).expect("a list"), pods, note)
}

#[tokio::test]
async fn a_pods_requests_stay_within_the_requests_time() {
    let start = at(0).as_second() * 1_000_000_000;
    // One clock is right, and the other is decades behind.
    let lists = [Some(list(start + 2 * STEP, 5)), Some(list(1, 9))];
    let (merged, pods, note) = merged(&lists).await;
    assert_eq!((pods, note.as_str()), (2, ""));
    assert_eq!(merged.began_unix_nanoseconds, start);
    let workers = merged
        .workers
        .iter()
        .map(|row| (&*row.pod, row.cells[0].busy));
    assert_eq!(workers.collect::<Vec<_>>(), [("pod-0", 5), ("pod-1", 9)]);
    let requests = merged.requests.iter().map(|it| (&*it.pod, it.begin));
    let requests: Vec<_> = requests.collect();
    assert_eq!(requests, [("pod-1", 0), ("pod-0", 2 * STEP)]);
}

#[tokio::test]
async fn a_broken_list_is_left_out_and_said() {
    let start = at(0).as_second() * 1_000_000_000;
    let endless = Timeline {
        version: VERSION,
        step_nanoseconds: STEP << 20,
        ..Timeline::default()
    };
    let lists = [
        Some(b"no gzip".to_vec()),
        Some(list(start, 5)),
        None,
        Some(encode(&endless).expect("written")),
        Some(vec![0; MAX_BYTES + 1]),
        Some(Vec::new()),
    ];
    let (merged, pods, note) = merged(&lists).await;
    assert_eq!((pods, merged.requests.len()), (1, 1));
    let begin = "the list of requests lacks pods: pod-0: the file is not a timeline: ";
    assert!(note.starts_with(begin), "{note}");
    let end = ", pod-3: its steps are longer than the run, pod-4: it is too large, and 1 more";
    assert!(note.ends_with(end), "{note}");
}

#[tokio::test]
async fn bad_cells_of_a_pod_leave_the_others() {
    let start = at(0).as_second() * 1_000_000_000;
    let with = |change: fn(&mut CellTable)| {
        let mut list = decode(&list(start, 5)).expect("a list");
        let mut cells = CellTable {
            slice_nanoseconds: FIRST_SLICE,
            pods: vec![String::new()],
            routes: vec!["/".to_owned()],
            functions: vec![TreeFunction::default()],
            cells: vec![RouteCell {
                requests: 3,
                samples: 9,
                ..RouteCell::default()
            }],
            ..CellTable::default()
        };
        change(&mut cells);
        list.cells = Some(cells);
        Some(encode(&list).expect("written"))
    };
    let lists = [
        with(|_| ()),
        with(|it| it.cells[0].route = 7),
        with(|it| it.slice_nanoseconds = FIRST_SLICE << 20),
    ];
    let (merged, pods, note) = merged(&lists).await;
    assert_eq!((pods, merged.requests.len()), (3, 3));
    assert_eq!(merged.cells.expect("cells").pods, ["pod-0"]);
    let expected = "it lacks the cells of pods: pod-1: its table of cells, \
        pod-2: its slices are longer than the run";
    assert_eq!(note, expected);
}
