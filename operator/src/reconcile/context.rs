//! The state that all requests share, created once when the operator starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Event, Recorder};
use kube::{Resource, ResourceExt};
use phpprof_decide::limits::AdminLimits;
use tracing::Instrument as _;

use crate::export::exporter::Exporter;
use crate::export::links::LinkTemplate;
use crate::http::addresses::RelayAddresses;
use crate::http::heard::Heard;
use crate::http::keyring::Keyring;
use crate::http::live::Live;
use crate::http::tokens::NamespaceTokens;
use crate::lease::Role;
use crate::metrics::{Metrics, Now};
use crate::reconcile::archives::Archives;
use crate::reconcile::fleet::Fleet;
use crate::reconcile::halts::Halts;
use crate::reconcile::ledger::Ledger;
use crate::reconcile::requests::RequestLookup;
use crate::reconcile::verdicts::ComparisonLookup;
use crate::reconcile::watches::{PodWatches, reference};
use crate::sampler::cancellation::Cancellations;
use crate::sampler::container::SamplerConfig;
use crate::storage::archive::Archive;
use crate::storage::collector::Collector;
use crate::storage::store::ProfileStore;
use crate::storage::usage::StorageUsage;

/// What the reconciliations of all requests share.
pub struct Context {
    /// The API server.
    pub cluster: ClusterView,
    /// The store.
    pub storage: Storage,
    /// The samplers.
    pub contact: Contact,
    /// What the administrator wants.
    pub policy: AdminPolicy,
    /// What the operator remembers of each request.
    pub ledger: Mutex<Ledger>,
    /// Counts events for metrics.
    pub metrics: Metrics,
    /// The current time. Tests have their own clock.
    pub clock: fn() -> Timestamp,
}

/// The API server, and what its watches have shown.
pub struct ClusterView {
    /// It has the rights of the chart's roles.
    pub client: Client,
    /// Whether this replica leads.
    pub role: Arc<Role>,
    /// Knows the requests, and whether the request of a key still exists.
    pub requests: Arc<RequestLookup>,
    /// Knows the comparisons, and starts the runs of templates.
    pub comparisons: Arc<ComparisonLookup>,
    /// Pods of namespaces with a request.
    pub watches: PodWatches,
    /// Where profiling is stopped.
    pub halts: Arc<Halts>,
    /// Keeps each namespace's ProfileArchive.
    pub archives: Arc<Archives>,
    /// Writes events.
    pub recorder: Recorder,
}

/// The store of the profiles, and what works on it.
pub struct Storage {
    /// The store.
    pub store: ProfileStore,
    /// Verifies and merges what samplers have stored.
    pub collector: Collector,
    /// Lists what namespaces have stored.
    pub archive: Arc<Archive>,
    /// Counts the bytes that namespaces have stored.
    pub usage: StorageUsage,
    /// Exports results to Pyroscope, by OTLP and to Grafana.
    pub exporter: Exporter,
}

/// How the operator and the samplers hear of each other.
pub struct Contact {
    /// Signs grants and access keys.
    pub keyring: Keyring,
    /// The URL of the relay for samplers.
    pub relay_url: String,
    /// The addresses of its Service.
    pub relay_addresses: RelayAddresses,
    /// When the relay heard from each pod's samplers.
    pub heard: Arc<Heard>,
    /// The answers to samplers that ask the relay whether to stop.
    pub cancellations: Arc<Cancellations>,
    /// The seconds of live requests.
    pub live: Arc<Live>,
}

/// What the administrator allows and wants.
pub struct AdminPolicy {
    /// The limits of requests.
    pub limits: AdminLimits,
    /// What all samplers have in common.
    pub sampler: SamplerConfig,
    /// The templates of `status.links`.
    pub links: Vec<LinkTemplate>,
    /// The tokens for verdicts, if they are on.
    pub verdict_tokens: Option<NamespaceTokens>,
    /// The tokens for alerts, if they are on.
    pub alert_tokens: Option<NamespaceTokens>,
}

impl Context {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// All counters, and the current values.
    pub fn metrics(&self) -> String {
        let leads = self.cluster.role.leads();
        // If two replicas know the requests, only the leader reports them.
        if !leads {
            return self.metrics.text(Now {
                is_halted: self.cluster.halts.is_off(),
                ..Now::default()
            });
        }
        let (fleet, running) = (self.fleet(), self.ledger().running().count());
        self.metrics.text(Now {
            running,
            queued: fleet.line.waiting(),
            samplers: fleet.samplers.values().sum(),
            is_halted: self.cluster.halts.is_off(),
            leads,
        })
    }

    /// What the operator remembers. It is locked as long as the guard lives, so no guard is held
    /// over an await.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of all requests together.
    pub(crate) fn fleet(&self) -> Fleet {
        Fleet::of(
            &self.cluster.requests.all(),
            &self.ledger(),
            &self.policy.limits,
        )
    }

    /// Triggers a reconciliation of the requests whose turn it is, because a place is free.
    pub(crate) fn call_next(&self) {
        for next in self.fleet().next() {
            self.cluster.watches.look_again(next.clone());
        }
    }

    /// The namespaces of requests that run.
    pub fn running_namespaces(&self) -> Vec<String> {
        let ledger = self.ledger();
        ledger
            .running()
            .filter_map(ResourceExt::namespace)
            .collect()
    }

    /// Triggers a reconciliation of all requests that may have samplers, and of those whose turn it
    /// is.
    pub fn look_again(&self) {
        let running: Vec<_> = self.ledger().running().map(reference).collect();
        for request in running {
            self.cluster.watches.look_again(request);
        }
        self.call_next();
    }
}

impl ClusterView {
    /// Publishes events in the background. Nothing waits for an event, and losing one does no harm.
    pub(crate) fn publish(&self, about: &impl Resource<DynamicType = ()>, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let (recorder, reference) = (self.recorder.clone(), about.object_ref(&()));
        let published = async move {
            for event in events {
                if let Err(error) = recorder.publish(&event, &reference).await {
                    tracing::warn!(%error, reason = event.reason, "writing an event failed");
                }
            }
        };
        tokio::spawn(published.in_current_span());
    }
}
