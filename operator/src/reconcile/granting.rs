//! Grants of the store and of the relay, which say what a sampler may write and poll. Each sampler gets new ones.
//!
//! Invariant: a grant is for one key, one pod, and until one instant. It cannot overwrite an existing object.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use phpprof_crds::UploadMode;

use crate::http::grants;
use crate::http::keyring::GrantPod;
use crate::http::runs::ask;
use crate::http::source::named;
use crate::reconcile::calls::AT_ONCE;
use crate::reconcile::context::Context;
use crate::sampler::container::Grants;
use crate::sampler::grant::Grant;
use crate::sampler::injection::{Injection, Run, Subject};
use crate::sampler::object_keys::receipt_key;
use crate::sampler::offer::{Ask, Asker};

/// The grants for a run.
///
/// # Errors
/// The text says why a grant could not be made.
pub async fn grants(context: &Context, subject: &Subject, run: &Run) -> Result<Grants, String> {
    let checkpoints = stream::iter(run.checkpoint_keys.clone())
        .map(|key| async move { routes(context, (subject, run), &key, false).await })
        // Some stores use a service to make each signature.
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let requests = match &run.requests_key {
        Some(key) => routes(context, (subject, run), key, false).await?,
        None => Vec::new(),
    };
    Ok(Grants {
        profile: routes(context, (subject, run), &run.object_key, true).await?,
        checkpoint_seconds: run.checkpoint_seconds,
        checkpoint_times: run.checkpoint_times.clone(),
        checkpoints,
        requests,
        relay_addresses: match run.upload_mode {
            UploadMode::Direct => Vec::new(),
            _ => context.relay_addresses.get().await,
        },
    })
}

/// The grant with which a resident sampler stores the receipt of a run, over the relay.
///
/// # Errors
/// As [`grants`].
pub fn receipt(context: &Context, subject: &Subject, run: &Run) -> Result<Grant, String> {
    let key = receipt_key(&run.object_key);
    relay(context, subject, &key, run.upload_until, false)
}

/// The grant with which the resident sampler of an injection asks for runs until this time.
///
/// # Errors
/// As [`grants`].
pub fn first_ask(
    context: &Context,
    injection: &Injection,
    until: Timestamp,
) -> Result<Ask, String> {
    let subject = &injection.subject;
    let asker = Asker {
        namespace: subject.namespace.clone(),
        pod_uid: subject.pod_uid.clone(),
        pod_addresses: named(&subject.pod_addresses),
        ephemeral_container_name: injection.ephemeral_container_name.clone(),
    };
    let made = ask(&context.keyring, &context.relay_url, &asker, until);
    made.map_err(|error| error.to_string())
}

/// The routes of the request's mode, in the order in which the sampler tries them.
async fn routes(
    context: &Context,
    (subject, run): (&Subject, &Run),
    key: &str,
    asks: bool,
) -> Result<Vec<Grant>, String> {
    let mut grants = Vec::new();
    if run.upload_mode != UploadMode::Relay && context.store.signs() {
        let valid_for = valid_for(context.now(), run.upload_until);
        let grant = match asks {
            true => context.store.grant(key, valid_for).await,
            false => context.store.put_grant(key, valid_for).await,
        };
        grants.push(grant.map_err(|error| error.to_string())?);
    }
    if run.upload_mode != UploadMode::Direct {
        let mut grant = relay(context, subject, key, run.upload_until, asks)?;
        if !run.is_live {
            grant.live.clear();
        }
        grants.push(grant);
    }
    Ok(grants)
}

fn relay(
    context: &Context,
    subject: &Subject,
    key: &str,
    until: Timestamp,
    asks: bool,
) -> Result<Grant, String> {
    let pod = GrantPod {
        uid: &subject.pod_uid,
        addresses: &named(&subject.pod_addresses),
    };
    let grant = grants::grant(&context.keyring, &context.relay_url, pod, key, until);
    let mut grant = grant.map_err(|error| error.to_string())?;
    if !asks {
        grant.stop.clear();
        grant.live.clear();
    }
    Ok(grant)
}

/// A grant expires at the second that the contract names, but is valid for at least one second.
fn valid_for(now: Timestamp, until: Timestamp) -> Duration {
    let seconds = until.as_second() - now.as_second();
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
}
