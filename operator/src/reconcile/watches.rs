//! Watches pods, but only in namespaces with an active request.
//!
//! It keeps stripped pods and says which requests to reconcile again. It decides nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::{StreamExt as _, channel::mpsc, future};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _, core::DeserializeGuard};
use phpprof_crds::ProfileRequest;
use tokio::sync::watch as signal;
use tokio::task::AbortHandle;

use crate::reconcile::reflected::reflected;

/// The reference that triggers the controller when a pod changes.
pub type RequestRef = ObjectRef<DeserializeGuard<ProfileRequest>>;

/// Objects in one page of a list. An object has up to 1.5 MiB (etcd's `--max-request-bytes`), and
/// the whole page is in memory.
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
    namespaces: Arc<Mutex<HashMap<String, Weak<PodWatch>>>>,
}

struct PodWatch {
    pods: Store<Pod>,
    ready: signal::Receiver<bool>,
    requests: Interested,
    task: AbortHandle,
}

/// The requests to reconcile when a pod changes: those whose subscriptions exist.
type Interested = Arc<Mutex<Vec<Weak<RequestRef>>>>;

impl Drop for PodWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request's need for the pods of its namespace. The namespace is watched until the last one is
/// dropped. Any change of a pod triggers a reconciliation of the request.
pub struct Subscription {
    watch: Arc<PodWatch>,
    request: Arc<RequestRef>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "Subscription({})", self.request)
    }
}

impl Subscription {
    /// The pods of the namespace, once they are listed.
    pub async fn pods(&self) -> Result<Vec<Arc<Pod>>, WatchError> {
        let mut ready = self.watch.ready.clone();
        match tokio::time::timeout(READY, ready.wait_for(|ready| *ready)).await {
            Ok(Ok(_)) => Ok(self.watch.pods.state()),
            _ => {
                let namespace = self.request.namespace.clone();
                Err(WatchError::NotReady(namespace.unwrap_or_default()))
            }
        }
    }
}

/// The reference that triggers the controller for a request.
pub(crate) fn reference(request: &ProfileRequest) -> RequestRef {
    ObjectRef::new(&request.name_any()).within(&request.namespace().unwrap_or_default())
}

/// Lists in pages. The API server ignores the page size if any version is asked for
/// (`resourceVersion=0`), so this asks for the newest one.
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

    /// Watches the pods of the request's namespace for it.
    pub fn subscribe(&self, request: &RequestRef) -> Subscription {
        let namespace = request.namespace.clone().unwrap_or_default();
        let mut namespaces = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = namespaces.get(&namespace).and_then(Weak::upgrade);
        let watch = known.unwrap_or_else(|| {
            namespaces.retain(|_, watch| watch.strong_count() > 0);
            let watch = Arc::new(self.watch(&namespace));
            namespaces.insert(namespace, Arc::downgrade(&watch));
            watch
        });
        let request = Arc::new(request.clone());
        interested(&watch.requests).push(Arc::downgrade(&request));
        Subscription { watch, request }
    }

    fn watch(&self, namespace: &str) -> PodWatch {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (pods, writer) = store();
        let requests = Interested::default();
        let stream = watcher(api, paged())
            .default_backoff()
            .modify(crate::reconcile::strip::strip);
        let (triggers, interest) = (self.triggers.clone(), requests.clone());
        let changes = reflected(writer, stream).for_each(move |change| {
            if let Err(error) = change {
                tracing::warn!(%error, "watching pods failed; retrying");
            }
            for request in interested(&interest).iter().filter_map(Weak::upgrade) {
                // A closed channel means that the controller has ended, and soon the process will.
                let _ = triggers.unbounded_send(RequestRef::clone(&request));
            }
            future::ready(())
        });
        PodWatch {
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
}

/// Those that still have their subscriptions.
fn interested(requests: &Interested) -> MutexGuard<'_, Vec<Weak<RequestRef>>> {
    let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
    requests.retain(|request| request.strong_count() > 0);
    requests
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
    async fn requests_look_again_after_a_broken_watch() {
        let pod = |node: &str| json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": node, "containers": []}});
        let server = ApiServer::new([vec![pod("old")], vec![pod("new")]], json!({}));
        let (watches, mut changes) = PodWatches::new(server.client());
        let request = RequestRef::new("first").within("shop");
        let subscription = watches.subscribe(&request);
        let mut seen = Vec::new();
        let minute = Duration::from_secs(60);
        while let Ok(Some(_)) = tokio::time::timeout(minute, changes.next()).await {
            let pods = subscription.watch.pods.state();
            let nodes = pods.into_iter().map(|pod| pod.spec.clone());
            seen = nodes.flatten().filter_map(|spec| spec.node_name).collect();
        }
        assert_eq!(seen, ["new"]);
    }

    #[tokio::test(start_paused = true)]
    async fn subscribe_watches_until_the_last_is_dropped() {
        let pod =
            json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}});
        let server = ApiServer::new([vec![pod.clone()], vec![pod]], json!({}));
        let (watches, mut changes) = PodWatches::new(server.client());
        let request = |name: &str| RequestRef::new(name).within("shop");
        let first = watches.subscribe(&request("first"));
        let second = watches.subscribe(&request("second"));
        assert_eq!(first.pods().await.unwrap().len(), 1);
        assert_eq!(changes.next().await, Some(request("first")));
        assert_eq!(changes.next().await, Some(request("second")));
        drop(first);
        // The watch breaks, and the list after it shows the pod again.
        assert_eq!(changes.next().await, Some(request("second")));
        let task = second.watch.task.clone();
        assert!(!task.is_finished());
        drop(second);
        tokio::task::yield_now().await;
        assert!(task.is_finished());
    }
}
