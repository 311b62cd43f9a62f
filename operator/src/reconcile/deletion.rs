//! Executes what `lifecycle::deletion` decides for requests that are deleted while their samplers
//! run.
//!
//! No finalizer keeps such a request, so it can be deleted at any time, even while the operator is
//! away or after it was removed for good. While a request runs, the store has a record of it. With
//! the record, a restarted or later operator does the same.
//!
//! Invariant: a record is used only if its request is certainly deleted from the same namespace
//! that it was made in, because another cluster may use the same store.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt as _};
use phpprof_crds::ProfileRequest;
use tracing::Instrument as _;

use crate::backoff::pause;
use crate::lifecycle::deletion::{Deletion, deletion};
use crate::lifecycle::effect::Done;
use crate::reconcile::calls::AT_ONCE;
use crate::reconcile::calls::call;
use crate::reconcile::context::Context;
use crate::reconcile::execute::cancel_over_store;
use crate::sampler::cancellation::Stop;
use crate::storage::store::StoreError;

/// The pause until records that could not be read are read again.
const PAUSE: Duration = Duration::from_secs(60);

/// Stores the record for the operator that has to stop the samplers after a deletion, if it is
/// another one. The run does not wait for this.
pub fn keep_record(context: &Arc<Context>, request: &ProfileRequest) {
    let (context, request) = (context.clone(), request.clone());
    let kept = async move {
        if let Err(error) = context
            .storage
            .collector
            .record(&request, &context.policy.limits)
            .await
        {
            tracing::info!(%error, "the request has no record; if no operator sees its deletion, its objects stay in the store");
        }
    };
    tokio::spawn(kept.in_current_span());
}

/// Cleans up in the background. If the store is away, it retries as long as for any request.
pub fn abandon(context: Arc<Context>, mut request: ProfileRequest) {
    let now = context.now();
    let Some(deletion) = deletion(now, &request, &context.policy.limits) else {
        return;
    };
    let span = tracing::info_span!(
        "of",
        request = request.name_any(),
        namespace = request.namespace().unwrap_or_default(),
        uid = request.uid().unwrap_or_default()
    );
    span.in_scope(|| tracing::info!("deleted while it runs"));
    request.metadata.deletion_timestamp.get_or_insert(Time(now));
    for sampler in &deletion.cancellations {
        let (key, until) = (&sampler.key, sampler.until);
        context
            .contact
            .cancellations
            .cancel(key, Stop::Drop, now, until);
    }
    let settled = async move {
        let mut tries = 0;
        while let Err(error) = settle(&context, &request, &deletion).await {
            if context.now() > deletion.give_up {
                tracing::warn!(error, "listing the objects of a deleted request failed");
                return;
            }
            tracing::info!(
                error,
                "cleaning up after a deleted request failed; retrying later"
            );
            tries += 1;
            tokio::time::sleep(pause(tries)).await;
        }
    };
    tokio::spawn(settled.instrument(span));
}

/// Tells the samplers that ask the store. Then lists what is stored until now and may be stored
/// before they learn of it. The record is deleted last, because it says that this has to be done.
async fn settle(
    context: &Context,
    request: &ProfileRequest,
    deletion: &Deletion,
) -> Result<(), String> {
    let store = &context.storage.store;
    stream::iter(deletion.cancellations.clone())
        .map(|sampler| async move { cancel_over_store(store, request, &sampler, Stop::Drop).await })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map_err(|error| error.to_string())?;
    if let Done::StoreAway(error) = context
        .storage
        .collector
        .list(request, &context.policy.limits)
        .await
    {
        return Err(error);
    }
    context
        .storage
        .collector
        .clear(deletion.deletes.clone())
        .await;
    let forgotten = context
        .storage
        .collector
        .forget(request, &context.policy.limits)
        .await;
    forgotten.map_err(|error| error.to_string())?;
    let namespace = request.namespace().unwrap_or_default();
    context.cluster.archives.count_again(&namespace);
    Ok(())
}

/// Whenever this replica begins to lead, finds requests that were deleted while no operator saw it.
/// If `namespaces` is empty, it includes all.
pub async fn resume(context: Arc<Context>, namespaces: Vec<String>) {
    let mut role = context.cluster.role.subscribe();
    // The sender is in the context.
    while role.wait_for(|leads| *leads).await.is_ok() {
        match follow_records(&context, &namespaces).await {
            Ok(()) => drop(role.wait_for(|leads| !*leads).await),
            Err(error) => {
                tracing::warn!(%error, "reading the records of requests failed; retrying");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn follow_records(context: &Arc<Context>, namespaces: &[String]) -> Result<(), StoreError> {
    let mut keys = pin!(context.storage.collector.records());
    while let Some(key) = keys.next().await {
        let key = key?;
        let Some(request) = context
            .storage
            .collector
            .recorded(&key, &context.policy.limits)
            .await?
        else {
            continue;
        };
        // Other operators that share the store handle theirs.
        let namespace = request.namespace().unwrap_or_default();
        let is_ours = namespaces.is_empty() || namespaces.contains(&namespace);
        if !is_ours || !is_gone(context, &request, &key).await {
            continue;
        }
        if context
            .storage
            .collector
            .is_listed(&request, &context.policy.limits)
            .await?
        {
            // It was finished when it was deleted, or has been cleaned up.
            context
                .storage
                .collector
                .forget(&request, &context.policy.limits)
                .await?
        } else {
            abandon(context.clone(), request)
        }
    }
    Ok(())
}

/// Whether the request of a record was in this cluster and does not exist any more.
async fn is_gone(context: &Context, request: &ProfileRequest, key: &str) -> bool {
    if !context.cluster.requests.is_gone(key).await {
        return false;
    }
    let namespaces: Api<Namespace> = Api::all(context.cluster.client.clone());
    let namespace = request.namespace().unwrap_or_default();
    let there = call(|| namespaces.get_metadata(&namespace)).await;
    let status = request.status.as_ref();
    let recorded = status.and_then(|it| it.namespace_uid.clone());
    there.is_ok_and(|there| recorded.is_some() && there.uid() == recorded)
}
