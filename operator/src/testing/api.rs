//! An API server whose watch breaks, and the operator's context with a client of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Request, Response};
use futures::channel::mpsc::UnboundedReceiver;
use kube::Client;
use kube::client::Body;
use kube::runtime::events::Recorder;
use object_store::memory::InMemory;
use phpprof_decide::limits::AdminLimits;
use serde_json::{Value, json};
use tower::service_fn;

use super::at;
use crate::export::exporter::ExportArgs;
use crate::http::addresses::RelayAddresses;
use crate::http::keyring::Keyring;
use crate::http::live::Live;
use crate::lease::Role;
use crate::metrics::Metrics;
use crate::reconcile::archives::Archives;
use crate::reconcile::context::{AdminPolicy, ClusterView, Contact, Context, Storage};
use crate::reconcile::requests::RequestLookup;
use crate::reconcile::verdicts::ComparisonLookup;
use crate::reconcile::watches::{PodWatches, RequestRef};
use crate::storage::archive::Archive;
use crate::storage::collector::Collector;
use crate::storage::store::ProfileStore;
use crate::storage::usage::StorageUsage;

/// How long the first watch lasts, and how long the second page of a list takes.
pub const LASTS: Duration = Duration::from_secs(1);

/// An API server with one kind of objects. It forgets what the first watch has seen, as after a
/// restart, so the client lists again. That list has two pages: the second is empty, and comes
/// late.
#[derive(Default)]
pub struct ApiServer {
    objects: [Vec<Value>; 2],
    other: Value,
    lists: AtomicUsize,
    watches: AtomicUsize,
    limits: Mutex<Vec<u32>>,
    patches: Mutex<Vec<Value>>,
}

impl ApiServer {
    /// Has these objects before the watch breaks, and these after it. It gives `other` for all that
    /// is neither a list nor a watch.
    pub fn new(objects: [Vec<Value>; 2], other: Value) -> Arc<Self> {
        Arc::new(ApiServer {
            objects,
            other,
            ..ApiServer::default()
        })
    }

    pub fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        let answer = move |request| {
            let server = server.clone();
            async move { Ok::<_, kube::Error>(server.answer(request).await) }
        };
        Client::new(service_fn(answer), "default")
    }

    /// The bodies of all patches.
    pub fn patches(&self) -> Vec<Value> {
        self.patches.lock().unwrap().clone()
    }

    /// The page sizes of all lists.
    pub fn limits(&self) -> Vec<u32> {
        self.limits.lock().unwrap().clone()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let said = if query.contains("watch=true") {
            self.watch().await
        } else if let Some(limit) = value(&query, "limit") {
            self.limits.lock().unwrap().push(limit.parse().unwrap());
            self.list(value(&query, "continue").is_some()).await
        } else {
            let is_patch = request.method() == "PATCH";
            let body = axum::body::Body::new(request.into_body());
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            if is_patch {
                let body = serde_json::from_slice(&body).unwrap();
                self.patches.lock().unwrap().push(body);
            }
            self.other.clone()
        };
        Response::new(Body::from(format!("{said}\n").into_bytes()))
    }

    async fn watch(&self) -> Value {
        if self.watches.fetch_add(1, Ordering::Relaxed) > 0 {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LASTS).await;
        let status = json!({"kind": "Status", "status": "Failure", "message": "too old resource version",
            "reason": "Expired", "code": 410});
        json!({"type": "ERROR", "object": status})
    }

    async fn list(&self, is_second_page: bool) -> Value {
        let mut page = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []});
        if is_second_page {
            tokio::time::sleep(LASTS).await;
            return page;
        }
        let is_after = self.lists.fetch_add(1, Ordering::Relaxed) > 0;
        page["items"] = json!(self.objects[usize::from(is_after)]);
        if is_after {
            page["metadata"]["continue"] = json!("next");
        }
        page
    }
}

fn value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
}

/// A context with a store in memory, and the requests that it wants to be reconciled again.
pub fn context(client: Client) -> (Context, UnboundedReceiver<RequestRef>) {
    let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
    let (keyring, role) = (Keyring::for_test(), Arc::new(Role::new(true)));
    let archive = Arc::new(Archive::new(store.clone()));
    let (archives, _) = Archives::new(
        client.clone(),
        keyring.clone(),
        archive.clone(),
        role.clone(),
        None,
    );
    let collector = Collector::new(store.clone());
    let (watches, changes) = PodWatches::new(client.clone());
    let contact = Contact {
        keyring,
        relay_url: "https://relay".into(),
        // Nothing to resolve.
        relay_addresses: RelayAddresses::of("https://192.0.2.1"),
        heard: Default::default(),
        cancellations: Default::default(),
        live: Arc::new(Live::new(role.clone(), collector.desk())),
    };
    let cluster = ClusterView {
        requests: Arc::new(RequestLookup::new(client.clone(), store.prefix())),
        comparisons: Arc::new(ComparisonLookup::new(client.clone())),
        recorder: Recorder::new(client.clone(), "phpprof-operator".into()),
        halts: Default::default(),
        client,
        role,
        watches,
        archives,
    };
    let storage = Storage {
        usage: StorageUsage::new(store.clone()),
        store,
        collector,
        archive,
        exporter: ExportArgs::default().open(None).unwrap(),
    };
    let policy = AdminPolicy {
        limits: AdminLimits::default(),
        sampler: Default::default(),
        links: Vec::new(),
        verdict_tokens: None,
        alert_tokens: None,
    };
    let context = Context {
        cluster,
        storage,
        contact,
        policy,
        ledger: Default::default(),
        metrics: Metrics::default(),
        clock: || at(0),
    };
    (context, changes)
}
