//! The one node of a toy cluster: it says of each pod on it that it runs, starts the samplers that
//! are added, and ends what is deleted.
//!
//! Invariant: one task has a pod's state and writes its status; each sampler is started once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::sync::{mpsc, watch};

use super::control_plane::ControlPlane;
use super::operator::{self, OperatorPod};
use super::release::ToyRelease;
use super::sampler::{self, Canned, SamplerEnd};

/// The node's name.
pub const NAME: &str = "toy";
/// The time from the patch of the pod until a sampler runs.
const START: Duration = Duration::from_millis(200);
/// The name by which samplers know the relay, which no server here resolves.
const RELAY: &str = "phpprof-operator.phpprof-system.svc";

/// What the pods' tasks share.
struct Shared {
    plane: ControlPlane,
    program: PathBuf,
    logs: PathBuf,
    /// The next pod's address: the number of the last two bytes.
    next: AtomicU16,
    /// The relays of the operators that are ready, by their pods.
    relays: Mutex<BTreeMap<String, Ipv4Addr>>,
}

/// Registers the node, and plays its kubelet until the watch ends.
pub async fn play(plane: ControlPlane, program: &Path, logs: &Path) -> Result<()> {
    register(&plane).await?;
    let pods: Api<Pod> = Api::all(plane.client.clone());
    let here = watcher::Config::default().fields(&format!("spec.nodeName={NAME}"));
    let shared = Arc::new(Shared {
        plane,
        program: program.to_owned(),
        logs: logs.to_owned(),
        next: AtomicU16::new(256),
        relays: Mutex::default(),
    });
    let mut tasks: BTreeMap<String, watch::Sender<Arc<Pod>>> = BTreeMap::new();
    let mut changes = watcher(pods, here).default_backoff().boxed();
    while let Some(change) = changes.try_next().await.transpose() {
        match change {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                let (uid, pod) = (pod.uid().unwrap_or_default(), Arc::new(pod));
                match tasks.get(&uid) {
                    // Its task may have ended; then the pod is deleted.
                    Some(task) => drop(task.send(pod)),
                    None => drop(tasks.insert(uid, begin(&shared, pod))),
                }
            }
            Ok(watcher::Event::Delete(pod)) => drop(tasks.remove(&pod.uid().unwrap_or_default())),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
            // The watch continues by itself.
            Err(error) => eprintln!("toy: watching pods: {error}"),
        }
    }
    Ok(())
}

async fn register(plane: &ControlPlane) -> Result<()> {
    let nodes: Api<Node> = Api::all(plane.client.clone());
    let size =
        json!({"cpu": "64", "memory": "256Gi", "pods": "5000", "ephemeral-storage": "100Gi"});
    let node = json!({"metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}}});
    nodes
        .create(&PostParams::default(), &serde_json::from_value(node)?)
        .await?;
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": Timestamp::now(), "lastTransitionTime": Timestamp::now()});
    let status = json!({"status": {"capacity": size, "allocatable": size, "conditions": [ready]}});
    nodes
        .patch_status(NAME, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

fn begin(shared: &Arc<Shared>, pod: Arc<Pod>) -> watch::Sender<Arc<Pod>> {
    let (sender, receiver) = watch::channel(pod);
    let shared = shared.clone();
    tokio::spawn(async move {
        let name = receiver.borrow().name_any();
        if let Err(error) = Life::new(&shared, receiver).run().await {
            eprintln!("toy: pod {name}: {error:#}");
        }
    });
    sender
}

/// A pod's life.
struct Life {
    shared: Arc<Shared>,
    api: Api<Pod>,
    pod: watch::Receiver<Arc<Pod>>,
    address: Ipv4Addr,
    started: Timestamp,
    /// The states of the samplers, in the order of their start.
    samplers: Vec<(EphemeralContainer, Value)>,
    restarts: u32,
}

/// What a sampler has become.
type SamplerNews = (String, Value);

impl Life {
    fn new(shared: &Arc<Shared>, pod: watch::Receiver<Arc<Pod>>) -> Self {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let [high, low] = number.to_be_bytes();
        let namespace = pod.borrow().namespace().unwrap_or_default();
        Self {
            shared: shared.clone(),
            api: Api::namespaced(shared.plane.client.clone(), &namespace),
            pod,
            address: Ipv4Addr::new(10, 206, high, low),
            started: Timestamp::now(),
            samplers: Vec::new(),
            restarts: 0,
        }
    }

    fn now(&self) -> Arc<Pod> {
        self.pod.borrow().clone()
    }

    async fn run(mut self) -> Result<()> {
        let pod = self.now();
        let operator = if operator::is_operator(&pod) {
            let (program, logs) = (self.shared.program.clone(), self.shared.logs.clone());
            Some(OperatorPod::of(&self.shared.plane, program, &logs, &pod, self.address).await?)
        } else {
            None
        };
        let mut child = operator.as_ref().map(OperatorPod::begin).transpose()?;
        self.report(operator.is_none(), child.as_ref()).await?;
        let (news, mut heard) = mpsc::unbounded_channel::<SamplerNews>();
        let mut waits = operator.is_some();
        while self.now().metadata.deletion_timestamp.is_none() {
            self.add_samplers(&news);
            tokio::select! {
                changed = self.pod.changed() => {
                    if changed.is_err() { break; }
                }
                Some((name, state)) = heard.recv() => {
                    if let Some((_, old)) = self.samplers.iter_mut().find(|(container, _)| container.name == name) {
                        *old = state;
                    }
                    self.report(!waits, child.as_ref()).await?;
                }
                () = ready(operator.as_ref(), waits) => {
                    waits = false;
                    self.relay(true);
                    self.report(true, child.as_ref()).await?;
                }
                () = ended(&mut child) => {
                    self.relay(false);
                    self.restarts += 1;
                    waits = true;
                    self.report(false, None).await?;
                    OperatorPod::pause().await;
                    child = operator.as_ref().map(OperatorPod::begin).transpose()?;
                    self.report(false, child.as_ref()).await?;
                }
            }
        }
        self.relay(false);
        if let Some(child) = child {
            operator::end(child, Duration::from_secs(20)).await?;
        }
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: pod.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        // It may be gone already.
        let _ = self.api.delete(&pod.name_any(), &params).await;
        Ok(())
    }

    /// Says whether samplers reach the relay of this pod, if it is one of the operator.
    fn relay(&self, is_ready: bool) {
        let pod = self.now();
        if !operator::is_operator(&pod) {
            return;
        }
        let relays = self.shared.relays.lock();
        let mut relays = relays.unwrap_or_else(PoisonError::into_inner);
        if is_ready {
            relays.insert(pod.name_any(), self.address);
        } else {
            relays.remove(&pod.name_any());
        }
    }

    fn add_samplers(&mut self, news: &mpsc::UnboundedSender<SamplerNews>) {
        let pod = self.now();
        let all = pod
            .spec
            .iter()
            .flat_map(|spec| spec.ephemeral_containers.iter().flatten());
        for container in all.filter(|container| container.name.starts_with("phpprof-")) {
            if self
                .samplers
                .iter()
                .any(|(known, _)| known.name == container.name)
            {
                continue;
            }
            self.samplers.push((
                container.clone(),
                json!({"waiting": {"reason": "ContainerCreating"}}),
            ));
            let (shared, news, container, address) = (
                self.shared.clone(),
                news.clone(),
                container.clone(),
                self.address,
            );
            let release = ToyRelease::of(&pod);
            tokio::spawn(async move {
                let name = container.name.clone();
                let ended = sample(&shared, &news, container, address, release).await;
                let ended = ended.unwrap_or_else(|error| SamplerEnd {
                    exit_code: 1,
                    message: error.to_string(),
                });
                let now = Timestamp::now();
                let state = json!({"exitCode": ended.exit_code, "message": ended.message, "startedAt": now, "finishedAt": now, "reason": "Completed"});
                // Nobody hears it where the pod is gone.
                let _ = news.send((name, json!({"terminated": state})));
            });
        }
    }

    /// Writes the whole status.
    async fn report(&self, is_ready: bool, child: Option<&Child>) -> Result<()> {
        let pod = self.now();
        let spec = pod.spec.as_ref().context("a pod without spec")?;
        let id = child
            .and_then(Child::id)
            .map_or_else(|| "0".to_owned(), |pid| pid.to_string());
        let running = json!({"running": {"startedAt": self.started}});
        let container = |container: &Container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "sha256:1", "containerID": format!("toy://{id}"),
                "ready": is_ready, "started": true, "restartCount": self.restarts, "state": running,
            })
        };
        let sampler = |(container, state): &(EphemeralContainer, Value)| {
            json!({
                "name": container.name, "image": container.image, "imageID": "sha256:1", "containerID": "toy://1",
                "ready": false, "restartCount": 0, "state": state,
            })
        };
        let is_true = |kind: &str, holds: bool| {
            let status = if holds { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastTransitionTime": self.started})
        };
        let status = json!({
            "phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": "10.206.0.1", "startTime": self.started,
            "conditions": [is_true("PodScheduled", true), is_true("Initialized", true), is_true("ContainersReady", is_ready), is_true("Ready", is_ready)],
            "containerStatuses": spec.containers.iter().map(container).collect::<Vec<_>>(),
            "initContainerStatuses": spec.init_containers.iter().flatten().map(container).collect::<Vec<_>>(),
            "ephemeralContainerStatuses": self.samplers.iter().map(sampler).collect::<Vec<_>>(),
        });
        let patch = Patch::Merge(json!({"status": status}));
        match self
            .api
            .patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answered => Ok(answered.map(drop)?),
        }
    }
}

/// Answers once the operator of a pod is ready, if that is waited for.
async fn ready(operator: Option<&OperatorPod>, waits: bool) {
    match operator {
        Some(operator) if waits => operator.becomes_ready().await,
        _ => std::future::pending().await,
    }
}

async fn ended(child: &mut Option<Child>) {
    match child {
        Some(child) => drop(child.wait().await),
        None => std::future::pending().await,
    }
}

/// A sampler from its start to its end. Its calls come from its pod's address, and go to an
/// operator that is ready.
async fn sample(
    shared: &Shared,
    news: &mpsc::UnboundedSender<SamplerNews>,
    container: EphemeralContainer,
    address: Ipv4Addr,
    release: Option<ToyRelease>,
) -> Result<SamplerEnd> {
    tokio::time::sleep(START).await;
    let running = json!({"running": {"startedAt": Timestamp::now()}});
    // Nobody hears it where the pod is gone.
    let _ = news.send((container.name.clone(), running));
    let client = || {
        let relays = shared.relays.lock().unwrap_or_else(PoisonError::into_inner);
        let relay = relays
            .values()
            .next()
            .copied()
            .unwrap_or(Ipv4Addr::LOCALHOST);
        let to = SocketAddr::from((relay, operator::PORT));
        Ok(sampler::client()
            .local_address(Some(address.into()))
            .resolve(RELAY, to)
            .build()?)
    };
    let seconds = sampler::duration(&container)?.as_secs();
    let canned = match release {
        Some(release) => Canned::of_release(seconds, release)?,
        None => Canned::of(seconds),
    };
    sampler::sample(client, &container, &canned).await
}
