//! The ledger over the lives of requests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use phpprof_crds::ProfileRequestStatus;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{at, request};

#[derive(Clone, Copy, Debug, PartialEq)]
enum LedgerStage {
    Waits,
    Runs,
    IsOver,
}

/// A version of the request `first` with this uid.
fn version(uid: &str, stage: LedgerStage, version: u32) -> ProfileRequest {
    let mut request = request(json!({"target": {"podName": "web"}}));
    request.metadata.uid = Some(uid.to_owned());
    request.metadata.resource_version = Some(version.to_string());
    request.status = Some(ProfileRequestStatus {
        start_time: (stage != LedgerStage::Waits).then(|| Time(at(0))),
        completion_time: (stage == LedgerStage::IsOver).then(|| Time(at(9))),
        ..ProfileRequestStatus::default()
    });
    request
}

fn seen(uid: &str, stage: LedgerStage) -> ProfileRequest {
    version(uid, stage, 1)
}

fn first() -> RequestRef {
    reference(&seen("a", LedgerStage::Waits))
}

fn uid(request: Option<ProfileRequest>) -> Option<String> {
    request.and_then(|request| request.uid())
}

/// A ledger in which something is remembered of the request in each way.
fn full(request: &ProfileRequest) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.arrive(request);
    ledger.see(request);
    let entry = ledger.entry(request);
    entry.candidate(at(0));
    entry.queued(1, 2, at(0));
    entry.observation_failed("no".into(), at(0));
    let pod_uid = "p".to_owned();
    let stopped = Done::Stopped { pod_uid };
    ledger.record(request, &[stopped, Done::StoreAway("no".into())], at(0));
    ledger.wrote(None, request, at(0));
    assert!(ledger.begin(request, &JobKey::Collection));
    ledger
}

#[test]
fn forget_leaves_nothing() {
    for stage in [LedgerStage::Waits, LedgerStage::Runs, LedgerStage::IsOver] {
        let request = seen("a", stage);
        let mut ledger = full(&request);
        let ran = uid(ledger.forget(&first())).is_some();
        assert_eq!(ran, stage == LedgerStage::Runs);
        assert!(ledger.entries.is_empty(), "{:?}", ledger.entries);
        assert_eq!(ledger.forget(&first()), None);
        // A job that ends afterwards adds nothing.
        ledger.end_job(&request, &JobKey::Collection, Done::Listed);
        assert!(ledger.entries.is_empty());
        assert_eq!(ledger.take_outcomes(&request), []);
    }
}

#[test]
fn see_keeps_a_request_while_it_runs() {
    let mut ledger = Ledger::default();
    ledger.see(&seen("a", LedgerStage::Waits));
    assert_eq!(ledger.running().count(), 0);
    ledger.see(&seen("a", LedgerStage::Runs));
    assert_eq!(ledger.running().count(), 1);
    ledger.see(&seen("a", LedgerStage::IsOver));
    assert_eq!(ledger.running().count(), 0);
    assert_eq!(ledger.ended(), ["a"].into());
    assert!(ledger.entries.is_empty());
}

#[test]
fn see_serves_namespaces_in_turn() {
    let mut ledger = Ledger::default();
    for (number, namespace) in ["shop", "blog", "shop"].into_iter().enumerate() {
        let mut request = seen(&number.to_string(), LedgerStage::Runs);
        request.metadata.name = Some(number.to_string());
        request.metadata.namespace = Some(namespace.to_owned());
        ledger.see(&request);
        ledger.see(&request);
    }
    assert_eq!(ledger.served(), ["blog", "shop"]);
}

#[test]
fn see_keeps_only_what_a_finished_end_needs() {
    let running = seen("a", LedgerStage::Runs);
    let mut ledger = full(&running);
    let over = version("a", LedgerStage::IsOver, 2);
    ledger.wrote(running.resource_version(), &over, at(1));
    ledger.see(&over);
    assert_eq!(ledger.running().count(), 0);
    let remembered = ledger.get(&over).unwrap().remembered();
    assert_eq!(remembered, Default::default());
    // The watch is behind.
    assert_eq!(ledger.arrive(&running).newest, over);
    assert!(ledger.begin(&over, &JobKey::Export));
    assert_eq!(ledger.arrive(&over).newest, over);
    ledger.see(&over);
    ledger.end_job(&over, &JobKey::Export, Done::Exported);
    assert_eq!(ledger.take_outcomes(&over), [Done::Exported]);
    ledger.record(&over, &[Done::Exported], at(2));
    assert!(ledger.entries.is_empty(), "{:?}", ledger.entries);
}

#[test]
fn arrive_tells_of_one_that_was_replaced() {
    for stage in [LedgerStage::Waits, LedgerStage::Runs] {
        let mut ledger = full(&seen("a", stage));
        let newer = seen("b", LedgerStage::Waits);
        let arrival = ledger.arrive(&newer);
        assert_eq!(arrival.newest, newer);
        let ran = stage == LedgerStage::Runs;
        assert_eq!(uid(arrival.deleted), ran.then(|| "a".to_owned()));
        assert_eq!(ledger.ended().contains("a"), ran);
        // Nothing of the older one is taken for the newer one's.
        assert!(ledger.get(&newer).is_none() && ledger.get(&seen("a", stage)).is_none());
        assert_eq!(ledger.arrive(&newer).deleted, None);
    }
}

#[test]
fn arrive_gives_the_version_that_was_written() {
    let mut ledger = Ledger::default();
    let version = |number| version("a", LedgerStage::Runs, number);
    let newest = |ledger: &mut Ledger, number| {
        let newest = ledger.arrive(&version(number)).newest;
        newest.resource_version()
    };
    assert_eq!(newest(&mut ledger, 1).as_deref(), Some("1"));
    ledger.wrote(Some("1".into()), &version(2), at(1));
    ledger.wrote(Some("2".into()), &version(3), at(2));
    for seen in [1, 2, 3] {
        assert_eq!(newest(&mut ledger, seen).as_deref(), Some("3"));
    }
    let writes = ledger
        .get(&version(1))
        .and_then(LedgerEntry::writes)
        .unwrap();
    assert_eq!((writes.count, writes.last), (2, at(2)));
    // Somebody else has changed the request.
    assert_eq!(newest(&mut ledger, 4).as_deref(), Some("4"));
}

#[test]
fn step_down_keeps_which_requests_run() {
    let running = seen("a", LedgerStage::Runs);
    let mut ledger = full(&running);
    ledger.step_down();
    assert_eq!(ledger.running().count(), 1);
    let remembered = ledger.get(&running).unwrap().remembered();
    assert_eq!(remembered, Default::default());
    assert_eq!(ledger.get(&running).unwrap().writes(), None);
    assert_eq!(uid(ledger.forget(&first())).as_deref(), Some("a"));
    let mut ledger = full(&seen("a", LedgerStage::Waits));
    ledger.step_down();
    assert!(ledger.entries.is_empty());
}

#[test]
fn take_outcomes_takes_each_once() {
    let request = seen("a", LedgerStage::Runs);
    let mut ledger = Ledger::default();
    assert!(ledger.begin(&request, &JobKey::Collection));
    assert!(!ledger.begin(&request, &JobKey::Collection));
    let another = seen("b", LedgerStage::Runs);
    ledger.end_job(&another, &JobKey::Collection, Done::Exported);
    assert_eq!(ledger.take_outcomes(&request), []);
    ledger.end_job(&request, &JobKey::Collection, Done::Listed);
    assert_eq!(ledger.take_outcomes(&request), [Done::Listed]);
    assert!(ledger.entries.is_empty());
}

proptest! {
    /// A watch shows the lives of requests of one name. Whatever is recorded in between, each one
    /// that ran and was deleted is told of once.
    #[test]
    fn a_running_requests_deletion_is_told_once(
        lives in proptest::collection::vec((0_usize..4, any::<bool>(), any::<bool>()), 1..12),
    ) {
        let stages = [LedgerStage::Waits, LedgerStage::Runs, LedgerStage::Runs, LedgerStage::IsOver];
        let (mut ledger, mut told, mut expected) = (Ledger::default(), Vec::new(), Vec::new());
        for (number, (last, is_noticed, has_job)) in lives.into_iter().enumerate() {
            let name = number.to_string();
            let shown = stages.iter().take(last + 1);
            for stage in shown {
                let request = seen(&name, *stage);
                told.extend(uid(ledger.arrive(&request).deleted));
                if has_job {
                    ledger.begin(&request, &JobKey::Collection);
                    ledger.record(&request, &[Done::StoreAway("no".into())], at(0));
                }
                ledger.see(&request);
            }
            if (1..3).contains(&last) {
                expected.push(name);
            }
            if is_noticed {
                told.extend(uid(ledger.forget(&first())));
                prop_assert!(ledger.entries.is_empty());
            }
        }
        told.extend(uid(ledger.forget(&first())));
        prop_assert_eq!(told, expected);
        prop_assert!(ledger.entries.is_empty());
    }
}
