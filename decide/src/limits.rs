//! The administrator's settings, as values for `decide`.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// Limits and deadlines; the chart's `limits` and `store`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminLimits {
    /// Whether a namespace has to opt in by its label.
    pub namespace_opt_in: bool,
    /// The longest `durationSeconds`.
    pub duration_seconds: i32,
    /// The highest `samplesPerSecond`.
    pub samples_per_second: i32,
    /// Pods per request; `maxPods` is capped by it.
    pub pods: i32,
    /// The most ephemeral containers of phpprof in one pod. They are never removed from it.
    pub ephemeral_containers: usize,
    /// The most requests that run at the same time in a namespace.
    pub requests_of_namespace: usize,
    /// The most requests that run at the same time in all namespaces.
    pub requests_of_cluster: usize,
    /// The most samplers that run at the same time on a node.
    pub samplers_of_node: usize,
    /// A namespace with this many bytes in the store gets no further request accepted.
    pub bytes_of_namespace: Option<u64>,
    /// How long a request waits for its turn.
    pub queue_timeout: SignedDuration,
    /// How long a sampler may take to start.
    pub start_slack: SignedDuration,
    /// How long uploads are retried after a sampler's `not-after`. Grants expire then.
    pub upload_deadline: SignedDuration,
    /// The shortest time between two checkpoints of a run, after the early ones.
    pub checkpoint_seconds: i32,
    /// How long the operator itself continues to verify and merge after that.
    pub store_grace: SignedDuration,
    /// Whether the store can sign create-only writes.
    pub store_signs: bool,
    /// Whether this operator hears all calls of its relay: there is one replica.
    pub hears_all: bool,
    /// Whether results are exported.
    pub exports: bool,
    /// Users whose requests may have samplers that stay in their pods, by their names in the API
    /// server.
    pub resident_users: BTreeSet<String>,
    /// How often such a sampler asks for runs.
    pub resident_asks: SignedDuration,
    /// How long it stays without a run.
    pub resident_idle: SignedDuration,
    /// How long it stays without an answer.
    pub resident_lease: SignedDuration,
    /// The beginning of every key, before `<namespace>/…`; empty, or without a slash at either end.
    pub key_prefix: String,
}

impl Default for AdminLimits {
    fn default() -> Self {
        AdminLimits {
            namespace_opt_in: true,
            duration_seconds: 300,
            samples_per_second: 1000,
            pods: 10,
            ephemeral_containers: 64,
            requests_of_namespace: 16,
            requests_of_cluster: 64,
            samplers_of_node: 16,
            bytes_of_namespace: None,
            queue_timeout: SignedDuration::from_secs(600),
            start_slack: SignedDuration::from_secs(60),
            upload_deadline: SignedDuration::from_secs(600),
            checkpoint_seconds: 60,
            store_grace: SignedDuration::from_secs(300),
            store_signs: true,
            hears_all: true,
            exports: false,
            resident_users: BTreeSet::new(),
            resident_asks: SignedDuration::from_secs(30),
            resident_idle: SignedDuration::from_hours(6),
            resident_lease: SignedDuration::from_secs(900),
            key_prefix: String::new(),
        }
    }
}

impl AdminLimits {
    /// Whether a namespace has so many bytes in the store that it gets no new profiles.
    pub fn is_full(&self, stored_bytes: u64) -> bool {
        self.bytes_of_namespace
            .is_some_and(|allowed| stored_bytes >= allowed)
    }
}

/// The deadlines of one request. They follow from its acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// When the request was accepted.
    pub accepted: Timestamp,
    /// No sampler is injected after this.
    pub inject_until: Timestamp,
    /// No complete profile exists before this.
    pub ends_from: Timestamp,
    /// No run of this request begins after this, whichever sampler does it.
    pub not_after: Timestamp,
    /// No sampler's grant is valid after this, whenever the sampler was injected.
    pub last_upload: Timestamp,
    /// The operator does not try the store after this.
    pub give_up: Timestamp,
}

impl Deadlines {
    /// The deadlines of a request that was accepted at `start` and samples for `duration_seconds`.
    pub fn new(start: Timestamp, duration_seconds: i32, limits: &AdminLimits) -> Self {
        let inject_until = later(start, limits.start_slack);
        let not_after = not_after(inject_until, duration_seconds, limits);
        let last_upload = later(not_after, limits.upload_deadline);
        Deadlines {
            accepted: start,
            inject_until,
            ends_from: later(start, SignedDuration::from_secs(duration_seconds.into())),
            not_after,
            last_upload,
            give_up: later(last_upload, limits.store_grace),
        }
    }
}

/// A container that starts after this does nothing.
pub fn not_after(patched: Timestamp, duration_seconds: i32, limits: &AdminLimits) -> Timestamp {
    let duration = SignedDuration::from_secs(duration_seconds.into());
    later(later(patched, limits.start_slack), duration)
}

/// Saturates, so that deadlines far in the future need no error path.
pub fn later(instant: Timestamp, by: SignedDuration) -> Timestamp {
    instant.checked_add(by).unwrap_or(Timestamp::MAX)
}
