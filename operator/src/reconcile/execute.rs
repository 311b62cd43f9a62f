//! Executes decisions. Every effect is idempotent.

use std::time::Instant;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use phpprof_crds::{ProfileRequest, UploadMode};
use phpprof_decide::admission::NotAdded;
use serde_json::Value;

use crate::lifecycle::effect::{Cancellation, Done, Effect, Injected};
use crate::reconcile::calls::{AT_ONCE, call};
use crate::reconcile::context::Context;
use crate::reconcile::granting::Granter;
use crate::sampler::cancellation::Stop;
use crate::sampler::container::{ContainerSettings, patch, refusal};
use crate::sampler::injection::{Injection, Task};
use crate::sampler::object_keys::stop_key;
use crate::storage::store::{ProfileStore, StoreError};

const FIELD_MANAGER: &str = "phpprof-operator";

/// Executes all effects of one decision.
pub async fn execute(
    context: &Context,
    request: &ProfileRequest,
    effects: Vec<Effect>,
) -> Vec<Done> {
    stream::iter(effects)
        .map(|effect| perform(context, request, effect))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await
}

async fn perform(context: &Context, request: &ProfileRequest, effect: Effect) -> Done {
    match effect {
        Effect::Inject(injection) => {
            let begin = Instant::now();
            let done = inject(context, &injection).await;
            let result = match done {
                Done::Injected(_) => "added",
                Done::TargetFailed { .. } => "refused",
                _ => "failed",
            };
            context.metrics.injected(result, begin.elapsed());
            done
        }
        Effect::Cancel(cancellation) => {
            match cancel(context, request, &cancellation, Stop::Keep).await {
                Ok(()) => Done::Stopped {
                    pod_uid: cancellation.pod_uid,
                },
                Err(error) => Done::NotStopped(error.to_string()),
            }
        }
        Effect::DeleteRequest => delete(&context.cluster.client, request).await,
    }
}

async fn inject(context: &Context, injection: &Injection) -> Done {
    let given = match given(context, injection).await {
        Ok(given) => given,
        Err(message) => return Done::TryAgain(format!("making a grant failed: {message}")),
    };
    let body = patch(injection, &given, &context.policy.sampler);
    let client = &context.cluster.client;
    match send(client, injection, &body, true).await {
        Ok(()) | Err(NotAdded::Unknown) => {}
        Err(refusal) => return refused(refusal, injection),
    }
    match send(client, injection, &body, false).await {
        Ok(()) => Done::Injected(Injected::of(injection)),
        Err(refusal) => refused(refusal, injection),
    }
}

/// The arguments and the environment of the sampler's container.
async fn given(context: &Context, injection: &Injection) -> Result<ContainerSettings, String> {
    let (subject, config) = (&injection.subject, &context.policy.sampler);
    let granter = Granter::new(context, subject);
    match &injection.task {
        Task::Once(run) => {
            let grants = granter.grants(run).await?;
            Ok(ContainerSettings::once(subject, run, &grants, config))
        }
        Task::Resident(residence) => {
            let container = &injection.ephemeral_container_name;
            let ask = granter.first_ask(container, residence.ask_until)?;
            let addresses = context.contact.relay_addresses.get().await;
            Ok(ContainerSettings::resident(
                subject, *residence, &ask, &addresses,
            ))
        }
    }
}

/// Tells the sampler to stop over the relay, and over the store too if the sampler may ask it.
async fn cancel(
    context: &Context,
    request: &ProfileRequest,
    cancellation: &Cancellation,
    stop: Stop,
) -> Result<(), StoreError> {
    let Cancellation { key, until, .. } = cancellation;
    let cancellations = &context.contact.cancellations;
    cancellations.cancel(key, stop, context.now(), *until);
    cancel_over_store(&context.storage.store, request, cancellation, stop).await
}

pub(crate) async fn cancel_over_store(
    store: &ProfileStore,
    request: &ProfileRequest,
    cancellation: &Cancellation,
    stop: Stop,
) -> Result<(), StoreError> {
    if request.spec.upload_mode != UploadMode::Relay && store.signs() {
        let key = stop_key(&cancellation.key);
        store.create(&key, stop.word()).await?;
    }
    Ok(())
}

async fn send(
    client: &Client,
    injection: &Injection,
    body: &Value,
    dry_run: bool,
) -> Result<(), NotAdded> {
    let subject = &injection.subject;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &subject.namespace);
    let params = PatchParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Strategic(body);
    let patched =
        call(|| pods.patch_ephemeral_containers(&subject.pod_name, &params, &patch)).await;
    match patched {
        Ok(_) => Ok(()),
        Err(error) => Err(refusal(&error, injection)),
    }
}

fn refused(refusal: NotAdded, injection: &Injection) -> Done {
    match refusal {
        NotAdded::AlreadyThere => Done::Injected(Injected::of(injection)),
        NotAdded::TryAgain(message) => Done::TryAgain(message),
        NotAdded::Unknown => {
            Done::TryAgain("the API server refused a call as a dry run, but it was none".to_owned())
        }
        NotAdded::Final(reason, message) => Done::TargetFailed {
            pod_uid: injection.subject.pod_uid.clone(),
            reason,
            message,
        },
    }
}

async fn delete(client: &Client, request: &ProfileRequest) -> Done {
    let namespace = request.namespace().unwrap_or_default();
    let requests: Api<ProfileRequest> = Api::namespaced(client.clone(), &namespace);
    let preconditions = Preconditions {
        uid: request.uid(),
        // If somebody has just extended its time to live, the request is not deleted.
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
