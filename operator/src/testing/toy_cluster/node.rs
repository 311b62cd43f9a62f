//! What happens on the toy's nodes: containers start and end, samplers store their samples, and
//! resident ones ask for runs.

use super::{RECEIPT, Toy};
use crate::lifecycle::observed::{SamplerKind, SamplerState, SamplerView};
use crate::lifecycle::runs::{AskingSampler, runs};
use crate::sampler::object_keys::receipt_key;

impl Toy {
    pub(super) fn checkpoint(&mut self, uid: &str) {
        let pod = self.pods.last().and_then(|pods| pods.get(uid));
        let runs = pod.is_some_and(|pod| {
            let mut samplers = pod.samplers.values();
            samplers.any(|sampler| sampler.state == SamplerState::Running)
        });
        let Some((keys, used)) = self.granted.get_mut(uid) else {
            return;
        };
        let is_last = *used + 1 == keys.len();
        if runs && !is_last && !self.store_away {
            self.store.insert(keys[*used].clone());
            *used += 1;
        }
    }

    /// The resident sampler of a pod asks, and executes the runs that it is offered.
    fn ask(&mut self, uid: &str, fails: bool) {
        let pod = self.pods.last().and_then(|pods| pods.get(uid));
        let samplers = pod.into_iter().flat_map(|pod| &pod.samplers);
        let stays = |(_, sampler): &(&String, &SamplerView)| {
            let is_resident = matches!(sampler.kind, SamplerKind::Resident { .. });
            is_resident && sampler.state == SamplerState::Running
        };
        let Some((name, _)) = samplers.into_iter().find(stays) else {
            return;
        };
        let asker = AskingSampler {
            pod_uid: uid,
            ephemeral_container_name: name,
        };
        let newest = self.requests.last().into_iter();
        for (_, run) in runs(newest, asker, &self.limits) {
            if self.store_away {
                continue;
            }
            let receipt = receipt_key(&run.object_key);
            if fails {
                let failed = r#"{"reason":"NoPhpFound"}"#.to_owned();
                self.receipts.entry(receipt).or_insert(failed);
            } else if !self.receipts.contains_key(&receipt) {
                self.store.insert(run.object_key);
                self.receipts.insert(receipt, RECEIPT.to_owned());
            }
        }
    }

    pub(super) fn kubelet(&mut self, uid: &str, fails: bool) {
        self.ask(uid, fails);
        let (now, away) = (self.now, self.store_away);
        let whole = |(keys, _): &(Vec<String>, usize)| keys.last().cloned();
        let stored = self.granted.get(uid).and_then(whole).unwrap_or_default();
        let mut upload = false;
        self.change_pods(|pods| {
            for sampler in pods
                .get_mut(uid)
                .into_iter()
                .flat_map(|pod| pod.samplers.values_mut())
            {
                let ended = |message: &str| SamplerState::Ended {
                    exit_code: 0,
                    message: message.into(),
                    at: Some(now),
                };
                let stays = matches!(sampler.kind, SamplerKind::Resident { .. });
                sampler.state = match &sampler.state {
                    SamplerState::Running if stays => SamplerState::Running,
                    SamplerState::Waiting { .. } => SamplerState::Running,
                    SamplerState::Running if fails => ended(r#"{"reason":"NoPhpFound"}"#),
                    SamplerState::Running if away => SamplerState::Running,
                    SamplerState::Running => {
                        upload = true;
                        ended(RECEIPT)
                    }
                    ended => ended.clone(),
                };
            }
        });
        if upload {
            self.store.insert(stored);
        }
    }
}
