//! What the operator remembers between two reconciliations of a request. Losing it costs a repeated call and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::backoff::pause;
use crate::decide::limits::later;
use crate::decide::observed::{
    Blind, Queued, ReceiptRead, SamplerDeadlines, SamplerKind, StoreTrouble,
};
use crate::sampler::injection::{Injection, Task, bare_id};

/// The shortest time between two updates of a request's place in its status.
const TOLD_EVERY: SignedDuration = SignedDuration::from_secs(30);

/// By the uid of the request.
#[derive(Default)]
pub struct Expectations(Mutex<HashMap<String, Remembered>>);

#[derive(Default)]
struct Remembered {
    /// By the uid of the pod.
    injected: HashMap<String, Injected>,
    trouble: Option<(u32, StoreTrouble)>,
    blind: Option<(u32, Blind)>,
    /// When the operator first saw a request that is not accepted yet.
    candidate: Option<Timestamp>,
    /// Its place in the queue, and when the status got it.
    queued: Option<(Queued, Timestamp)>,
    /// When the operator first saw that a sampler had ended, by the pod's uid and the sampler's name.
    ended: HashMap<(String, String), Timestamp>,
    /// When the operator first saw that a sampler runs, by the pod's uid and the sampler's name.
    running: HashMap<(String, String), Timestamp>,
    /// By the uid of the pod.
    stopped: BTreeSet<String>,
    /// By the uid of the pod.
    receipts: BTreeMap<String, ReceiptRead>,
}

/// A sampler that the pod watch may not show yet.
#[derive(Clone)]
pub(crate) struct Injected {
    pub name: String,
    pub kind: SamplerKind,
}

impl Expectations {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn injected(&self, request_uid: &str, pod_uid: &str) -> Option<Injected> {
        self.all().get(request_uid)?.injected.get(pod_uid).cloned()
    }

    pub(crate) fn remember_injection(&self, request_uid: &str, injection: &Injection) {
        let subject = &injection.subject;
        let kind = match &injection.task {
            Task::Once(run) => SamplerKind::Once(SamplerDeadlines {
                not_after: run.not_after,
                upload_until: run.upload_until,
            }),
            Task::Resident(_) => SamplerKind::Resident {
                container_id: bare_id(&subject.container_id).to_owned(),
            },
        };
        let injected = Injected {
            name: injection.ephemeral_container_name.clone(),
            kind,
        };
        let mut all = self.all();
        all.entry(request_uid.to_owned())
            .or_default()
            .injected
            .insert(subject.pod_uid.clone(), injected);
    }

    /// Pods whose samplers were told to stop.
    pub fn stopped(&self, request_uid: &str) -> BTreeSet<String> {
        let all = self.all();
        all.get(request_uid)
            .map(|remembered| remembered.stopped.clone())
            .unwrap_or_default()
    }

    pub(crate) fn remember_stop(&self, request_uid: &str, pod_uid: &str) {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        remembered.stopped.insert(pod_uid.to_owned());
    }

    /// The receipts of runs as last read from the store.
    pub fn receipts(&self, request_uid: &str) -> BTreeMap<String, ReceiptRead> {
        let all = self.all();
        all.get(request_uid)
            .map(|remembered| remembered.receipts.clone())
            .unwrap_or_default()
    }

    pub(crate) fn remember_receipt(&self, request_uid: &str, pod_uid: &str, read: ReceiptRead) {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        remembered.receipts.insert(pod_uid.to_owned(), read);
    }

    pub(crate) fn trouble(&self, request_uid: &str) -> Option<StoreTrouble> {
        self.all()
            .get(request_uid)?
            .trouble
            .as_ref()
            .map(|(_, trouble)| trouble.clone())
    }

    /// Records that the cluster could not be observed. Returns since when, and when to try again.
    pub fn observation_failed(&self, request_uid: &str, message: String, now: Timestamp) -> Blind {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        let (failures, since) = remembered
            .blind
            .as_ref()
            .map_or((1, now), |(failures, blind)| (failures + 1, blind.since));
        let blind = Blind {
            message,
            since,
            retry_at: after(now, failures),
        };
        remembered.blind = Some((failures, blind.clone()));
        blind
    }

    pub(crate) fn observed(&self, request_uid: &str) {
        if let Some(remembered) = self.all().get_mut(request_uid) {
            remembered.blind = None;
        }
    }

    /// When the operator first saw the request, which is not accepted yet.
    pub fn candidate(&self, request_uid: &str, now: Timestamp) -> Timestamp {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        *remembered.candidate.get_or_insert(now)
    }

    /// The request's place for its status. It changes at most every [`TOLD_EVERY`].
    pub fn queued(&self, request_uid: &str, place: usize, of: usize, now: Timestamp) -> Queued {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        let since = *remembered.candidate.get_or_insert(now);
        let current = Queued { place, of, since };
        match remembered.queued {
            Some((told, at)) if now < later(at, TOLD_EVERY) => told,
            _ => {
                remembered.queued = Some((current, now));
                current
            }
        }
    }

    /// When the operator first saw that a sampler of a pod had ended, by its own clock: a node's can be minutes ahead or behind.
    pub fn ended(&self, request_uid: &str, pod_uid: &str, name: &str, now: Timestamp) -> Timestamp {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        let sampler = (pod_uid.to_owned(), name.to_owned());
        let seen = remembered.ended.entry(sampler);
        *seen.or_insert(now)
    }

    /// When the operator first saw that a sampler of a pod runs, by its own clock.
    pub fn running(
        &self,
        request_uid: &str,
        pod_uid: &str,
        name: &str,
        now: Timestamp,
    ) -> Timestamp {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        let sampler = (pod_uid.to_owned(), name.to_owned());
        *remembered.running.entry(sampler).or_insert(now)
    }

    /// Records that the store failed. The pause grows with each failure in a row.
    pub fn store_failed(&self, request_uid: &str, message: String, now: Timestamp) {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        let failures = remembered
            .trouble
            .as_ref()
            .map_or(0, |(failures, _)| *failures)
            + 1;
        let retry_at = after(now, failures);
        remembered.trouble = Some((failures, StoreTrouble { message, retry_at }));
    }

    pub(crate) fn store_answered(&self, request_uid: &str) {
        if let Some(remembered) = self.all().get_mut(request_uid) {
            remembered.trouble = None;
        }
    }

    pub(crate) fn forget(&self, request_uid: &str) {
        self.all().remove(request_uid);
    }

    /// Forgets everything, because another replica handles requests now.
    pub fn forget_all(&self) {
        self.all().clear();
    }
}

fn after(now: Timestamp, failures: u32) -> Timestamp {
    later(
        now,
        SignedDuration::try_from(pause(failures)).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn the_store_is_tried_again_after_a_pause_that_grows() {
        let expectations = Expectations::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            expectations.store_failed("u", "away".into(), at(0));
            pauses.push(
                expectations
                    .trouble("u")
                    .unwrap()
                    .retry_at
                    .duration_since(at(0)),
            );
        }
        let seconds = SignedDuration::from_secs;
        assert!(
            pauses[0] <= seconds(1) && pauses[6] >= seconds(15),
            "{pauses:?}"
        );
        expectations.store_answered("u");
        assert_eq!(expectations.trouble("u"), None);
    }

    #[test]
    fn a_place_in_the_line_is_told_anew_every_half_a_minute() {
        let expectations = Expectations::default();
        let told = |place, second| {
            let queued = expectations.queued("u", place, 9, at(second));
            (queued.place, queued.since)
        };
        assert_eq!(told(5, 0), (5, at(0)));
        assert_eq!(told(4, 29), (5, at(0)));
        assert_eq!(told(3, 30), (3, at(0)));
        assert_eq!(told(2, 59), (3, at(0)));
    }

    #[test]
    fn an_end_is_when_it_was_seen_first_and_blindness_lasts_until_something_was_seen() {
        let expectations = Expectations::default();
        assert_eq!(expectations.ended("u", "p", "s", at(5)), at(5));
        assert_eq!(expectations.ended("u", "p", "s", at(9)), at(5));
        let since = |second| {
            expectations
                .observation_failed("u", "no".into(), at(second))
                .since
        };
        assert_eq!((since(1), since(9)), (at(1), at(1)));
        expectations.observed("u");
        assert_eq!(since(11), at(11));
    }
}
