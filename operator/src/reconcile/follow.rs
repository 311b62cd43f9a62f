//! What a replica does for a request that the leader handles: it tells samplers that poll its relay
//! to stop.
//!
//! Invariant: it writes nothing to the API server. If a request is deleted while it runs, both
//! replicas list what it has stored, but each object is stored once: the store refuses the second.

use std::sync::Arc;

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use tokio::sync::watch;

use crate::lifecycle::deletion::open_samplers;
use crate::lifecycle::status::is_running;
use crate::reconcile::context::Context;
use crate::reconcile::watches::reference;
use crate::sampler::cancellation::Stop;

/// Records whether a request runs. Tells its samplers to stop if it was cancelled or profiling was
/// stopped.
pub fn follow(context: &Context, request: &ProfileRequest) {
    context.ledger().see(request);
    let namespace = request.namespace().unwrap_or_default();
    let is_stopped = request.spec.cancel || context.cluster.halts.stops(&namespace);
    if is_running(request) && is_stopped {
        for cancellation in open_samplers(request, &context.policy.limits) {
            let now = context.now();
            context.contact.cancellations.cancel(
                &cancellation.key,
                Stop::Keep,
                now,
                cancellation.until,
            );
        }
    }
}

/// Whenever this replica begins to lead, reconciles all requests. When it stops, forgets its state.
pub async fn take_over(context: Arc<Context>, mut role: watch::Receiver<bool>) {
    loop {
        // The sender is in the context.
        let _ = role.changed().await;
        let leads = *role.borrow_and_update();
        if !leads {
            context.ledger().step_down();
            continue;
        }
        for request in context.cluster.requests.all() {
            if let Ok(request) = &request.0 {
                context.cluster.watches.look_again(reference(request));
            }
        }
        context.call_next();
        context.cluster.archives.count_all_again();
    }
}
