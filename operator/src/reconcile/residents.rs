//! The answer to a resident sampler's poll: the runs of the requests that this replica knows, with
//! fresh grants.
//!
//! Invariant: every replica returns the same runs, so it does not matter which one gets the poll; a
//! sampler stays only where profiling is allowed.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use phpprof_decide::limits::later;

use crate::http::runs::{HOLD, ask, digest};
use crate::lifecycle::runs::{self, runs};
use crate::reconcile::context::Context;
use crate::reconcile::granting::Granter;
use crate::sampler::container;
use crate::sampler::injection::{PodRun, Subject};
use crate::sampler::offer::{OfferedRun, ResidentPod, RunsOffer};

/// How often a held question checks whether profiling was stopped.
const LOOK: Duration = Duration::from_secs(3);
const TOGETHER: Duration = Duration::from_millis(50);

/// The answer, under this number of the contract; `None` if the sampler has to end.
///
/// # Errors
/// The text says why a grant could not be made.
pub async fn answer(
    context: Arc<Context>,
    asker: ResidentPod,
    spoken: u32,
) -> Result<Option<RunsOffer>, String> {
    if is_stopped(&context, &asker) {
        return Ok(None);
    }
    let limits = &context.policy.limits;
    let lease_ends = later(context.now(), limits.resident_lease);
    let ask = ask(
        &context.contact.keyring,
        &context.contact.relay_url,
        &asker,
        lease_ends,
    );
    let context = &context;
    let found = found(context, &asker);
    let seen = digest_of(&found);
    let offered = stream::iter(found)
        .map(|(subject, run)| offer(context, subject, run, spoken))
        .buffered(1)
        .try_collect();
    Ok(Some(RunsOffer {
        ask_again_seconds: limits.resident_asks.as_secs(),
        // Short enough that an answer comes well before the lease ends.
        hold_seconds: Some(HOLD.min(limits.resident_lease / 2).as_secs().max(1)),
        lease_seconds: limits.resident_lease.as_secs(),
        ask: ask.map_err(|error| error.to_string())?.having_seen(&seen),
        runs: offered.await?,
    }))
}

/// Waits until the answer differs from the runs with this digest, which the sampler already has.
pub async fn news(context: Arc<Context>, asker: ResidentPod, seen: String) {
    let mut changes = context.cluster.requests.changes();
    while !is_stopped(&context, &asker) && digest_of(&found(&context, &asker)) == seen {
        // Stopping profiling changes no request, so this checks regularly too.
        let _ = tokio::time::timeout(LOOK, changes.changed()).await;
        // Changes at about the same time are handled together.
        tokio::time::sleep(TOGETHER).await;
    }
}

fn is_stopped(context: &Context, asker: &ResidentPod) -> bool {
    let (halts, namespace) = (&context.cluster.halts, &asker.namespace);
    let is_closed = context.policy.limits.namespace_opt_in && halts.is_closed(namespace);
    halts.stops(namespace) || is_closed
}

fn digest_of(found: &[(Subject, PodRun)]) -> String {
    digest(found.iter().map(|(_, run)| run.object_key.as_str()))
}

/// The runs of the sampler that asks.
fn found(context: &Context, asker: &ResidentPod) -> Vec<(Subject, PodRun)> {
    let all = context.cluster.requests.all();
    let known = all.iter().filter_map(|request| request.0.as_ref().ok());
    let of_namespace =
        known.filter(|request| request.metadata.namespace.as_ref() == Some(&asker.namespace));
    let who = runs::AskingSampler {
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
    let found = runs(of_namespace, who, &context.policy.limits);
    found.into_iter().map(seen).collect()
}

async fn offer(
    context: &Context,
    subject: Subject,
    run: PodRun,
    spoken: u32,
) -> Result<OfferedRun, String> {
    let granter = Granter::new(context, &subject);
    let grants = granter.grants(&run).await?;
    let environment = container::environment(&context.policy.sampler, &grants, spoken);
    Ok(OfferedRun {
        arguments: container::arguments_of_offer(&subject, &run, &context.policy.sampler),
        environment: environment.into_iter().collect(),
        receipt: granter.receipt(&run)?,
        key: run.object_key,
    })
}
