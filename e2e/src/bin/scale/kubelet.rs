//! Simulates the kubelets of all nodes: they start the samplers that are added to pods, and report
//! how these end.
//!
//! Invariant: each sampler is started once, and a pod's status has all samplers of the pod.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{EphemeralContainer, Pod};
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::workloads::{DOOMED, PHP, Workloads};
use e2e::toy::sampler::{self, Canned, SamplerEnd};

/// The time from the patch of the pod until the container runs.
const START: Duration = Duration::from_millis(300);
/// The number of samplers that run at the same time.
const PLACES: usize = 400;

pub struct Kubelets {
    client: Client,
    relay: reqwest::Client,
    workloads: Arc<Workloads>,
    canned: Canned,
    places: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The samplers' statuses, by the uid of the pod.
    pods: HashMap<String, Arc<tokio::sync::Mutex<BTreeMap<String, Value>>>>,
    known: HashMap<String, Vec<String>>,
    /// How many samplers of each request were started, and when the last one was.
    started: HashMap<String, (usize, Instant)>,
    faults: Vec<String>,
}

impl Kubelets {
    /// Begins to watch.
    pub fn start(client: Client, workloads: Arc<Workloads>, canned: Canned) -> Result<Arc<Self>> {
        let all = Arc::new(Self {
            client,
            relay: sampler::client().build()?,
            workloads,
            canned,
            places: Semaphore::new(PLACES),
            state: Mutex::default(),
        });
        tokio::spawn(all.clone().watch());
        Ok(all)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many samplers of a request were started, and when the last one was.
    pub fn started(&self, request_uid: &str) -> Option<(usize, Instant)> {
        let name = format!("phpprof-{}-0", request_uid.get(..8).unwrap_or_default());
        self.state().started.get(&name).copied()
    }

    /// Errors of the simulation itself, not of the operator.
    pub fn faults(&self) -> Vec<String> {
        self.state().faults.clone()
    }

    async fn watch(self: Arc<Self>) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let ours = watcher::Config::default().labels(PHP);
        let mut changes = watcher(pods, ours)
            .default_backoff()
            .applied_objects()
            .boxed();
        loop {
            match changes.try_next().await {
                Ok(Some(pod)) => self.see(&Arc::new(pod)),
                Ok(None) => return,
                // The watch continues by itself.
                Err(error) => self.state().faults.push(format!("watching pods: {error}")),
            }
        }
    }

    fn see(self: &Arc<Self>, pod: &Arc<Pod>) {
        let containers = pod
            .spec
            .iter()
            .flat_map(|spec| spec.ephemeral_containers.iter().flatten());
        for container in containers.filter(|container| container.name.starts_with("phpprof-")) {
            let mut state = self.state();
            let known = state
                .known
                .entry(pod.uid().unwrap_or_default())
                .or_default();
            if known.contains(&container.name) {
                continue;
            }
            known.push(container.name.clone());
            drop(state);
            let (all, pod, container) = (self.clone(), pod.clone(), container.clone());
            tokio::spawn(async move {
                if let Err(error) = all.run(&pod, &container).await {
                    all.state()
                        .faults
                        .push(format!("pod {}: {error:#}", pod.name_any()));
                }
            });
        }
    }

    /// Runs a container from its start to its end.
    async fn run(&self, pod: &Pod, container: &EphemeralContainer) -> Result<()> {
        let _place = self.places.acquire().await?;
        tokio::time::sleep(START).await;
        let running = json!({"running": {"startedAt": jiff::Timestamp::now()}});
        self.say(pod, container, running).await?;
        {
            let mut state = self.state();
            let started = state
                .started
                .entry(container.name.clone())
                .or_insert((0, Instant::now()));
            *started = (started.0 + 1, Instant::now());
        }
        if pod.labels().contains_key(DOOMED) {
            tokio::time::sleep(sampler::duration(container)? / 2).await;
            return self.workloads.replace(pod).await;
        }
        let SamplerEnd { exit_code, message } =
            sampler::sample(|| Ok(self.relay.clone()), container, &self.canned).await?;
        let now = jiff::Timestamp::now();
        let ended = json!({"exitCode": exit_code, "message": message, "startedAt": now, "finishedAt": now, "reason": "Completed"});
        self.say(pod, container, json!({"terminated": ended})).await
    }

    /// Writes the state of one sampler next to those of the others. It does nothing for a pod that
    /// is deleted.
    async fn say(&self, pod: &Pod, container: &EphemeralContainer, state: Value) -> Result<()> {
        let of_pod = self
            .state()
            .pods
            .entry(pod.uid().unwrap_or_default())
            .or_default()
            .clone();
        let mut statuses = of_pod.lock().await;
        let status = json!({
            "name": container.name, "image": container.image, "imageID": "sha256:1", "containerID": "containerd://1",
            "ready": false, "restartCount": 0, "state": state,
        });
        statuses.insert(container.name.clone(), status);
        let all: Vec<&Value> = statuses.values().collect();
        let patch = Patch::Merge(json!({"status": {"ephemeralContainerStatuses": all}}));
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        match pods
            .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answered => Ok(answered.map(|_| ())?),
        }
    }
}
