//! Does what was decided. Every effect can be done again without harm.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{ProfileRequest, UploadMode};
use serde_json::Value;

use crate::decide::effect::{Done, Effect, Telling};
use crate::http::grants;
use crate::http::keyring::GrantPod;
use crate::http::source::named;
use crate::reconcile::calls::call;
use crate::reconcile::context::Context;
use crate::reconcile::jobs;
use crate::reconcile::watches::RequestRef;
use crate::sampler::cancellation::Stop;
use crate::sampler::container::{Grants, Refusal, patch, refusal};
use crate::sampler::grant::Grant;
use crate::sampler::injection::Injection;
use crate::sampler::object_keys::stop_key;
use crate::storage::store::StoreError;

/// Pods that are patched, and samplers that are told over the store, at the same time.
pub(crate) const AT_ONCE: usize = 8;
const FIELD_MANAGER: &str = "phpprof-operator";

/// Does all effects of one decision, but only begins those that take long, and remembers what the next look needs.
pub async fn execute(
    context: &Arc<Context>,
    reference: &RequestRef,
    request: &ProfileRequest,
    effects: Vec<Effect>,
) -> Vec<Done> {
    let mut at_once = Vec::new();
    for effect in effects {
        match effect.job() {
            Some(job) => jobs::start(context, reference, request, job, effect),
            None => at_once.push(effect),
        }
    }
    let dones: Vec<Done> = stream::iter(at_once)
        .map(|effect| perform(context, request, effect))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    remember(context, request, &dones);
    dones
}

/// Remembers how the store is, and whom it has told to stop.
pub fn remember(context: &Context, request: &ProfileRequest, dones: &[Done]) {
    let uid = request.uid().unwrap_or_default();
    for done in dones {
        match done {
            Done::StoreAway(message) => {
                context.metrics.store_failed();
                context
                    .expectations
                    .store_failed(&uid, message.clone(), context.now())
            }
            Done::Verified { .. } | Done::Recovered { .. } | Done::Merged { .. } | Done::Listed => {
                context.expectations.store_answered(&uid)
            }
            Done::Stopped { pod_uid } => context.expectations.remember_stop(&uid, pod_uid),
            _ => {}
        }
    }
}

async fn perform(context: &Context, request: &ProfileRequest, effect: Effect) -> Done {
    match effect {
        Effect::Inject(injection) => {
            let begin = Instant::now();
            let done = inject(context, &injection).await;
            let result = match done {
                Done::Injected => "added",
                Done::TargetFailed { .. } => "refused",
                _ => "failed",
            };
            context.metrics.injected(result, begin.elapsed());
            if done == Done::Injected {
                context
                    .expectations
                    .remember_injection(&request.uid().unwrap_or_default(), &injection);
            }
            done
        }
        Effect::Stop(telling) => match tell(context, request, &telling, Stop::Keep).await {
            Ok(()) => Done::Stopped {
                pod_uid: telling.pod_uid,
            },
            Err(error) => Done::StoreAway(error.to_string()),
        },
        Effect::DeleteRequest => delete(context, request).await,
        job => Done::TryAgain(format!("{job:?} is a job")),
    }
}

async fn inject(context: &Context, injection: &Injection) -> Done {
    let grants = match grants(context, injection).await {
        Ok(grants) => grants,
        Err(message) => return Done::TryAgain(format!("making a grant failed: {message}")),
    };
    let body = patch(injection, &context.sampler, &grants);
    match send(context, injection, &body, true).await {
        Ok(()) | Err(Refusal::Unknown) => {}
        Err(refusal) => return refused(refusal, injection),
    }
    match send(context, injection, &body, false).await {
        Ok(()) => Done::Injected,
        Err(refusal) => refused(refusal, injection),
    }
}

/// Tells over the relay, and where the sampler may ask the store, there too.
async fn tell(
    context: &Context,
    request: &ProfileRequest,
    telling: &Telling,
    stop: Stop,
) -> Result<(), StoreError> {
    let Telling { key, until, .. } = telling;
    context.stops.tell(key, stop, context.now(), *until);
    tell_store(context, request, telling, stop).await
}

pub(crate) async fn tell_store(
    context: &Context,
    request: &ProfileRequest,
    telling: &Telling,
    stop: Stop,
) -> Result<(), StoreError> {
    if request.spec.upload_mode != UploadMode::Relay && context.store.signs() {
        let key = stop_key(&telling.key);
        context.store.create(&key, stop.word()).await?;
    }
    Ok(())
}

async fn grants(context: &Context, injection: &Injection) -> Result<Grants, String> {
    let checkpoints = stream::iter(injection.checkpoint_keys.clone())
        .map(|key| async move { routes(context, injection, &key, false).await })
        // Some stores have each signature made by a service.
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(Grants {
        profile: routes(context, injection, &injection.object_key, true).await?,
        checkpoint_seconds: injection.checkpoint_seconds,
        checkpoints,
    })
}

/// The routes of the request's mode, in the order in which the sampler tries them.
async fn routes(
    context: &Context,
    injection: &Injection,
    key: &str,
    asks: bool,
) -> Result<Vec<Grant>, String> {
    let mut grants = Vec::new();
    if injection.upload_mode != UploadMode::Relay && context.store.signs() {
        let valid_for = valid_for(context.now(), injection.upload_until);
        let grant = match asks {
            true => context.store.grant(key, valid_for).await,
            false => context.store.put_grant(key, valid_for).await,
        };
        grants.push(grant.map_err(|error| error.to_string())?);
    }
    if injection.upload_mode != UploadMode::Direct {
        let (keyring, address) = (&context.keyring, &context.relay_url);
        let pod = GrantPod {
            uid: &injection.pod_uid,
            addresses: &named(&injection.pod_addresses),
        };
        let grant = grants::grant(keyring, address, pod, key, injection.upload_until);
        let mut grant = grant.map_err(|error| error.to_string())?;
        if !asks {
            grant.stop.clear();
        }
        grants.push(grant);
    }
    Ok(grants)
}

/// A grant ends at the second the contract names, and lives one second at least.
fn valid_for(now: Timestamp, until: Timestamp) -> Duration {
    let seconds = until.as_second() - now.as_second();
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
}

async fn send(
    context: &Context,
    injection: &Injection,
    body: &Value,
    dry_run: bool,
) -> Result<(), Refusal> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &injection.namespace);
    let params = PatchParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(body);
    let patched =
        call(|| pods.patch_ephemeral_containers(&injection.pod_name, &params, &patch)).await;
    match patched {
        Ok(_) => Ok(()),
        Err(error) => Err(refusal(&error, injection)),
    }
}

fn refused(refusal: Refusal, injection: &Injection) -> Done {
    match refusal {
        Refusal::AlreadyThere => Done::Injected,
        Refusal::TryAgain(message) => Done::TryAgain(message),
        Refusal::Unknown => {
            Done::TryAgain("the API server refused a dry run that was none".to_owned())
        }
        Refusal::Final(reason, message) => Done::TargetFailed {
            pod_uid: injection.pod_uid.clone(),
            reason,
            message,
        },
    }
}

async fn delete(context: &Context, request: &ProfileRequest) -> Done {
    let requests: Api<ProfileRequest> = Api::namespaced(
        context.client.clone(),
        &request.namespace().unwrap_or_default(),
    );
    let preconditions = Preconditions {
        uid: request.uid(),
        // Whoever has extended its life a moment ago is heard.
        resource_version: request.resource_version(),
    };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let name = request.name_any();
    match call(|| requests.delete(&name, &params)).await {
        Ok(_) => Done::Deleted,
        Err(kube::Error::Api(status)) if status.code == 404 => Done::Deleted,
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Done::TryAgain("the request has changed since it was read".to_owned())
        }
        Err(error) => Done::TryAgain(error.to_string()),
    }
}
