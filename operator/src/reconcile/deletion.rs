//! Requests that are deleted while their samplers run: these are told to drop what they have, and a manifest names what they may have stored, so
//! that it goes in time.
//!
//! No finalizer holds a request for that: it can be deleted at any time, also where the operator is away or was removed for good. A deletion that
//! no operator has seen is heard of by the relay, which knows when a request is gone; a sampler that asks only the store goes on to its end.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use tracing::Instrument as _;

use crate::backoff::pause;
use crate::decide::decision::is_settled;
use crate::decide::effect::{Done, Telling};
use crate::decide::limits::{Deadlines, Limits};
use crate::reconcile::context::Context;
use crate::reconcile::execute::{AT_ONCE, tell_store};
use crate::sampler::cancellation::Stop;

/// Beside the work: nobody waits for it, and a store that is away is tried for as long as it is for any request.
pub fn abandon(context: Arc<Context>, mut request: ProfileRequest) {
    context.forget(&request);
    let Some(start) = request.status.as_ref().and_then(|it| it.start_time.clone()) else {
        return;
    };
    let span = tracing::info_span!(
        "of",
        request = request.name_any(),
        namespace = request.namespace().unwrap_or_default(),
        uid = request.uid().unwrap_or_default()
    );
    span.in_scope(|| tracing::info!("deleted while it runs"));
    let now = context.now();
    request.metadata.deletion_timestamp.get_or_insert(Time(now));
    let deadlines = Deadlines::new(start.0, request.spec.duration_seconds, &context.limits);
    let tellings = open_samplers(&request, &context.limits);
    for telling in &tellings {
        let Telling { key, until, .. } = telling;
        context.stops.tell(key, Stop::Drop, now, *until);
    }
    let settled = async move {
        let mut tries = 0;
        while let Err(error) = settle(&context, &request, &tellings).await {
            if context.now() > deadlines.give_up {
                tracing::warn!(error, "what a deleted request stored is not listed");
                return;
            }
            tracing::info!(error, "a deleted request is settled later");
            tries += 1;
            tokio::time::sleep(pause(tries)).await;
        }
    };
    tokio::spawn(settled.instrument(span));
}

/// The samplers of a request that may still run, and until when they ask.
pub fn open_samplers(request: &ProfileRequest, limits: &Limits) -> Vec<Telling> {
    let status = request.status.as_ref();
    let Some((status, start)) = status.and_then(|it| Some((it, it.start_time.as_ref()?))) else {
        return Vec::new();
    };
    let deadlines = Deadlines::new(start.0, request.spec.duration_seconds, limits);
    let open = status.targets.iter().filter(|target| !is_settled(target));
    open.map(|target| Telling {
        pod_uid: target.pod_uid.clone(),
        key: target.object_key.clone(),
        until: deadlines.last_upload,
    })
    .collect()
}

/// Tells the samplers that ask the store, then lists what was stored until now and what is stored before they hear.
async fn settle(
    context: &Context,
    request: &ProfileRequest,
    tellings: &[Telling],
) -> Result<(), String> {
    stream::iter(tellings.to_vec())
        .map(|telling| async move { tell_store(context, request, &telling, Stop::Drop).await })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map_err(|error| error.to_string())?;
    if let Done::StoreAway(error) = context.collector.list(request, &context.limits).await {
        return Err(error);
    }
    context.collector.clear(request).await;
    let namespace = request.namespace().unwrap_or_default();
    context.archives.count_again(&namespace);
    Ok(())
}
