//! Work on the store that runs outside of the reconciliations. Neither the acceptance of another
//! request nor a cancellation waits for it.
//!
//! Invariant: a job of a request runs only once until a reconciliation has taken its outcome from
//! the ledger.

use std::sync::Arc;
use std::time::Instant;

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use tracing::Instrument as _;

use crate::lifecycle::effect::{Done, Job, JobKey};
use crate::reconcile::context::Context;
use crate::reconcile::events;
use crate::reconcile::ledger::LedgerEntry;
use crate::reconcile::watches::reference;
use phpprof_crds::chain;

/// Starts a job, unless one of its key is under way. Its end triggers a reconciliation of the
/// request.
pub fn start(context: &Arc<Context>, request: &ProfileRequest, job: Job) {
    let key = job.key();
    if !context.ledger().begin(request, &key) {
        return;
    }
    let (context, request) = (context.clone(), request.clone());
    let done = async move {
        let (beside, of) = (context.clone(), request.clone());
        let work = async move { work(&beside, &of, job).await };
        let work = tokio::spawn(work.in_current_span());
        let done = work.await;
        let done = done.unwrap_or_else(|error| without_outcome(&key, error.to_string()));
        context.ledger().end_job(&request, &key, done);
        context.cluster.watches.look_again(reference(&request));
    };
    tokio::spawn(done.in_current_span());
}

/// What is recorded of a job that ended without an outcome, so that it is tried again after a
/// pause. Of an export, no pause would follow from the store.
fn without_outcome(key: &JobKey, error: String) -> Done {
    match key {
        JobKey::Target(_) | JobKey::Collection => Done::StoreAway(error),
        JobKey::Export => Done::TryAgain(error),
    }
}

async fn work(context: &Arc<Context>, request: &ProfileRequest, job: Job) -> Done {
    let (collector, limits, begin) = (
        &context.storage.collector,
        &context.policy.limits,
        Instant::now(),
    );
    match job {
        Job::Verify(upload) => {
            let done = collector.verify(&upload).await;
            context.metrics.verified(begin);
            done
        }
        Job::ReadReceipt(receipt) => collector.receipt(&receipt).await,
        Job::Recover(recovery) => collector.recover(&recovery).await,
        Job::Merge => {
            let done = merge(context, request).await;
            context.metrics.merged(begin);
            done
        }
        Job::List => collector.list(request, limits).await,
        Job::Export => export(context, request).await,
    }
}

/// Exports the result. Fetches the whole request first, because the watch keeps little of a
/// finished one.
async fn export(context: &Arc<Context>, request: &ProfileRequest) -> Done {
    let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
    let whole = match context.cluster.requests.fetch(&namespace, &name).await {
        Ok(Some(whole)) if whole.uid() == request.uid() => whole,
        Ok(_) => return Done::Exported,
        Err(error) => return Done::TryAgain(chain(&error)),
    };
    let (exporter, collector, limits) = (
        &context.storage.exporter,
        &context.storage.collector,
        &context.policy.limits,
    );
    let exported = exporter.tell(collector, &whole, limits).await;
    let events = exported.into_iter().map(events::exported).collect();
    context.cluster.publish(&whole, events);
    Done::Exported
}

async fn merge(context: &Context, request: &ProfileRequest) -> Done {
    let mut done = context
        .storage
        .collector
        .merge(request, &context.policy.limits)
        .await;
    if let Done::Merged {
        profile,
        links,
        cancelled,
        ..
    } = &mut done
    {
        let uid = request.uid().unwrap_or_default();
        let is_stopped = context
            .ledger()
            .get(request)
            .is_some_and(LedgerEntry::is_stopped);
        if cancelled.is_none() && is_stopped {
            *cancelled = Some("profiling was stopped".to_owned());
        }
        profile.access_key = context.contact.keyring.access_key(&uid).into();
        *links = crate::export::links::links(
            &context.policy.links,
            request,
            &profile.access_key,
            context.now(),
        );
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_outcome_pauses_each_job() {
        let done = |key| without_outcome(&key, "panicked".into());
        let away = Done::StoreAway("panicked".into());
        assert_eq!(done(JobKey::Collection), away);
        assert_eq!(done(JobKey::Target("u".into())), away);
        assert_eq!(done(JobKey::Export), Done::TryAgain("panicked".into()));
    }
}
