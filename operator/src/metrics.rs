//! What the operator tells a Prometheus: names after its conventions, and no label with a value that only one request, pod or person has.
//!
//! Invariant: the number of series is bounded: each label has the values of a closed list.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phpprof_crds::{Reason, TargetReason, TargetState, TargetStatus, UploadRoute};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

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

/// Of HTTP; 0 where there was no answer.
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

/// What is counted; a copy counts the same.
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
    api: Family<ByCode, Counter>,
    store_errors: Counter,
    halted: Gauge,
    lease: Gauge,
}

/// What is true at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub running: usize,
    pub queued: usize,
    pub samplers: usize,
    pub is_halted: bool,
    /// Whether this replica holds the lease.
    pub leads: bool,
}

impl Default for Metrics {
    fn default() -> Self {
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
            api: Family::default(),
            store_errors: Counter::default(),
            halted: Gauge::default(),
            lease: Gauge::default(),
        };
        metrics.registry = Arc::new(metrics.register());
        metrics.list();
        metrics
    }
}

impl Metrics {
    fn register(&self) -> Registry {
        let mut all = Registry::with_prefix("phpprof");
        let it = self.clone();
        all.register(
            "requests",
            "Requests that are over, by the reason that they ended with",
            it.requests,
        );
        all.register("requests_running", "Requests that run", it.running);
        all.register(
            "requests_queued",
            "Requests that wait for their turn",
            it.queued,
        );
        all.register(
            "samplers_running",
            "Samplers of requests that run",
            it.samplers,
        );
        all.register(
            "targets",
            "Pods that are settled: Uploaded, or why there is no profile",
            it.targets,
        );
        all.register("samples", "Samples of verified profiles", it.samples);
        all.register("uploads", "Verified profiles by their route", it.uploads);
        all.register_with_unit(
            "uploaded",
            "Verified profiles",
            Unit::Bytes,
            it.upload_bytes,
        );
        all.register(
            "injections",
            "Samplers that were to be added to pods",
            it.injections,
        );
        all.register_with_unit(
            "injection_duration",
            "Adding a sampler to a pod, both calls",
            Unit::Seconds,
            it.injection_seconds,
        );
        all.register_with_unit(
            "verification_duration",
            "Reading and checking a pod's profile",
            Unit::Seconds,
            it.verification_seconds,
        );
        all.register_with_unit(
            "merge_duration",
            "Merging a request's profiles and storing the result",
            Unit::Seconds,
            it.merge_seconds,
        );
        all.register(
            "relay_answers",
            "Answers of the relay to samplers, by HTTP status",
            it.relay,
        );
        all.register(
            "api_calls",
            "Answers of the API server, by HTTP status; 0 where there was none",
            it.api,
        );
        all.register(
            "store_errors",
            "Work on the store that is tried again",
            it.store_errors,
        );
        all.register(
            "profiling_stopped",
            "1 while the administrator's switch stops all profiling",
            it.halted,
        );
        all.register(
            "lease_held",
            "Whether this replica looks after requests",
            it.lease,
        );
        let parts: Family<ByPart, Gauge> = Family::default();
        for (part, bytes) in crate::memory::parts() {
            parts.get_or_create(&ByPart { part }).set(signed(bytes));
        }
        all.register_with_unit(
            "memory_most",
            "What each part of the operator can hold at most",
            Unit::Bytes,
            parts,
        );
        all
    }

    /// Every series of a closed list begins at 0: a rate of the first one counts then.
    fn list(&self) {
        for reason in [
            Reason::Complete,
            Reason::SomeTargetsFailed,
            Reason::NoSamples,
            Reason::Cancelled,
            Reason::AllTargetsFailed,
            Reason::MergeFailed,
            Reason::StoreUnavailable,
            Reason::ObserveFailed,
            Reason::QueueTimeout,
        ] {
            let reason = reason.to_string();
            let _ = self.requests.get_or_create(&ByReason { reason });
        }
        for result in ["added", "refused", "failed"] {
            let _ = self.injections.get_or_create(&ByResult { result });
        }
        for reason in [
            "Uploaded".to_owned(),
            TargetReason::InjectionRefused.to_string(),
        ] {
            let _ = self.targets.get_or_create(&ByReason { reason });
        }
        for route in [UploadRoute::Direct, UploadRoute::Relay] {
            let route = format!("{route:?}");
            let _ = self.uploads.get_or_create(&ByRoute { route });
        }
        for code in [200, 403, 503] {
            let _ = self.relay.get_or_create(&ByCode { code });
        }
        for code in [0, 200, 409, 500] {
            let _ = self.api.get_or_create(&ByCode { code });
        }
    }

    /// A request is over.
    pub fn ended(&self, reason: &str) {
        let reason = reason.to_owned();
        self.requests.get_or_create(&ByReason { reason }).inc();
    }

    /// A pod is settled.
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
        self.samples.inc_by(unsigned(target.samples).unwrap_or(0));
        self.upload_bytes
            .inc_by(unsigned(target.size_bytes).unwrap_or(0));
        if let Some(route) = target.upload_mode {
            let route = format!("{route:?}");
            self.uploads.get_or_create(&ByRoute { route }).inc();
        }
    }

    /// A sampler was added, refused for good, or not added for now.
    pub fn injected(&self, result: &'static str, took: Duration) {
        self.injections.get_or_create(&ByResult { result }).inc();
        self.injection_seconds.observe(took.as_secs_f64());
    }

    pub fn verified(&self, since: Instant) {
        self.verification_seconds
            .observe(since.elapsed().as_secs_f64());
    }

    pub fn merged(&self, since: Instant) {
        self.merge_seconds.observe(since.elapsed().as_secs_f64());
    }

    pub fn store_failed(&self) {
        self.store_errors.inc();
    }

    /// The relay has answered.
    pub fn relayed(&self, code: u16) {
        self.relay.get_or_create(&ByCode { code }).inc();
    }

    /// The API server has answered, or not.
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
        // A `String` takes every write.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What Prometheus' own libraries tell of a process, as far as it is asked for here.
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
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_counted_under_names_after_the_conventions() {
        let metrics = Metrics::default();
        metrics.ended("Complete");
        metrics.settled(&TargetStatus {
            state: TargetState::Uploaded,
            samples: Some(2970),
            size_bytes: Some(12_345),
            upload_mode: Some(UploadRoute::Relay),
            ..TargetStatus::default()
        });
        metrics.settled(&TargetStatus {
            state: TargetState::Failed,
            reason: Some(TargetReason::NoPhpFound),
            ..TargetStatus::default()
        });
        metrics.injected("added", Duration::from_millis(20));
        metrics.called(None);
        let text = metrics.text(Now {
            running: 2,
            queued: 1,
            samplers: 7,
            is_halted: false,
            leads: true,
        });
        for line in [
            "phpprof_requests_total{reason=\"Complete\"} 1",
            "phpprof_requests_total{reason=\"MergeFailed\"} 0",
            "phpprof_requests_running 2",
            "phpprof_requests_queued 1",
            "phpprof_samplers_running 7",
            "phpprof_targets_total{reason=\"NoPhpFound\"} 1",
            "phpprof_samples_total 2970",
            "phpprof_uploads_total{route=\"Relay\"} 1",
            "phpprof_uploaded_bytes_total 12345",
            "phpprof_injections_total{result=\"added\"} 1",
            "phpprof_injection_duration_seconds_count 1",
            "phpprof_api_calls_total{code=\"0\"} 1",
            "phpprof_profiling_stopped 0",
            "phpprof_memory_most_bytes{part=\"uploads\"} 117440512",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(text.ends_with("# EOF\n") && text.contains("process_resident_memory_bytes "));
    }
}
