//! What the operator remembers between two looks at a request; losing it costs a repeated call and nothing else.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::decide::limits::later;
use crate::decide::observed::{SamplerDeadlines, StoreTrouble};
use crate::sampler::injection::Injection;

/// The longest pause between two tries of the store.
const LONGEST_PAUSE: i64 = 30;

/// By the uid of the request.
#[derive(Default)]
pub struct Expectations(Mutex<HashMap<String, Remembered>>);

#[derive(Default)]
struct Remembered {
    /// By the uid of the pod.
    injected: HashMap<String, Injected>,
    trouble: Option<(u32, StoreTrouble)>,
    /// By the uid of the pod.
    stopped: BTreeSet<String>,
}

/// A sampler that the pod watch may not show yet.
#[derive(Clone)]
pub struct Injected {
    pub name: String,
    pub deadlines: SamplerDeadlines,
}

impl Expectations {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn injected(&self, request_uid: &str, pod_uid: &str) -> Option<Injected> {
        self.all().get(request_uid)?.injected.get(pod_uid).cloned()
    }

    pub fn remember_injection(&self, request_uid: &str, injection: &Injection) {
        let deadlines = SamplerDeadlines {
            not_after: injection.not_after,
            upload_until: injection.upload_until,
        };
        let injected = Injected {
            name: injection.ephemeral_container_name.clone(),
            deadlines,
        };
        let mut all = self.all();
        all.entry(request_uid.to_owned())
            .or_default()
            .injected
            .insert(injection.pod_uid.clone(), injected);
    }

    /// Pods whose samplers were told to stop.
    pub fn stopped(&self, request_uid: &str) -> BTreeSet<String> {
        let all = self.all();
        all.get(request_uid)
            .map(|remembered| remembered.stopped.clone())
            .unwrap_or_default()
    }

    pub fn remember_stop(&self, request_uid: &str, pod_uid: &str) {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        remembered.stopped.insert(pod_uid.to_owned());
    }

    pub fn trouble(&self, request_uid: &str) -> Option<StoreTrouble> {
        self.all()
            .get(request_uid)?
            .trouble
            .as_ref()
            .map(|(_, trouble)| trouble.clone())
    }

    /// The pause doubles with each failure in a row.
    pub fn store_failed(&self, request_uid: &str, message: String, now: Timestamp) {
        let mut all = self.all();
        let remembered = all.entry(request_uid.to_owned()).or_default();
        let failures = remembered
            .trouble
            .as_ref()
            .map_or(0, |(failures, _)| *failures)
            + 1;
        let pause = 2i64.saturating_pow(failures - 1).min(LONGEST_PAUSE);
        let retry_at = later(now, SignedDuration::from_secs(pause));
        remembered.trouble = Some((failures, StoreTrouble { message, retry_at }));
    }

    pub fn store_answered(&self, request_uid: &str) {
        if let Some(remembered) = self.all().get_mut(request_uid) {
            remembered.trouble = None;
        }
    }

    pub fn forget(&self, request_uid: &str) {
        self.all().remove(request_uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn the_store_is_tried_again_after_a_pause_that_doubles() {
        let memory = Expectations::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            memory.store_failed("u", "away".into(), at(0));
            pauses.push(memory.trouble("u").unwrap().retry_at.as_second() - at(0).as_second());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        memory.store_answered("u");
        assert_eq!(memory.trouble("u"), None);
    }
}
