//! What the operator remembers of the samplers of one request, in addition to what the pods' watch
//! shows.
//!
//! Invariant: all times are by the operator's own clock, from when it first saw something: a node's
//! clock can be minutes ahead or behind.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use phpprof_crds::TargetStatus;

use crate::lifecycle::effect::Injected;
use crate::lifecycle::observed::{PodView, ReceiptRead, SamplerState, SamplerView};

/// A pod's uid, and the name of a sampler in it.
type SamplerPlace = (String, String);

#[derive(Debug, Default)]
pub struct Samplers {
    /// Samplers that the pod watch may not show yet, by the uid of the pod.
    injected: HashMap<String, Injected>,
    /// When the operator first saw that a sampler had ended.
    ended: HashMap<SamplerPlace, Timestamp>,
    /// When the operator first saw that a sampler runs.
    running: HashMap<SamplerPlace, Timestamp>,
    /// Uids of pods whose samplers were told to stop.
    stopped: BTreeSet<String>,
    /// The receipts of runs as last read from the store, by the uid of the pod.
    receipts: BTreeMap<String, ReceiptRead>,
}

fn place(pod: &PodView, name: &str) -> SamplerPlace {
    (pod.uid.clone(), name.to_owned())
}

impl Samplers {
    pub fn inject(&mut self, injected: &Injected) {
        let pod_uid = injected.pod_uid.clone();
        self.injected.insert(pod_uid, injected.clone());
    }

    pub fn stop(&mut self, pod_uid: &str) {
        self.stopped.insert(pod_uid.to_owned());
    }

    pub fn read(&mut self, pod_uid: &str, read: ReceiptRead) {
        self.receipts.insert(pod_uid.to_owned(), read);
    }

    pub fn stopped(&self) -> &BTreeSet<String> {
        &self.stopped
    }

    pub fn receipts(&self) -> &BTreeMap<String, ReceiptRead> {
        &self.receipts
    }

    /// Adds a sampler that a late watch does not show yet, so that it is not injected again, and
    /// when each one was seen to have ended.
    pub fn complete(&mut self, pod: &mut PodView, now: Timestamp) {
        if let Some(injected) = self.injected.get(&pod.uid) {
            let state = SamplerState::Waiting {
                reason: String::new(),
                message: String::new(),
            };
            let sampler = SamplerView {
                kind: injected.kind.clone(),
                state,
            };
            let name = injected.name.clone();
            pod.samplers.entry(name).or_insert(sampler);
        }
        for (name, sampler) in &mut pod.samplers {
            if let SamplerState::Ended { at, .. } = &mut sampler.state {
                let place = (pod.uid.clone(), name.clone());
                *at = Some(*self.ended.entry(place).or_insert(now));
            }
        }
    }

    /// Since when nothing was heard from the target's sampler, if it runs: from when the relay
    /// heard of it last, or it was first seen to run.
    pub fn silent_since(
        &mut self,
        target: &TargetStatus,
        pod: &PodView,
        heard: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let name = &target.ephemeral_container_name;
        let sampler = pod.samplers.get(name)?;
        if sampler.state != SamplerState::Running {
            return None;
        }
        let running = *self.running.entry(place(pod, name)).or_insert(now);
        Some(heard.unwrap_or(running).max(running))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::observed::SamplerKind;
    use crate::testing::{at, pod};

    const NAME: &str = "phpprof-1";

    fn injected() -> Injected {
        Injected {
            pod_uid: "uid-of-web".into(),
            name: NAME.into(),
            kind: SamplerKind::Resident {
                container_id: "1".into(),
            },
        }
    }

    fn with(state: SamplerState) -> PodView {
        let mut pod = pod("web");
        let kind = injected().kind;
        pod.samplers
            .insert(NAME.into(), SamplerView { kind, state });
        pod
    }

    fn ended() -> SamplerState {
        SamplerState::Ended {
            exit_code: 0,
            message: String::new(),
            at: Some(at(-300)),
        }
    }

    #[test]
    fn complete_adds_a_sampler_missing_from_the_watch() {
        let mut samplers = Samplers::default();
        let mut alone = pod("web");
        samplers.complete(&mut alone, at(0));
        assert_eq!(alone.samplers.len(), 0);
        samplers.inject(&injected());
        samplers.complete(&mut alone, at(0));
        assert_eq!(alone.samplers[NAME].kind, injected().kind);
        // What the watch shows is newer.
        let mut shown = with(SamplerState::Running);
        samplers.complete(&mut shown, at(0));
        assert_eq!(shown, with(SamplerState::Running));
    }

    #[test]
    fn complete_says_when_an_end_was_seen_first() {
        let mut samplers = Samplers::default();
        for now in [5, 9] {
            let mut pod = with(ended());
            samplers.complete(&mut pod, at(now));
            let SamplerState::Ended { at: seen, .. } = &pod.samplers[NAME].state else {
                panic!("{pod:?}");
            };
            assert_eq!(*seen, Some(at(5)));
        }
    }

    #[test]
    fn silent_since_is_a_running_samplers_last_sign() {
        let mut samplers = Samplers::default();
        let target = TargetStatus {
            ephemeral_container_name: NAME.into(),
            ..TargetStatus::default()
        };
        let running = with(SamplerState::Running);
        let mut since = |pod: &PodView, heard: Option<i64>, now| {
            samplers.silent_since(&target, pod, heard.map(at), at(now))
        };
        assert_eq!(since(&running, None, 5), Some(at(5)));
        assert_eq!(since(&running, None, 9), Some(at(5)));
        // It was heard before it was seen to run, or afterwards.
        assert_eq!(since(&running, Some(4), 9), Some(at(5)));
        assert_eq!(since(&running, Some(7), 9), Some(at(7)));
        assert_eq!(since(&with(ended()), Some(7), 9), None);
        assert_eq!(since(&pod("web"), None, 9), None);
    }
}
