//! What all requests share, made once when the operator starts.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use kube::Resource as _;
use kube::runtime::events::{Event, Recorder};
use phpprof_crds::ProfileRequest;
use tokio::sync::{Mutex, Semaphore};
use tracing::Instrument as _;

use crate::decide::limits::Limits;
use crate::export::exporter::Exporter;
use crate::export::links::Template;
use crate::http::keyring::Keyring;
use crate::http::live::Live;
use crate::lease::Role;
use crate::metrics::{Metrics, Now};
use crate::reconcile::archives::Archives;
use crate::reconcile::expectations::Expectations;
use crate::reconcile::fleet::Fleet;
use crate::reconcile::halts::Halts;
use crate::reconcile::jobs::Jobs;
use crate::reconcile::requests::Requests;
use crate::reconcile::running::Running;
use crate::reconcile::watches::PodWatches;
use crate::reconcile::written::Written;
use crate::sampler::cancellation::Cancellations;
use crate::sampler::container::SamplerConfig;
use crate::storage::archive::Archive;
use crate::storage::collector::Collector;
use crate::storage::store::Store;
use crate::storage::usage::Usage;

/// The parts that a look at a request uses.
pub struct Context {
    /// With the rights of the chart's roles.
    pub client: Client,
    /// What the administrator allows.
    pub limits: Limits,
    /// What all samplers have in common.
    pub sampler: SamplerConfig,
    /// Where profiles lie.
    pub store: Store,
    /// Signs grants and access keys.
    pub keyring: Keyring,
    /// Where samplers reach the relay.
    pub relay_url: String,
    /// What samplers that ask over the relay are told.
    pub cancellations: Arc<Cancellations>,
    /// Seconds of live requests.
    pub live: Arc<Live>,
    /// What `status.links` is made of.
    pub links: Vec<Template>,
    /// Tells Pyroscope and Grafana.
    pub exporter: Exporter,
    /// Verifies and merges what samplers have stored.
    pub collector: Collector,
    /// Reads what namespaces have stored.
    pub archive: Arc<Archive>,
    /// Keeps each namespace's ProfileArchive.
    pub archives: Arc<Archives>,
    /// How much namespaces have stored.
    pub usage: Usage,
    /// Whether the request of a key is still there.
    pub requests: Arc<Requests>,
    /// Pods of namespaces with a request.
    pub watches: PodWatches,
    /// What was done and the watches may not show yet.
    pub expectations: Expectations,
    /// Counts what happens.
    pub metrics: Metrics,
    /// Where profiling is stopped.
    pub halts: Halts,
    /// What goes on beside the looks at requests.
    pub jobs: Jobs,
    /// Requests that were accepted and are not over.
    pub running: Running,
    /// Held from the last look at whose turn it is until who was accepted counts as running: two at once could get the same place.
    pub accepting: Mutex<()>,
    /// What this operator wrote last into each request.
    pub written: Written,
    /// For looks at requests, whoever came first.
    pub places: Semaphore,
    /// Events.
    pub recorder: Recorder,
    /// Whether this replica leads.
    pub role: Arc<Role>,
    /// Tests have their own.
    pub clock: fn() -> Timestamp,
}

impl Context {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Everything that is counted, and what is true now.
    pub fn metrics(&self) -> String {
        let leads = self.role.leads();
        // Of two replicas that both know them, one tells.
        if !leads {
            return self.metrics.text(Now {
                is_halted: self.halts.is_off(),
                ..Now::default()
            });
        }
        let fleet = Fleet::of(self);
        self.metrics.text(Now {
            running: self.running.references().len(),
            queued: fleet.line.waiting(),
            samplers: fleet.samplers.values().sum(),
            is_halted: self.halts.is_off(),
            leads,
        })
    }

    /// Beside the work: nobody waits for an event, and one that is lost is no harm.
    pub(crate) fn publish(self: &Arc<Self>, request: &ProfileRequest, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let (context, reference) = (self.clone(), request.object_ref(&()));
        let published = async move {
            for event in events {
                if let Err(error) = context.recorder.publish(&event, &reference).await {
                    tracing::warn!(%error, reason = event.reason, "writing an event failed");
                }
            }
        };
        tokio::spawn(published.in_current_span());
    }

    /// The request is over.
    pub(crate) fn forget(&self, request: &ProfileRequest) {
        let uid = request.metadata.uid.as_deref().unwrap_or_default();
        self.expectations.forget(uid);
        self.jobs.forget(uid);
    }

    /// Has all requests that may have samplers looked at again.
    pub(crate) fn look_again(&self) {
        for request in self.running.references() {
            self.watches.look_again(request);
        }
    }
}
