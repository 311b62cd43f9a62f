//! What follows from a request's acceptance, from its collection and from its end.
//!
//! Invariant: no request waits for it: calls to the store run in the background.

use std::sync::Arc;

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use tracing::Instrument as _;

use crate::decide::checkpoints::leftovers;
use crate::decide::effect::Done;
use crate::reconcile::context::Context;
use crate::reconcile::deletion::keep_record;
use crate::reconcile::fleet::Fleet;
use crate::reconcile::watches::RequestRef;

pub fn is_accepted(request: &ProfileRequest) -> bool {
    let status = request.status.as_ref();
    status.is_some_and(|status| status.start_time.is_some())
}

pub fn is_over(request: &ProfileRequest) -> bool {
    let status = request.status.as_ref();
    status.is_some_and(|status| status.completion_time.is_some())
}

/// Does what follows from an acceptance or an end, which the status says since this decision.
pub fn see_progress(
    context: &Arc<Context>,
    reference: &RequestRef,
    request: &ProfileRequest,
    (was_accepted, was_over): (bool, bool),
) {
    let namespace = request.namespace().unwrap_or_default();
    if is_accepted(request) && !was_accepted {
        context.archives.ensure(&namespace);
        keep_record(context, request);
    }
    if is_over(request) {
        context.watches.release(reference);
    }
    if is_over(request) && !was_over {
        context.forget(request);
        Fleet::call_next(context);
        if is_accepted(request) {
            context.archives.count_again(&namespace);
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
            context.collector.clear(leftovers(&request)).await;
            // If the record stays, the next leader deletes it when it starts.
            if let Err(error) = context.collector.forget(&request, &context.limits).await {
                tracing::info!(%error, "deleting the record of a request failed; retrying later");
            }
        };
        tokio::spawn(cleared.in_current_span());
    }
}
