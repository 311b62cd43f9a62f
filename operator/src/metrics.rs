//! The operator's metrics for Prometheus. Their names follow its conventions, and no label has a
//! separate value for each request, pod or person.
//!
//! Invariant: the number of series is bounded, because each label has a closed list of values.

mod connections;
mod register;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phpprof_crds::{TargetState, TargetStatus, TriggerReason};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::storage::store::StoreErrors;
use crate::storage::store::health::WriteGuard;

use connections::ConnectionMetrics;
pub use connections::{End, OpenConnection, Port, PortMetrics};

/// From 5 ms to 40 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.005, 2.0, 14))
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByReason {
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByRoute {
    route: String,
}

/// An HTTP status code; 0 if there was no answer.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByCode {
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByPart {
    part: &'static str,
}

/// The counters. A clone counts into the same ones.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    requests: Family<ByReason, Counter>,
    running: Gauge,
    queued: Gauge,
    samplers: Gauge,
    targets: Family<ByReason, Counter>,
    samples: Counter,
    uploads: Family<ByRoute, Counter>,
    upload_bytes: Counter,
    injections: Family<ByResult, Counter>,
    injection_seconds: Histogram,
    verification_seconds: Histogram,
    merge_seconds: Histogram,
    relay: Family<ByCode, Counter>,
    verdicts: Family<ByCode, Counter>,
    alerts: Family<ByCode, Counter>,
    triggers: Family<ByReason, Counter>,
    api: Family<ByCode, Counter>,
    store_errors: StoreErrors,
    connections: ConnectionMetrics,
    halted: Gauge,
    lease: Gauge,
    store_create_only: Gauge,
}

/// Values at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Requests that were accepted and are not finished.
    pub running: usize,
    /// Requests that wait for their turn.
    pub queued: usize,
    /// Pods that these requests sample.
    pub samplers: usize,
    /// Whether the administrator's switch stops profiling.
    pub is_halted: bool,
    /// Whether this replica holds the lease.
    pub leads: bool,
}

/// What bounds the operator's memory.
#[derive(Default)]
pub struct MemoryBounds {
    /// The most that each part may use, in bytes.
    pub parts: Vec<(&'static str, usize)>,
    /// The limit of the operator's container, if it is known.
    pub limit: Option<u64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&MemoryBounds::default())
    }
}

impl Metrics {
    /// The metrics of an operator with these bounds.
    pub fn new(memory: &MemoryBounds) -> Self {
        let mut metrics = Metrics {
            registry: Arc::default(),
            requests: Family::default(),
            running: Gauge::default(),
            queued: Gauge::default(),
            samplers: Gauge::default(),
            targets: Family::default(),
            samples: Counter::default(),
            uploads: Family::default(),
            upload_bytes: Counter::default(),
            injections: Family::default(),
            injection_seconds: seconds(),
            verification_seconds: seconds(),
            merge_seconds: seconds(),
            relay: Family::default(),
            verdicts: Family::default(),
            alerts: Family::default(),
            triggers: Family::default(),
            api: Family::default(),
            store_errors: StoreErrors::default(),
            connections: ConnectionMetrics::default(),
            halted: Gauge::default(),
            lease: Gauge::default(),
            store_create_only: Gauge::default(),
        };
        metrics.found(WriteGuard::Unknown);
        metrics.registry = Arc::new(metrics.register(memory));
        metrics.list();
        metrics
    }

    /// Counts a finished request.
    pub fn ended(&self, reason: &str) {
        let reason = reason.to_owned();
        self.requests.get_or_create(&ByReason { reason }).inc();
    }

    /// Counts a pod that reached its final state.
    pub fn settled(&self, target: &TargetStatus) {
        let reason = match (target.state, target.reason) {
            (TargetState::Failed, Some(reason)) => reason.to_string(),
            _ => "Uploaded".to_owned(),
        };
        self.targets.get_or_create(&ByReason { reason }).inc();
        if target.state != TargetState::Uploaded {
            return;
        }
        let unsigned = |value: Option<i64>| value.and_then(|it| u64::try_from(it).ok());
        // Of heaps, it is the number of what they hold.
        let sampled = target.samples.filter(|_| target.quality.is_some());
        self.samples.inc_by(unsigned(sampled).unwrap_or(0));
        self.upload_bytes
            .inc_by(unsigned(target.size_bytes).unwrap_or(0));
        if let Some(route) = target.upload_mode {
            let route = format!("{route:?}");
            self.uploads.get_or_create(&ByRoute { route }).inc();
        }
    }

    /// Counts a sampler that was added, refused for good, or not added for now.
    pub fn injected(&self, result: &'static str, took: Duration) {
        self.injections.get_or_create(&ByResult { result }).inc();
        self.injection_seconds.observe(took.as_secs_f64());
    }

    /// Counts an upload that was compared with its receipt.
    pub fn verified(&self, since: Instant) {
        self.verification_seconds
            .observe(since.elapsed().as_secs_f64());
    }

    /// Counts a merge of a request's profiles.
    pub fn merged(&self, since: Instant) {
        self.merge_seconds.observe(since.elapsed().as_secs_f64());
    }

    /// The counters of the store's errors.
    pub fn store_errors(&self) -> StoreErrors {
        self.store_errors.clone()
    }

    /// Reports whether the store keeps create-only writes.
    pub fn found(&self, writes: WriteGuard) {
        self.store_create_only.set(match writes {
            WriteGuard::Unknown => -1,
            WriteGuard::CreateOnly => 1,
            WriteGuard::Overwrites | WriteGuard::NotImplemented => 0,
        });
    }

    /// The counters of a port's connections.
    pub fn port(&self, port: Port) -> PortMetrics {
        self.connections.of(port)
    }

    /// Counts an answer of the relay.
    pub fn relayed(&self, code: u16) {
        self.relay.get_or_create(&ByCode { code }).inc();
    }

    /// Counts an answer about a verdict.
    pub fn asked_for_verdict(&self, code: u16) {
        self.verdicts.get_or_create(&ByCode { code }).inc();
    }

    /// Counts an answer to a payload of alerts.
    pub fn alerted(&self, code: u16) {
        self.alerts.get_or_create(&ByCode { code }).inc();
    }

    /// Counts what a trigger did with alerts that have its labels.
    pub fn triggered(&self, reason: TriggerReason) {
        let reason = reason.to_string();
        self.triggers.get_or_create(&ByReason { reason }).inc();
    }

    /// Counts an answer of the API server, or that there was none.
    pub fn called(&self, code: Option<u16>) {
        let code = code.unwrap_or(0);
        self.api.get_or_create(&ByCode { code }).inc();
    }

    /// Everything in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self, now: Now) -> String {
        self.running.set(signed(now.running));
        self.queued.set(signed(now.queued));
        self.samplers.set(signed(now.samplers));
        self.halted.set(i64::from(now.is_halted));
        self.lease.set(i64::from(now.leads));
        let mut text = process();
        // Writing to a `String` cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The process metrics of Prometheus' own libraries, as far as the operator needs them.
fn process() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let mut text = String::new();
    if let Some(kib) = resident {
        let _ = writeln!(
            text,
            "# HELP process_resident_memory_bytes Resident memory.\n# TYPE process_resident_memory_bytes gauge\n\
             process_resident_memory_bytes {}",
            kib * 1024
        );
    }
    text
}

#[cfg(test)]
mod tests;
