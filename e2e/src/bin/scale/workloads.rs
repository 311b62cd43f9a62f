//! Nodes, namespaces, pods and old requests: what the operator finds when it starts.
//!
//! A workload is five pods with a label of their own. Invariant: no pod's name is used twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use phpprof_crds::ProfileRequest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub const PODS: usize = 5;
/// The container's name in every pod.
pub const PHP: &str = "php";
/// The label of a pod that is replaced while it is sampled.
pub const DOOMED: &str = "replaced-while-sampled";
/// The number of calls at the same time.
const AT_ONCE: usize = 16;

/// The number of each kind of object.
#[derive(Clone, Copy)]
pub struct Size {
    pub nodes: usize,
    pub namespaces: usize,
    pub workloads_per_namespace: usize,
}

/// A workload, by its number.
#[derive(Clone, Copy)]
pub struct Workload {
    pub namespace: usize,
    pub app: usize,
}

impl Workload {
    pub fn namespace(self) -> String {
        namespace(self.namespace)
    }

    pub fn label(self) -> String {
        format!("app-{}", self.app)
    }

    /// One workload of each namespace but the first has a pod that is replaced while it is sampled.
    pub fn is_doomed(self, size: &Size) -> bool {
        self.namespace > 0 && self.app == size.workloads_per_namespace / 2
    }
}

pub fn namespace(number: usize) -> String {
    format!("shop-{number}")
}

pub struct Workloads {
    client: Client,
    pub size: Size,
    made: AtomicUsize,
}

impl Workloads {
    pub async fn make(client: Client, size: Size) -> Result<Arc<Self>> {
        let all = Arc::new(Self {
            client,
            size,
            made: AtomicUsize::new(0),
        });
        let mut jobs = Jobs::new();
        for number in 0..size.nodes {
            jobs.add(create::<Node>(
                Api::all(all.client.clone()),
                json!({"metadata": {"name": format!("node-{number}")}}),
            ))
            .await?;
        }
        for number in 0..size.namespaces {
            let metadata =
                json!({"name": namespace(number), "labels": {"phpprof.dev/profiling": "enabled"}});
            jobs.add(create::<Namespace>(
                Api::all(all.client.clone()),
                json!({"metadata": metadata}),
            ))
            .await?;
        }
        jobs.end().await?;
        let mut jobs = Jobs::new();
        for number in 0..all.count() {
            for pod in 0..PODS {
                let all = all.clone();
                jobs.add(async move { all.add(all.workload(number), pod).await })
                    .await?;
            }
        }
        jobs.end().await?;
        Ok(all)
    }

    pub fn count(&self) -> usize {
        self.size.namespaces * self.size.workloads_per_namespace
    }

    /// The workload with this number. Workloads with neighbouring numbers are in different
    /// namespaces.
    pub fn workload(&self, number: usize) -> Workload {
        Workload {
            namespace: number % self.size.namespaces,
            app: number / self.size.namespaces % self.size.workloads_per_namespace,
        }
    }

    /// Replaces all pods, one after the other.
    pub async fn roll(&self, workload: Workload) -> Result<()> {
        let only = kube::api::ListParams::default().labels(&format!("app={}", workload.label()));
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace());
        for pod in pods.list(&only).await? {
            self.replace(&pod).await?;
        }
        Ok(())
    }

    /// Deletes a pod, as if it had ended at once, and creates another one of its workload.
    pub async fn replace(&self, pod: &Pod) -> Result<()> {
        let label = |key: &str| {
            pod.labels()
                .get(key)
                .with_context(|| format!("a pod without {key}"))
        };
        let namespace = pod.namespace().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0))
            .await?;
        let workload = Workload {
            namespace: namespace.trim_start_matches("shop-").parse()?,
            app: label("app")?.trim_start_matches("app-").parse()?,
        };
        self.add(workload, label("place")?.parse()?).await
    }

    async fn add(&self, workload: Workload, place: usize) -> Result<()> {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{made:05}", workload.label());
        let mut labels = BTreeMap::from([
            ("app", workload.label()),
            ("place", place.to_string()),
            (PHP, "true".to_owned()),
        ]);
        if place == 0 && workload.is_doomed(&self.size) {
            labels.insert(DOOMED, "true".to_owned());
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &workload.namespace());
        let node = format!("node-{}", (workload.app * PODS + place) % self.size.nodes);
        create(pods.clone(), pod(&name, &labels, &node)).await?;
        let status = Patch::Merge(json!({"status": running(made)}));
        pods.patch_status(&name, &PatchParams::default(), &status)
            .await?;
        Ok(())
    }

    /// Creates requests that ended long ago and are kept.
    pub async fn retain(&self, count: usize) -> Result<()> {
        let mut jobs = Jobs::new();
        for number in 0..count {
            let (client, workload) = (self.client.clone(), self.workload(number));
            jobs.add(async move {
                let requests: Api<ProfileRequest> = Api::namespaced(client, &workload.namespace());
                let name = format!("retained-{number}");
                let spec = json!({"target": {"selector": {"matchLabels": {"app": workload.label()}}}, "uploadMode": "Relay"});
                create(requests.clone(), json!({"metadata": {"name": name}, "spec": spec})).await?;
                let status = Patch::Merge(json!({"status": over(&name)}));
                requests.patch_status(&name, &PatchParams::default(), &status).await?;
                Ok(())
            })
            .await?;
        }
        jobs.end().await
    }
}

async fn create<K>(api: Api<K>, object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + DeserializeOwned,
{
    let mut object = object;
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    api.create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

/// A pod that is bound to its node already, because there is no scheduler.
fn pod(name: &str, labels: &BTreeMap<&str, String>, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "nodeName": node, "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
            "containers": [{
                "name": "fpm", "image": "registry.example.org/shop/web:2026-11-23",
                "env": [{"name": "DATABASE_URL", "value": "mysql://shop@mysql.shop.svc/shop"}, {"name": "APP_ENV", "value": "prod"}],
                "ports": [{"containerPort": 9000}],
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            }],
        },
    })
}

/// The status that a kubelet reports of a running pod. Samplers connect from its address.
fn running(number: usize) -> Value {
    let now = jiff::Timestamp::now();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition);
    json!({
        "phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "startTime": now,
        "conditions": conditions,
        "containerStatuses": [{
            "name": "fpm", "image": "registry.example.org/shop/web:2026-11-23", "imageID": "sha256:0", "ready": true, "started": true,
            "restartCount": 0, "containerID": format!("containerd://{number:064x}"), "state": {"running": {"startedAt": now}},
        }],
    })
}

/// The status of a complete request with five pods.
fn over(name: &str) -> Value {
    let now = jiff::Timestamp::now();
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Complete", "message": "profiled 5 pods", "lastTransitionTime": now, "observedGeneration": 1});
    let target = |place: usize| {
        json!({
            "podName": format!("web-{place}"), "podUID": format!("00000000-0000-4000-8000-{place:012}"), "nodeName": "node-0", "containerName": "fpm",
            "containerID": "containerd://0", "ephemeralContainerName": "phpprof-0-0", "state": "Uploaded", "samples": 2970, "sizeBytes": 12_345,
            "objectKey": format!("shop/{name}/web-{place}.pb.gz"),
        })
    };
    json!({
        "observedGeneration": 1, "startTime": now, "completionTime": now, "matched": PODS, "selected": PODS, "succeeded": PODS,
        "conditions": [condition("Complete", "True"), condition("Failed", "False"), condition("Accepted", "True")],
        "targets": (0..PODS).map(target).collect::<Vec<_>>(),
        "profile": {"url": format!("file:///var/lib/phpprof/{name}/merged.pb.gz"), "samples": 14_850, "sizeBytes": 50_000, "accessKey": "0"},
    })
}

/// A bounded number of calls that run at the same time. The first failure ends all.
struct Jobs {
    places: Arc<Semaphore>,
    set: JoinSet<Result<()>>,
}

impl Jobs {
    fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            set: JoinSet::new(),
        }
    }

    async fn add(&mut self, job: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
        let place = self.places.clone().acquire_owned().await?;
        while let Some(done) = self.set.try_join_next() {
            done??;
        }
        self.set.spawn(async move {
            let _place = place;
            job.await
        });
        Ok(())
    }

    async fn end(mut self) -> Result<()> {
        while let Some(done) = self.set.join_next().await {
            done??;
        }
        Ok(())
    }
}
