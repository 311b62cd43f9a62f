//! What the operator remembers of one request.
//!
//! Invariant: what matters only until the request is over is dropped at its end, all together.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, TargetStatus};
use phpprof_decide::limits::later;

use super::jobs::RunningJobs;
use super::samplers::Samplers;
use super::written::{ShownVersion, Written};
use crate::backoff::pause;
use crate::lifecycle::effect::Done;
use crate::lifecycle::observed::{
    Blind, ObservedCluster, PodView, Queued, ReceiptRead, StoreTrouble,
};
use crate::lifecycle::pace::StatusWrites;
use crate::reconcile::watches::Subscription;

/// The shortest time between two updates of a request's place in its status.
const PLACE_EVERY: SignedDuration = SignedDuration::from_secs(30);

/// What is remembered of one request.
#[derive(Debug)]
pub struct LedgerEntry {
    uid: String,
    written: Option<Written>,
    pub(super) jobs: RunningJobs,
    open: Option<Box<OpenRequest>>,
}

/// What matters only until the request is over.
#[derive(Debug, Default)]
struct OpenRequest {
    /// The request as last seen, if it runs. It is kept because the notice of a deletion has no
    /// object.
    running: Option<Arc<ProfileRequest>>,
    /// Keeps the watch of its namespace's pods.
    pods: Option<Arc<Subscription>>,
    samplers: Samplers,
    /// How often the store failed in a row.
    trouble: Option<(u32, StoreTrouble)>,
    /// How often the cluster could not be observed in a row.
    blind: Option<(u32, Blind)>,
    /// When the operator first saw the request, which was not accepted yet.
    candidate: Option<Timestamp>,
    /// Its place in the queue, and when the status got it.
    queued: Option<(Queued, Timestamp)>,
}

impl LedgerEntry {
    pub(super) fn of(request: &ProfileRequest) -> Self {
        LedgerEntry {
            uid: request.uid().unwrap_or_default(),
            written: None,
            jobs: RunningJobs::default(),
            open: None,
        }
    }

    pub(super) fn is_of(&self, request: &ProfileRequest) -> bool {
        self.uid == request.uid().unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written.is_none() && self.jobs.is_empty() && self.open.is_none()
    }

    fn open(&mut self) -> &mut OpenRequest {
        self.open.get_or_insert_default()
    }

    /// The newest version of the request that a watch shows in this one.
    pub(super) fn newest(&mut self, seen: &ProfileRequest) -> ProfileRequest {
        let shown = self.written.as_mut().map(|written| written.compare(seen));
        match shown {
            Some(ShownVersion::Replaced(newest)) => return Arc::unwrap_or_clone(newest),
            Some(ShownVersion::Over) => self.written = None,
            Some(ShownVersion::Newest) | None => {}
        }
        seen.clone()
    }

    pub(super) fn wrote(
        &mut self,
        replaced: Option<String>,
        written: &ProfileRequest,
        now: Timestamp,
    ) {
        let before = self.written.take();
        self.written = Some(Written::after(before, replaced, written, now));
    }

    /// How often the request was written; `None` if never.
    pub fn writes(&self) -> Option<StatusWrites> {
        self.written.as_ref().map(Written::writes)
    }

    /// The number of jobs whose outcomes have not been taken.
    pub fn outcomes(&self) -> usize {
        self.jobs.ended()
    }

    /// Keeps the request while it runs. Returns whether it did not run before.
    pub(super) fn run(&mut self, request: &ProfileRequest) -> bool {
        let running = Arc::new(request.clone());
        self.open().running.replace(running).is_none()
    }

    /// Returns whether the request ran.
    pub(super) fn end_run(&mut self) -> bool {
        let open = self.open.as_mut();
        open.is_some_and(|open| open.running.take().is_some())
    }

    /// The request is over.
    pub(super) fn finish(&mut self) {
        self.open = None;
        self.jobs.finish();
    }

    /// Another replica handles the request.
    pub(super) fn step_down(&mut self) {
        let running = self.open.take().and_then(|open| open.running);
        self.open = running.map(|running| {
            Box::new(OpenRequest {
                running: Some(running),
                ..OpenRequest::default()
            })
        });
        self.written = None;
        self.jobs = RunningJobs::default();
    }

    /// The request, if it runs.
    pub fn running(&self) -> Option<&ProfileRequest> {
        self.open.as_ref()?.running.as_deref()
    }

    pub(super) fn into_running(self) -> Option<Arc<ProfileRequest>> {
        self.open?.running
    }

    /// The watch of the request's pods, which lasts as long as the request needs it.
    pub fn pods(&mut self, subscribe: impl FnOnce() -> Subscription) -> Arc<Subscription> {
        let subscribed = || Arc::new(subscribe());
        self.open().pods.get_or_insert_with(subscribed).clone()
    }

    /// What a decision may know of it.
    pub fn remembered(&self) -> ObservedCluster {
        let under_way = self.jobs.under_way();
        let Some(open) = &self.open else {
            return ObservedCluster {
                under_way,
                ..ObservedCluster::default()
            };
        };
        let trouble = open.trouble.as_ref();
        ObservedCluster {
            under_way,
            store_trouble: trouble.map(|(_, trouble)| trouble.clone()),
            stopped: open.samplers.stopped().clone(),
            receipts: open.samplers.receipts().clone(),
            ..ObservedCluster::default()
        }
    }

    /// Whether any of its samplers was told to stop.
    pub fn is_stopped(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| !open.samplers.stopped().is_empty())
    }

    /// As [`Samplers::complete`].
    pub fn complete(&mut self, pod: &mut PodView, now: Timestamp) {
        self.open().samplers.complete(pod, now);
    }

    /// As [`Samplers::silent_since`].
    pub fn silent_since(
        &mut self,
        target: &TargetStatus,
        pod: &PodView,
        heard: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let samplers = &mut self.open().samplers;
        samplers.silent_since(target, pod, heard, now)
    }

    /// Records results, as far as the next reconciliation needs them.
    pub(super) fn record(&mut self, done: &[Done], now: Timestamp) {
        for done in done {
            match done {
                Done::StoreAway(message) | Done::NotStopped(message) => {
                    self.store_failed(message, now);
                }
                Done::Verified { .. }
                | Done::Recovered { .. }
                | Done::Merged { .. }
                | Done::Listed => self.store_answered(),
                Done::ReceiptRead { pod_uid, message } => {
                    let read = ReceiptRead {
                        message: message.clone(),
                        at: now,
                    };
                    self.store_answered();
                    self.open().samplers.read(pod_uid, read);
                }
                Done::Injected(injected) => self.open().samplers.inject(injected),
                Done::Stopped { pod_uid } => self.open().samplers.stop(pod_uid),
                Done::TryAgain(_)
                | Done::TargetFailed { .. }
                | Done::MergeFailed(_)
                | Done::Exported
                | Done::Deleted => {}
            }
        }
    }

    /// The pause grows with each failure in a row.
    fn store_failed(&mut self, message: &str, now: Timestamp) {
        let trouble = &mut self.open().trouble;
        let failures = trouble.as_ref().map_or(0, |(failures, _)| *failures) + 1;
        let message = message.to_owned();
        let retry_at = after(now, failures);
        *trouble = Some((failures, StoreTrouble { message, retry_at }));
    }

    fn store_answered(&mut self) {
        if let Some(open) = &mut self.open {
            open.trouble = None;
        }
    }

    /// Records that the cluster could not be observed. Returns since when, and when to try again.
    pub fn observation_failed(&mut self, message: String, now: Timestamp) -> Blind {
        let before = &mut self.open().blind;
        let (failures, since) = before
            .as_ref()
            .map_or((1, now), |(failures, blind)| (failures + 1, blind.since));
        let blind = Blind {
            message,
            since,
            retry_at: after(now, failures),
        };
        *before = Some((failures, blind.clone()));
        blind
    }

    /// Records that the cluster could be observed.
    pub fn observed(&mut self) {
        if let Some(open) = &mut self.open {
            open.blind = None;
        }
    }

    /// When the operator first saw the request, which is not accepted yet.
    pub fn candidate(&mut self, now: Timestamp) -> Timestamp {
        *self.open().candidate.get_or_insert(now)
    }

    /// The request's place for its status. It changes at most every [`PLACE_EVERY`].
    pub fn queued(&mut self, place: usize, of: usize, now: Timestamp) -> Queued {
        let since = self.candidate(now);
        let current = Queued { place, of, since };
        let open = self.open();
        match open.queued {
            Some((told, at)) if now < later(at, PLACE_EVERY) => told,
            _ => {
                open.queued = Some((current, now));
                current
            }
        }
    }
}

fn after(now: Timestamp, failures: u32) -> Timestamp {
    let pause = SignedDuration::try_from(pause(failures));
    later(now, pause.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

    fn entry() -> LedgerEntry {
        LedgerEntry::of(&request(json!({"target": {"podName": "web"}})))
    }

    #[test]
    fn store_failed_pauses_longer_each_time() {
        let mut entry = entry();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            entry.record(&[Done::StoreAway("away".into())], at(0));
            let trouble = entry.remembered().store_trouble.unwrap();
            pauses.push(trouble.retry_at.duration_since(at(0)));
        }
        let seconds = SignedDuration::from_secs;
        assert!(
            pauses[0] <= seconds(1) && pauses[6] >= seconds(15),
            "{pauses:?}"
        );
        entry.record(&[Done::Listed], at(0));
        assert_eq!(entry.remembered().store_trouble, None);
    }

    #[test]
    fn queued_changes_every_half_minute() {
        let mut entry = entry();
        let mut told = |place, second| {
            let queued = entry.queued(place, 9, at(second));
            (queued.place, queued.since)
        };
        assert_eq!(told(5, 0), (5, at(0)));
        assert_eq!(told(4, 29), (5, at(0)));
        assert_eq!(told(3, 30), (3, at(0)));
        assert_eq!(told(2, 59), (3, at(0)));
    }

    #[test]
    fn blindness_lasts_until_something_was_observed() {
        let mut entry = entry();
        let since = |entry: &mut LedgerEntry, second| {
            entry.observation_failed("no".into(), at(second)).since
        };
        assert_eq!((since(&mut entry, 1), since(&mut entry, 9)), (at(1), at(1)));
        entry.observed();
        assert_eq!(since(&mut entry, 11), at(11));
    }
}
