//! `decide` driven on a toy cluster with lost, late and repeated effects, stale reads and restarts.
//!
//! The toy models the real parts in a few lines: pods that admit one container per name, a kubelet,
//! a store, and a status with a resource version. Whatever happens, no pod gets a second sampler, a
//! request ends, and it claims no profile that the store does not have.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use phpprof_crds::{
    ProfileRequest, ProfileResult, REQUESTED_BY, TargetReason, TargetState, TargetStatus,
};
use phpprof_decide::limits::{AdminLimits, later};
use proptest::prelude::*;
use serde_json::json;

use crate::lifecycle::decision::{Decision, decide};
use crate::lifecycle::effect::{Done, Effect, Injected, Job, record};
use crate::lifecycle::observed::{
    ObservedCluster, PodView, ReceiptRead, SamplerState, SamplerView, StoreTrouble,
};
use crate::sampler::injection::{Injection, Task};
use crate::sampler::receipt::{ShortReceipt, UploadReceipt};
use crate::testing::{admission, asks, at, pod, request};
use happening::{Happening, happening};

mod happening;
mod node;

const PODS: usize = 3;
const RECEIPT: &str = r#"{"reason":"Uploaded","samples":1,"size":5,"sha256":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}"#;

struct Toy {
    now: Timestamp,
    /// Newest last. The index is the resource version.
    requests: Vec<ProfileRequest>,
    /// Newest last.
    pods: Vec<BTreeMap<String, PodView>>,
    /// Every container that was ever added, by pod.
    added: BTreeMap<String, Vec<String>>,
    /// Keys.
    store: BTreeSet<String>,
    /// The granted keys of each pod, the whole profile's last, and how many of them were used.
    granted: BTreeMap<String, (Vec<String>, usize)>,
    /// Receipts of resident samplers' runs, by key.
    receipts: BTreeMap<String, String>,
    store_away: bool,
    trouble: Option<StoreTrouble>,
    /// By pod.
    read: BTreeMap<String, ReceiptRead>,
    limits: AdminLimits,
}

fn receipt() -> UploadReceipt {
    match ShortReceipt::parse(RECEIPT) {
        Some(ShortReceipt::Uploaded(receipt)) => receipt,
        other => panic!("{other:?}"),
    }
}

impl Toy {
    fn new(duration_seconds: i32) -> Self {
        Toy::with(duration_seconds, false)
    }

    fn with(duration_seconds: i32, resident: bool) -> Self {
        let mode = if resident { "Resident" } else { "Once" };
        let spec = json!({
            "target": {"selector": {"matchLabels": {"app": "web"}}},
            "durationSeconds": duration_seconds, "samplerMode": mode,
        });
        let mut request = request(spec);
        request.metadata.annotations = Some([(REQUESTED_BY.into(), "schedules".into())].into());
        let pods = (0..PODS)
            .map(|n| pod(&format!("p{n}")))
            .map(|pod| (pod.uid.clone(), pod))
            .collect();
        Toy {
            now: at(0),
            requests: vec![request],
            pods: vec![pods],
            added: BTreeMap::new(),
            store: BTreeSet::new(),
            granted: BTreeMap::new(),
            receipts: BTreeMap::new(),
            store_away: false,
            trouble: None,
            read: BTreeMap::new(),
            limits: AdminLimits {
                resident_users: ["schedules".to_owned()].into(),
                ..AdminLimits::default()
            },
        }
    }

    fn newest(&self) -> &ProfileRequest {
        self.requests.last().expect("there is one from the start")
    }

    fn change_pods(&mut self, change: impl FnOnce(&mut BTreeMap<String, PodView>)) {
        let mut pods = self.pods.last().cloned().unwrap_or_default();
        change(&mut pods);
        self.pods.push(pods);
    }

    fn happen(&mut self, happening: &Happening) {
        match happening {
            Happening::Look {
                pods_behind,
                status_behind,
                dies_after,
            } => {
                self.look(
                    *pods_behind,
                    usize::from(*status_behind),
                    dies_after.unwrap_or(usize::MAX),
                );
            }
            Happening::Kubelet { pod, fails } => self.kubelet(&format!("uid-of-p{pod}"), *fails),
            Happening::Checkpoint { pod } => self.checkpoint(&format!("uid-of-p{pod}")),
            Happening::RestartTarget { pod } => {
                let version = self.pods.len();
                self.change_pods(|pods| {
                    if let Some(pod) = pods.get_mut(&format!("uid-of-p{pod}")) {
                        pod.containers[0].id = format!("containerd://{version}");
                        for sampler in pod
                            .samplers
                            .values_mut()
                            .filter(|sampler| sampler.state == SamplerState::Running)
                        {
                            sampler.state = SamplerState::Ended {
                                exit_code: 137,
                                message: String::new(),
                                at: None,
                            };
                        }
                    }
                });
            }
            Happening::DeletePod { pod } => self.change_pods(|pods| {
                pods.remove(&format!("uid-of-p{pod}"));
            }),
            Happening::Pass { seconds } => {
                self.now = later(self.now, SignedDuration::from_secs(*seconds))
            }
            Happening::Store { away } => self.store_away = *away,
        }
    }

    /// One reconciliation of the operator. It may crash before any of its effects, or before it
    /// writes their results.
    fn look(&mut self, pods_behind: usize, status_behind: usize, dies_after: usize) {
        let version = self.requests.len() - 1 - status_behind.min(self.requests.len() - 1);
        let request = self.requests[version].clone();
        let pods = self.pods[self.pods.len() - 1 - pods_behind.min(self.pods.len() - 1)].clone();
        let observed = self.observe(&request, pods);
        let Decision {
            status,
            effects,
            jobs,
            ..
        } = decide(self.now, &request, &observed, &self.limits);
        let Some(request) = self.persist(version, request, status) else {
            return;
        };
        let mut done = Vec::new();
        for effect in effects.iter().take(dies_after) {
            done.extend(self.execute(effect));
        }
        for job in jobs.iter().take(dies_after.saturating_sub(effects.len())) {
            done.extend(self.work(job));
        }
        if effects.len() + jobs.len() >= dies_after {
            (self.trouble, self.read) = (None, BTreeMap::new());
            return;
        }
        let mut status = request.status.clone().unwrap_or_default();
        record(&mut status, &done, Some(1), self.now);
        self.persist(self.requests.len() - 1, request, status);
    }

    fn observe(
        &self,
        request: &ProfileRequest,
        pods: BTreeMap<String, PodView>,
    ) -> ObservedCluster {
        let status = request.status.clone().unwrap_or_default();
        if status.start_time.is_none() {
            return asks(admission(pods.into_values().collect()));
        }
        ObservedCluster {
            admission: None,
            pods,
            store_trouble: self.trouble.clone(),
            receipts: self.read.clone(),
            ..ObservedCluster::default()
        }
    }

    /// Writes only over the version that was read, as the API server does.
    fn persist(
        &mut self,
        version: usize,
        mut request: ProfileRequest,
        status: phpprof_crds::ProfileRequestStatus,
    ) -> Option<ProfileRequest> {
        if request.status.clone().unwrap_or_default() == status {
            return Some(request);
        }
        if version != self.requests.len() - 1 {
            return None;
        }
        request.status = Some(status);
        self.requests.push(request.clone());
        Some(request)
    }

    fn execute(&mut self, effect: &Effect) -> Option<Done> {
        match effect {
            Effect::Inject(injection) => Some(self.inject(injection)),
            Effect::Cancel(_) | Effect::DeleteRequest => None,
        }
    }

    fn work(&mut self, job: &Job) -> Option<Done> {
        if *job == Job::Export {
            return Some(Done::Exported);
        }
        if self.store_away {
            let retry_at = later(self.now, SignedDuration::from_secs(1));
            self.trouble = Some(StoreTrouble {
                message: "away".into(),
                retry_at,
            });
            return Some(Done::StoreAway("away".into()));
        }
        self.trouble = None;
        match job {
            Job::ReadReceipt(receipt) => {
                let read = ReceiptRead {
                    message: self.receipts.get(&receipt.key).cloned(),
                    at: self.now,
                };
                self.read.insert(receipt.pod_uid.clone(), read);
                None
            }
            Job::Verify(upload) => {
                let pod_uid = upload.pod_uid.clone();
                Some(if self.store.contains(&upload.key) {
                    Done::Verified {
                        pod_uid,
                        receipt: upload.receipt.clone(),
                        full: Box::default(),
                        cut_short: None,
                    }
                } else {
                    Done::TargetFailed {
                        pod_uid,
                        reason: TargetReason::ProfileMissing,
                        message: String::new(),
                    }
                })
            }
            Job::Recover(recovery) => {
                let (pod_uid, reason) = (recovery.pod_uid.clone(), recovery.reason);
                let message = recovery.message.clone();
                let found = recovery.keys.iter().find(|key| self.store.contains(*key));
                Some(match found.cloned() {
                    Some(key) => Done::Recovered {
                        pod_uid,
                        key,
                        receipt: receipt(),
                        full: Box::default(),
                        reason,
                        message,
                    },
                    None => Done::TargetFailed {
                        pod_uid,
                        reason,
                        message,
                    },
                })
            }
            Job::Merge => {
                self.store.insert("merged".into());
                Some(Done::Merged {
                    profile: ProfileResult {
                        url: "merged".into(),
                        samples: 1,
                        ..ProfileResult::default()
                    },
                    note: String::new(),
                    changed: Vec::new(),
                    links: Vec::new(),
                    cancelled: None,
                })
            }
            Job::List => {
                self.store.insert("manifest".into());
                Some(Done::Listed)
            }
            Job::Export => None,
        }
    }

    fn inject(&mut self, injection: &Injection) -> Done {
        let pod_uid = injection.subject.pod_uid.clone();
        let name = injection.ephemeral_container_name.clone();
        let Some(pod) = self.pods.last().and_then(|pods| pods.get(&pod_uid)) else {
            return Done::TargetFailed {
                pod_uid,
                reason: TargetReason::PodDeleted,
                message: String::new(),
            };
        };
        let added = Injected::of(injection);
        if pod.samplers.contains_key(&name) {
            return Done::Injected(added);
        }
        if let Task::Once(run) = &injection.task {
            let mut keys = run.checkpoint_keys.clone();
            keys.push(run.object_key.clone());
            keys.extend(run.requests_key.clone());
            self.granted.insert(pod_uid.clone(), (keys, 0));
        }
        let kind = added.kind.clone();
        self.added
            .entry(pod_uid.clone())
            .or_default()
            .push(name.clone());
        let state = SamplerState::Waiting {
            reason: String::new(),
            message: String::new(),
        };
        self.change_pods(|pods| {
            if let Some(pod) = pods.get_mut(&pod_uid) {
                pod.samplers.insert(name, SamplerView { kind, state });
            }
        });
        Done::Injected(added)
    }

    fn check(&self) {
        for (pod, containers) in &self.added {
            assert!(containers.len() <= 1, "{pod} has {containers:?}");
        }
        let status = self.newest().status.clone().unwrap_or_default();
        if status.profile.is_some() {
            assert!(
                self.store.contains("merged"),
                "the receipt claims a profile that does not exist"
            );
        }
        for target in status
            .targets
            .iter()
            .filter(|target| target.state == TargetState::Uploaded)
        {
            assert!(
                self.store.contains(&target.object_key),
                "{} is not stored",
                target.pod_name
            );
        }
        for pod in self.added.keys() {
            assert!(
                status.targets.iter().any(|target| target.pod_uid == *pod),
                "{pod} is not in the status"
            );
        }
    }

    /// No faults from here on: everything proceeds, and the operator sees the current state.
    fn settle(&mut self) {
        for _ in 0..60 {
            for pod in 0..PODS {
                self.kubelet(&format!("uid-of-p{pod}"), false);
            }
            self.look(0, 0, usize::MAX);
            self.now = later(self.now, SignedDuration::from_secs(30));
            self.check();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn a_request_ends_without_second_samplers(
        happenings in proptest::collection::vec(happening(), 0..60),
        store_away_at_the_end in any::<bool>(),
        is_long in any::<bool>(),
        is_resident in any::<bool>(),
    ) {
        let mut toy = Toy::with(if is_long { 300 } else { 30 }, is_resident);
        for happening in &happenings {
            toy.happen(happening);
            toy.check();
        }
        toy.store_away = store_away_at_the_end;
        toy.settle();
        let status = toy.newest().status.clone().unwrap_or_default();
        prop_assert!(status.completion_time.is_some(), "{:?}", status.conditions.first());
        prop_assert_eq!(status.profile.is_some(), status.conditions[0].type_ == "Complete");
        prop_assert_eq!(status.active, 0);
    }
}

#[test]
fn without_faults_a_request_completes_with_every_pod() {
    let mut toy = Toy::new(30);
    toy.settle();
    let status = toy.newest().status.clone().unwrap();
    assert_eq!((status.succeeded, status.failed), (3, 0));
    assert_eq!(status.conditions[0].reason, "Complete");
}

#[test]
fn a_request_of_resident_samplers_completes_every_pod() {
    let mut toy = Toy::with(30, true);
    toy.settle();
    let status = toy.newest().status.clone().unwrap();
    assert_eq!((status.succeeded, status.failed), (3, 0));
    assert!(status.targets.iter().all(|target| target.resident));
    assert_eq!(toy.receipts.len(), 3);
}

#[test]
fn jobs_that_end_early_leave_their_first_checkpoint() {
    let mut toy = Toy::new(30);
    (0..3).for_each(|_| toy.look(0, 0, usize::MAX));
    (0..PODS).for_each(|pod| toy.kubelet(&format!("uid-of-p{pod}"), false));
    toy.now = later(toy.now, SignedDuration::from_secs(7));
    for pod in 0..PODS {
        toy.checkpoint(&format!("uid-of-p{pod}"));
        toy.happen(&Happening::RestartTarget { pod });
    }
    toy.settle();
    let status = toy.newest().status.clone().unwrap();
    for target in &status.targets {
        assert_eq!(target.state, TargetState::Uploaded);
        assert_eq!(target.reason, Some(TargetReason::TargetRestarted));
        assert!(target.object_key.ends_with(".0.checkpoint-1.pb.gz"));
    }
    assert_eq!((status.succeeded, status.failed), (3, 0));
    assert_eq!(status.conditions[0].reason, "Complete");
}

#[test]
fn a_leaving_pods_newest_checkpoint_remains() {
    let mut toy = Toy::new(300);
    (0..3).for_each(|_| toy.look(0, 0, usize::MAX));
    (0..PODS).for_each(|pod| toy.kubelet(&format!("uid-of-p{pod}"), false));
    // One pod is deleted after two checkpoints, one without any.
    toy.now = later(toy.now, SignedDuration::from_secs(130));
    (0..2).for_each(|_| toy.checkpoint("uid-of-p0"));
    toy.happen(&Happening::DeletePod { pod: 0 });
    toy.happen(&Happening::RestartTarget { pod: 1 });
    toy.settle();
    let status = toy.newest().status.clone().unwrap();
    let end = |target: &TargetStatus| {
        let (_, file) = target.object_key.rsplit_once(".0.").unwrap();
        (target.reason, file.to_owned())
    };
    let ends: Vec<_> = status.targets.iter().map(end).collect();
    let expected = [
        (Some(TargetReason::TargetRestarted), "pb.gz".to_owned()),
        (Some(TargetReason::PodDeleted), "checkpoint-2.pb.gz".into()),
        (None, "pb.gz".into()),
    ];
    assert_eq!(ends, expected);
    assert_eq!(status.conditions[0].reason, "SomeTargetsFailed");
}
