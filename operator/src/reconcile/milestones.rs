//! What follows from a request's acceptance, from its collection and from its end.
//!
//! Invariant: no request waits for it: calls to the store run in the background.

use std::sync::Arc;

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use tracing::Instrument as _;

use crate::decide::checkpoints::leftovers;
use crate::decide::effect::Done;
use crate::decide::status::is_over;
use crate::reconcile::context::Context;
use crate::reconcile::deletion::keep_record;

/// How far a request has come.
#[derive(Clone, Copy)]
pub struct Progress {
    is_accepted: bool,
    is_over: bool,
}

impl Progress {
    pub fn of(request: &ProfileRequest) -> Self {
        let status = request.status.as_ref();
        Progress {
            is_accepted: status.is_some_and(|status| status.start_time.is_some()),
            is_over: is_over(request),
        }
    }
}

/// Does what follows from an acceptance or an end, which the status says since this decision.
pub fn see_progress(context: &Arc<Context>, before: Progress, request: &ProfileRequest) {
    let (now, namespace) = (
        Progress::of(request),
        request.namespace().unwrap_or_default(),
    );
    if now.is_accepted && !before.is_accepted {
        context.cluster.archives.ensure(&namespace);
        keep_record(context, request);
    }
    if now.is_over && !before.is_over {
        context.call_next();
        if now.is_accepted {
            context.cluster.archives.count_again(&namespace);
        }
    }
}

/// Deletes in the background what is no longer needed once the request is collected.
pub fn clear(context: &Arc<Context>, request: &ProfileRequest, done: &[Done]) {
    let is_over = |done: &Done| {
        matches!(
            done,
            Done::Merged { .. } | Done::MergeFailed(_) | Done::Listed
        )
    };
    if done.iter().any(is_over) {
        let (context, request) = (context.clone(), request.clone());
        let cleared = async move {
            context.storage.collector.clear(leftovers(&request)).await;
            // If the record stays, the next leader deletes it when it starts.
            if let Err(error) = context
                .storage
                .collector
                .forget(&request, &context.policy.limits)
                .await
            {
                tracing::info!(%error, "deleting the record of a request failed; retrying later");
            }
        };
        tokio::spawn(cleared.in_current_span());
    }
}
