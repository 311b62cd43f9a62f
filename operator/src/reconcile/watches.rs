//! Watches pods, but only in namespaces with an active request.
//!
//! It keeps stripped pods and says which requests to reconcile again. It decides nothing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, channel::mpsc, future};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, core::DeserializeGuard};
use phpprof_crds::ProfileRequest;
use tokio::sync::watch as signal;
use tokio::task::AbortHandle;

use crate::reconcile::reflected::reflected;

/// The reference that triggers the controller when a pod changes.
pub type RequestRef = ObjectRef<DeserializeGuard<ProfileRequest>>;

/// Objects in one page of a list. An object has up to 1.5 MiB (etcd's `--max-request-bytes`), and the whole page is in memory.
pub(crate) const PAGE: u32 = 8;
/// How long a new watch may take to list its namespace.
const READY: Duration = Duration::from_secs(10);

/// Why the pods of a namespace are not known.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The namespace's pods could not be listed.
    #[error(
        "pods of namespace {0} could not be listed within 10 s; the operator needs list and watch on pods"
    )]
    NotReady(String),
}

/// One watch per namespace, as long as a request needs it.
#[derive(Clone)]
pub struct PodWatches {
    client: Client,
    triggers: mpsc::UnboundedSender<RequestRef>,
    namespaces: Arc<Mutex<HashMap<String, Watch>>>,
}

struct Watch {
    pods: Store<Pod>,
    ready: signal::Receiver<bool>,
    requests: Arc<Mutex<HashSet<RequestRef>>>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lists in pages. The API server ignores the page size if any version is asked for (`resourceVersion=0`), so this asks for the newest one.
pub(crate) fn paged() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

impl PodWatches {
    /// The watches, and the stream of requests to reconcile again.
    pub fn new(client: Client) -> (Self, mpsc::UnboundedReceiver<RequestRef>) {
        let (triggers, changes) = mpsc::unbounded();
        (
            PodWatches {
                client,
                triggers,
                namespaces: Arc::default(),
            },
            changes,
        )
    }

    /// The pods of a namespace. From now on, any change of a pod triggers a reconciliation of the request.
    pub async fn pods(
        &self,
        namespace: &str,
        request: &RequestRef,
    ) -> Result<Vec<Arc<Pod>>, WatchError> {
        let (pods, mut ready) = self.subscribe(namespace, request);
        match tokio::time::timeout(READY, ready.wait_for(|ready| *ready)).await {
            Ok(Ok(_)) => Ok(pods.state()),
            _ => Err(WatchError::NotReady(namespace.to_owned())),
        }
    }

    fn subscribe(
        &self,
        namespace: &str,
        request: &RequestRef,
    ) -> (Store<Pod>, signal::Receiver<bool>) {
        let mut namespaces = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let watch = namespaces
            .entry(namespace.to_owned())
            .or_insert_with(|| self.watch(namespace));
        watch
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(request.clone());
        (watch.pods.clone(), watch.ready.clone())
    }

    fn watch(&self, namespace: &str) -> Watch {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (pods, writer) = store();
        let requests: Arc<Mutex<HashSet<RequestRef>>> = Arc::default();
        let stream = watcher(api, paged())
            .default_backoff()
            .modify(crate::reconcile::strip::strip);
        let (triggers, interested) = (self.triggers.clone(), requests.clone());
        let changes = reflected(writer, stream).for_each(move |change| {
            if let Err(error) = change {
                tracing::warn!(%error, "watching pods failed; retrying");
            }
            for request in interested
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
            {
                // A closed channel means that the controller has ended, and soon the process will.
                let _ = triggers.unbounded_send(request.clone());
            }
            future::ready(())
        });
        Watch {
            ready: readiness(pods.clone()),
            pods,
            requests,
            task: tokio::spawn(changes).abort_handle(),
        }
    }

    /// Triggers a reconciliation of the request, as a change of one of its pods would.
    pub fn look_again(&self, request: RequestRef) {
        // A closed channel means that the controller has ended, and soon the process will.
        let _ = self.triggers.unbounded_send(request);
    }

    /// Drops the request's need for its namespace's pods.
    pub fn release(&self, request: &RequestRef) {
        let Some(namespace) = &request.namespace else {
            return;
        };
        let mut namespaces = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = namespaces.get(namespace) {
            let mut requests = watch
                .requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            requests.remove(request);
            let unused = requests.is_empty();
            drop(requests);
            if unused {
                namespaces.remove(namespace);
            }
        }
    }
}

/// A store wakes only one of those that wait for it. So one task waits for all.
fn readiness(pods: Store<Pod>) -> signal::Receiver<bool> {
    let (ready, wait) = signal::channel(false);
    tokio::spawn(async move {
        if pods.wait_until_ready().await.is_ok() {
            // If nobody waits any more, the signal is not needed.
            let _ = ready.send(true);
        }
    });
    wait
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::api::ApiServer;

    #[tokio::test(start_paused = true)]
    async fn requests_look_again_when_the_store_has_what_changed_while_the_watch_was_broken() {
        let pod = |node: &str| json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": node, "containers": []}});
        let server = ApiServer::new([vec![pod("old")], vec![pod("new")]], json!({}));
        let (watches, mut changes) = PodWatches::new(server.client());
        let request = RequestRef::new("first").within("shop");
        let (pods, _) = watches.subscribe("shop", &request);
        let mut seen = Vec::new();
        let minute = Duration::from_secs(60);
        while let Ok(Some(_)) = tokio::time::timeout(minute, changes.next()).await {
            let nodes = pods.state().into_iter().map(|pod| pod.spec.clone());
            seen = nodes.flatten().filter_map(|spec| spec.node_name).collect();
        }
        assert_eq!(seen, ["new"]);
    }
}
