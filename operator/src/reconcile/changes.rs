//! Counts and logs the change of a status.
//!
//! Invariant: each finished target and each finished request is counted once.

use phpprof_crds::{ProfileRequest, ProfileRequestStatus};

use crate::lifecycle::status::is_terminal;
use crate::metrics::Metrics;

/// Counts the targets and the request that finished with this change.
pub(super) fn count(metrics: &Metrics, old: &ProfileRequestStatus, new: &ProfileRequestStatus) {
    let open = |uid: &str| {
        let before = old.targets.iter().find(|target| target.pod_uid == uid);
        before.is_none_or(|target| !is_terminal(target))
    };
    for target in new.targets.iter().filter(|target| is_terminal(target)) {
        if open(&target.pod_uid) {
            metrics.settled(target);
        }
    }
    if let Some(condition) = new.conditions.first()
        && old.completion_time.is_none()
        && new.completion_time.is_some()
    {
        metrics.ended(&condition.reason);
    }
}

/// Logs the reason of a request if it has changed.
pub(super) fn log(request: &ProfileRequest, old: &ProfileRequestStatus) {
    let current = |status: &ProfileRequestStatus| {
        status
            .conditions
            .first()
            .map(|condition| condition.reason.clone())
    };
    let reason = request.status.as_ref().and_then(current);
    if reason != current(old) {
        tracing::info!(reason, "status");
    }
}
