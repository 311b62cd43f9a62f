//! What a resident sampler is answered: the runs of the requests that this replica knows, with fresh grants.
//!
//! Invariant: any replica gives the same runs, so that it does not matter which one is asked; a sampler is kept only where profiling is allowed.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::decide::limits::later;
use crate::decide::runs::{self, runs};
use crate::http::runs::ask;
use crate::reconcile::context::Context;
use crate::reconcile::granting::{grants, receipt};
use crate::sampler::container;
use crate::sampler::injection::{Run, Subject};
use crate::sampler::offer::{Answer, Asker, OfferedRun};

/// The answer, or nothing where the sampler shall end.
///
/// # Errors
/// Why a grant could not be made, in words.
pub async fn answer(context: Arc<Context>, asker: Asker) -> Result<Option<Answer>, String> {
    let (halts, limits) = (&context.halts, &context.limits);
    let namespace = &asker.namespace;
    let is_closed = limits.namespace_opt_in && halts.is_closed(namespace);
    if halts.why(namespace).is_some() || is_closed {
        return Ok(None);
    }
    let lease_ends = later(context.now(), limits.resident_lease);
    let ask = ask(&context.keyring, &context.relay_url, &asker, lease_ends);
    let context = &context;
    let offered = stream::iter(found(context, &asker))
        .map(|(subject, run)| offer(context, subject, run))
        .buffered(1)
        .try_collect();
    Ok(Some(Answer {
        ask_again_seconds: limits.resident_asks.as_secs(),
        lease_seconds: limits.resident_lease.as_secs(),
        ask: ask.map_err(|error| error.to_string())?,
        runs: offered.await?,
    }))
}

/// The runs of the sampler that asks.
fn found(context: &Context, asker: &Asker) -> Vec<(Subject, Run)> {
    let all = context.requests.all();
    let known = all.iter().filter_map(|request| request.0.as_ref().ok());
    let of_namespace =
        known.filter(|request| request.metadata.namespace.as_ref() == Some(&asker.namespace));
    let who = runs::Asker {
        pod_uid: &asker.pod_uid,
        ephemeral_container_name: &asker.ephemeral_container_name,
    };
    let addresses = asker.pod_addresses.split(',');
    let pod_addresses: Vec<_> = addresses.filter_map(|name| name.parse().ok()).collect();
    let seen = |(subject, run)| {
        let subject = Subject {
            pod_addresses: pod_addresses.clone(),
            ..subject
        };
        (subject, run)
    };
    let found = runs(of_namespace, who, &context.limits);
    found.into_iter().map(seen).collect()
}

async fn offer(context: &Context, subject: Subject, run: Run) -> Result<OfferedRun, String> {
    let grants = grants(context, &subject, &run).await?;
    let environment = container::environment(&context.sampler, &grants);
    Ok(OfferedRun {
        arguments: container::arguments_of_offer(&subject, &run, &context.sampler),
        environment: environment.into_iter().collect(),
        receipt: receipt(context, &subject, &run)?,
        key: run.object_key,
    })
}
