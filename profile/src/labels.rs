//! The keys of the labels that a sample of phpprof can have.
//!
//! Invariant: samplers and the operator write no other labels, so a profile with another one is not
//! phpprof's. [`crate::waiting`] adds to [`OF_WAITS`] when a profile is shown, and stores that
//! nowhere.

/// Where a sample is from. The operator sets them again itself.
pub const OF_CONTAINERS: [&str; 3] = ["namespace", "pod", "container"];
/// The PHP that a sample is of: a container may run several.
pub const OF_ENGINES: [&str; 2] = ["php", "sapi"];
/// What distinguishes the workers of a pod. A merged profile drops them first.
pub const OF_WORKERS: [&str; 2] = ["pid", "thread"];
/// What a worker waited for that could not continue.
pub const OF_WAITS: [&str; 1] = [crate::waiting::LABEL];
/// The labels of HTTP requests, which a sample has if they were asked for.
pub const OF_REQUESTS: [&str; 5] = ["method", "route", "script", "request_age", TRACE_ID];
/// The trace of a request: 32 hexadecimal digits.
pub const TRACE_ID: &str = "trace_id";
/// The span that a request is a child of: 16 hexadecimal digits. A sample has it if and only if its
/// trace is known, so it needs no room of its own.
pub const SPAN_ID: &str = "span_id";
/// The labels that only a snapshot has.
pub const OF_SNAPSHOTS: [&str; 8] = [
    "state",
    "pool",
    "system_call",
    "waits_on",
    "peer_port",
    "request",
    "memory",
    "classes",
];

/// The labels that each sample of a profile can have.
pub fn of_samples() -> impl Iterator<Item = &'static str> {
    let all = OF_CONTAINERS.iter().chain(&OF_ENGINES).chain(&OF_WORKERS);
    all.copied()
}

/// All labels.
pub fn all() -> impl Iterator<Item = &'static str> {
    let few = OF_WAITS.into_iter().chain(OF_REQUESTS).chain([SPAN_ID]);
    of_samples().chain(few).chain(OF_SNAPSHOTS)
}
