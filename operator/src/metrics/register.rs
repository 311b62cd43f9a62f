//! The names of the metrics, and the series that exist from the start.
//!
//! Invariant: names follow Prometheus' conventions, and each metric has a help text.

use phpprof_crds::{RequestReason, TargetReason, TriggerReason, UploadRoute};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::{ByCode, ByPart, ByReason, ByResult, ByRoute, MemoryBounds, Metrics, signed};

impl Metrics {
    pub(super) fn register(&self, memory: &MemoryBounds) -> Registry {
        let mut all = Registry::with_prefix("phpprof");
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        all.register(
            "build",
            "The operator's version",
            Info::new(version.to_vec()),
        );
        self.register_requests(&mut all);
        self.register_profiles(&mut all);
        self.register_neighbours(&mut all);
        register_memory(&mut all, memory);
        all
    }

    /// Outcomes of requests and their pods.
    fn register_requests(&self, all: &mut Registry) {
        let it = self.clone();
        all.register(
            "requests",
            "Finished requests, by their final reason",
            it.requests,
        );
        all.register("requests_running", "Running requests", it.running);
        all.register("requests_queued", "Requests in the queue", it.queued);
        all.register(
            "samplers_running",
            "Samplers of running requests",
            it.samplers,
        );
        all.register(
            "targets",
            "Finished pods: Uploaded, or the reason why there is no profile",
            it.targets,
        );
        all.register(
            "profiling_stopped",
            "1 while the administrator's switch stops all profiling",
            it.halted,
        );
        all.register(
            "lease_held",
            "1 if this replica holds the lease and handles requests",
            it.lease,
        );
    }

    /// Stored profiles, and how long each step takes.
    fn register_profiles(&self, all: &mut Registry) {
        let it = self.clone();
        all.register("samples", "Samples of verified profiles", it.samples);
        all.register("uploads", "Verified profiles, by upload route", it.uploads);
        all.register_with_unit(
            "uploaded",
            "Size of verified profiles",
            Unit::Bytes,
            it.upload_bytes,
        );
        all.register(
            "injections",
            "Attempts to add a sampler to a pod",
            it.injections,
        );
        all.register_with_unit(
            "injection_duration",
            "Time to add a sampler to a pod, both calls",
            Unit::Seconds,
            it.injection_seconds,
        );
        all.register_with_unit(
            "verification_duration",
            "Time to read and verify a pod's profile",
            Unit::Seconds,
            it.verification_seconds,
        );
        all.register_with_unit(
            "merge_duration",
            "Time to merge a request's profiles and store the result",
            Unit::Seconds,
            it.merge_seconds,
        );
    }

    /// Connections to the operator, and its own calls.
    fn register_neighbours(&self, all: &mut Registry) {
        let it = self.clone();
        all.register(
            "relay_answers",
            "Responses of the relay to samplers, by HTTP status",
            it.relay,
        );
        all.register(
            "verdict_answers",
            "Responses about verdicts to controllers of rollouts, by HTTP status: 401 without the token, 409 and 425 if a rollout may not go on",
            it.verdicts,
        );
        all.register(
            "alert_answers",
            "Responses to Alertmanager, by HTTP status: 401 without the token, 503 if it is to send the alerts again",
            it.alerts,
        );
        all.register(
            "trigger_decisions",
            "What triggers did with alerts that have their labels, by reason; once for each trigger and payload",
            it.triggers,
        );
        all.register(
            "api_calls",
            "Responses of the API server, by HTTP status; 0 if there was none",
            it.api,
        );
        all.register(
            "store_errors",
            "Errors of the store, by operation and kind of error",
            it.store_errors.0,
        );
        all.register(
            "store_create_only",
            "1 if the store refuses to overwrite objects, 0 if it does not, -1 if no probe of this replica has a result yet",
            it.store_create_only,
        );
        all.register(
            "connections_open",
            "Open connections, by port",
            it.connections.open,
        );
        all.register(
            "connections_closed",
            "Closed connections, by port and reason",
            it.connections.closed,
        );
    }

    /// Makes every series of a closed list begin at 0, so that a rate counts the first event.
    pub(super) fn list(&self) {
        for reason in [
            RequestReason::Complete,
            RequestReason::SomeTargetsFailed,
            RequestReason::NoSamples,
            RequestReason::Cancelled,
            RequestReason::AllTargetsFailed,
            RequestReason::MergeFailed,
            RequestReason::StoreUnavailable,
            RequestReason::ObserveFailed,
            RequestReason::QueueTimeout,
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
        for code in [200, 401, 404, 409, 425, 429, 503] {
            let _ = self.verdicts.get_or_create(&ByCode { code });
        }
        for code in [200, 400, 401, 413, 503] {
            let _ = self.alerts.get_or_create(&ByCode { code });
        }
        for reason in TriggerReason::ALL {
            let reason = reason.to_string();
            let _ = self.triggers.get_or_create(&ByReason { reason });
        }
        for code in [0, 200, 409, 500] {
            let _ = self.api.get_or_create(&ByCode { code });
        }
        self.connections.list();
        self.store_errors.list();
    }
}

fn register_memory(all: &mut Registry, memory: &MemoryBounds) {
    let parts: Family<ByPart, Gauge> = Family::default();
    for &(part, bytes) in &memory.parts {
        parts.get_or_create(&ByPart { part }).set(signed(bytes));
    }
    all.register_with_unit(
        "memory_most",
        "The most memory that each part of the operator may use",
        Unit::Bytes,
        parts,
    );
    if let Some(limit) = memory.limit {
        let bytes: Gauge = Gauge::default();
        bytes.set(i64::try_from(limit).unwrap_or(i64::MAX));
        all.register_with_unit(
            "memory_limit",
            "Memory limit of the operator's container",
            Unit::Bytes,
            bytes,
        );
    }
}
