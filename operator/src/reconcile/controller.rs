//! The loop around observe, decide and execute, for each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource as _, ResourceExt as _};
use phpprof_crds::{ProfileMode, ProfileRequest, ProfileRequestStatus, chain};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};
use tracing::Instrument as _;

use crate::http::health::Readiness;
use crate::http::results::{self, Results};
use crate::http::verdict::Verdicts;
use crate::lifecycle::decision::{NextLook, decide};
use crate::lifecycle::effect::{self, Done, Effect, Job};
use crate::lifecycle::observed::ObservedCluster;
use crate::lifecycle::pace::wait_until;
use crate::lifecycle::status::{is_over, is_running};
use crate::metrics::Port;
use crate::reconcile::calls::call;
use crate::reconcile::changes::{count, log};
use crate::reconcile::context::Context;
use crate::reconcile::deletion::{abandon, resume};
use crate::reconcile::execute::execute;
use crate::reconcile::follow::{follow, take_over};
use crate::reconcile::milestones::{Milestones, clear, see_progress};
use crate::reconcile::observe::{confirm, observe};
use crate::reconcile::reflected::reflected;
use crate::reconcile::requests::{strip, strip_all_but_who_asked};
use crate::reconcile::scopes::{routed, scopes};
use crate::reconcile::watches::{RequestRef, paged, reference};
use crate::reconcile::{events, jobs, triggers};
use crate::storage::expiry;

/// Requests that are reconciled at the same time. The controller's own limit would take waiting
/// requests in the order of a hash table, and some would wait for as long as there are others.
const CONCURRENCY: usize = 16;
const UNLIMITED: u16 = 0;
/// Decisions in one reconciliation. A request needs five from acceptance to its end.
const ROUNDS: usize = 16;
/// The pause after a call that may succeed later.
const PAUSE: Duration = Duration::from_secs(1);

/// Why the reconciliation of a request must be repeated.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The status could not be written. The next reconciliation starts from the API server's
    /// version.
    #[error("writing the status failed")]
    Status(#[source] kube::Error),
}

/// What the reconciliations of one process have, in addition to the shared state.
struct Reconciler {
    context: Arc<Context>,
    /// Permits for reconciliations, in the order of arrival.
    places: Semaphore,
    /// Held from the last check of a request's turn until the accepted request counts as running.
    /// Otherwise two requests could get the same place.
    accepting: Mutex<()>,
}

impl Reconciler {
    fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Reconciler {
            context,
            places: Semaphore::new(CONCURRENCY),
            accepting: Mutex::default(),
        })
    }
}

/// Requests of the whole cluster, or of one namespace.
type RequestApi = Api<DeserializeGuard<ProfileRequest>>;

/// Runs while the process runs. `changes` are requests to reconcile again. If `namespaces` is
/// empty, all namespaces are included.
///
/// # Errors
/// The results cannot be served.
pub async fn run(
    context: Arc<Context>,
    changes: UnboundedReceiver<RequestRef>,
    namespaces: Vec<String>,
    results_address: SocketAddr,
    readiness: Readiness,
) -> std::io::Result<()> {
    let scopes: Vec<RequestApi> = scopes(&context.cluster.client, &namespaces);
    tokio::spawn(announce(scopes.clone(), readiness));
    let archives = context.cluster.archives.clone();
    let swept = move || archives.count_all_again();
    tokio::spawn(expiry::run(
        context.storage.store.clone(),
        context.cluster.role.clone(),
        swept,
    ));
    tokio::spawn(take_over(context.clone(), context.cluster.role.subscribe()));
    tokio::spawn(resume(context.clone(), namespaces.clone()));
    let (stores, writers): (Vec<_>, Vec<_>) = scopes.iter().map(|_| reflector::store()).unzip();
    context.cluster.requests.know(stores);
    let served = results::serve(
        results_address,
        results(&context),
        verdicts(&context),
        triggers::alerts(&context),
        context.metrics.port(Port::Results),
    );
    let (routes, changes) = routed(changes, namespaces);
    tokio::spawn(routes);
    let reconciler = Reconciler::new(context.clone());
    let loops = scopes.into_iter().zip(writers).zip(changes);
    let loops = loops.map(|((requests, writer), changes)| {
        look_after_all(reconciler.clone(), requests, writer, changes)
    });
    tokio::select! {
        _ = futures::future::join_all(loops) => Ok(()),
        served = served => served,
    }
}

/// Reconciles the requests of one scope.
async fn look_after_all(
    reconciler: Arc<Reconciler>,
    requests: RequestApi,
    writer: reflector::store::Writer<DeserializeGuard<ProfileRequest>>,
    changes: UnboundedReceiver<RequestRef>,
) {
    let (seen, known) = (
        reconciler.context.cluster.requests.clone(),
        writer.as_reader(),
    );
    let arriving = watcher(requests, paged()).default_backoff().modify(strip);
    // Controller::new leaves deletions out.
    let changed = reflected(writer, arriving).inspect_ok(move |_| seen.touch());
    let deletions = reconciler.context.clone();
    Controller::for_stream(changed, known)
        .with_config(controller::Config::default().concurrency(UNLIMITED))
        .reconcile_on(changes)
        .run(reconcile, |_, error, _| retry(error), reconciler)
        .for_each(|result| {
            if let Err(controller::Error::ObjectNotFound(reference)) = result
                && let Some(reference) = typed(*reference)
            {
                see_deletion(&deletions, &reference, None);
            }
            std::future::ready(())
        })
        .await;
}

/// Handles a request that is deleted, or is being deleted and has the finalizer of somebody else.
fn see_deletion(context: &Arc<Context>, reference: &RequestRef, going: Option<ProfileRequest>) {
    let seen = context.ledger().forget(reference);
    if let Some(request) = seen.or(going.filter(is_running)) {
        abandon(context.clone(), request);
        context.call_next();
    }
}

fn results(context: &Context) -> Results {
    let (requests, known) = (
        context.cluster.requests.clone(),
        context.cluster.requests.clone(),
    );
    let archives = context.cluster.archives.clone();
    let find = move |namespace: &str, name: &str| known.find(namespace, name);
    let fetch = move |namespace: String, name: String| {
        let requests = requests.clone();
        async move { requests.fetch(&namespace, &name).await }.boxed()
    };
    let (shares, page_shares) = Results::shares();
    Results {
        keyring: context.contact.keyring.clone(),
        store: context.storage.store.clone(),
        archive: context.storage.archive.clone(),
        find: Box::new(find),
        fetch: Box::new(fetch),
        find_archive: Box::new(move |namespace| archives.find(namespace)),
        clock: context.clock,
        desk: context.storage.collector.desk(),
        pages: Arc::new(Semaphore::new(1)),
        shares,
        page_shares,
        live: context.contact.live.clone(),
        live_turns: Results::live_turns(),
    }
}

fn verdicts(context: &Context) -> Verdicts {
    let tokens = context.policy.verdict_tokens.clone();
    let comparisons = &context.cluster.comparisons;
    comparisons.verdicts(tokens, context.metrics.clone())
}

/// Sets readiness once all requests can be listed. The controller's own store cannot tell, because
/// it wakes only one of those that wait for it.
async fn announce(scopes: Vec<RequestApi>, readiness: Readiness) {
    for requests in scopes {
        while let Err(error) = requests
            .list_metadata(&ListParams::default().limit(1))
            .await
        {
            tracing::warn!(%error, "listing requests failed; retrying");
            tokio::time::sleep(PAUSE).await;
        }
    }
    readiness.set();
}

/// The controller reports a deleted request without its type.
fn typed(reference: ObjectRef<kube::api::DynamicObject>) -> Option<RequestRef> {
    let namespace = reference.namespace?;
    Some(ObjectRef::new(&reference.name).within(&namespace))
}

fn retry(error: &ReconcileError) -> Action {
    // A conflict only means that the cache was out of date.
    let conflict =
        matches!(error, ReconcileError::Status(kube::Error::Api(status)) if status.code == 409);
    if !conflict {
        tracing::warn!(error = %chain(error), "handling a request failed; retrying");
    }
    Action::requeue(if conflict { PAUSE / 10 } else { PAUSE })
}

/// Reconciles a request. All log lines name it.
async fn reconcile(
    guarded: Arc<DeserializeGuard<ProfileRequest>>,
    reconciler: Arc<Reconciler>,
) -> Result<Action, ReconcileError> {
    let span = tracing::info_span!(
        "of",
        request = guarded.name_any(),
        namespace = guarded.namespace().unwrap_or_default(),
        uid = guarded.uid().unwrap_or_default()
    );
    let role = reconciler.context.cluster.role.clone();
    tokio::select! {
        looked = look_after(guarded, &reconciler).instrument(span) => looked,
        // Another replica handles the request now. Pending calls to the API server are dropped, and
        // so are the results of others.
        () = role.lost() => Ok(Action::requeue(PAUSE)),
    }
}

async fn look_after(
    guarded: Arc<DeserializeGuard<ProfileRequest>>,
    reconciler: &Reconciler,
) -> Result<Action, ReconcileError> {
    let context = &reconciler.context;
    let arrival = match &guarded.0 {
        Ok(request) => context.ledger().arrive(request),
        Err(error) => {
            tracing::warn!(%error, "a request cannot be parsed; ignoring it");
            return Ok(Action::await_change());
        }
    };
    if let Some(deleted) = arrival.deleted {
        abandon(context.clone(), deleted);
        context.call_next();
    }
    let request = arrival.newest;
    if request.metadata.deletion_timestamp.is_some() {
        see_deletion(context, &reference(&request), Some(request));
        return Ok(Action::await_change());
    }
    if let Some(wait) = paced(context, &request) {
        return Ok(Action::requeue(wait));
    }
    // The semaphore is never closed.
    let _place = reconciler.places.acquire().await;
    advance(reconciler, request).await
}

/// Decides and acts, round after round, until there is nothing to do at once.
async fn advance(
    reconciler: &Reconciler,
    mut request: ProfileRequest,
) -> Result<Action, ReconcileError> {
    let context = &reconciler.context;
    let (mut done, mut rounds) = (Vec::new(), 0);
    loop {
        if !context.cluster.role.leads() {
            follow(context, &request);
            return Ok(Action::await_change());
        }
        done.extend(context.ledger().take_outcomes(&request));
        let known = record(context, &request, &done);
        let pause = done.iter().find_map(worth_a_pause);
        if pause.is_some() || rounds == ROUNDS {
            let status = known.status.unwrap_or_default();
            let written = persist(context, request, status).await?;
            clear(context, &written, &done);
            tracing::info!(error = pause, "trying again");
            return Ok(Action::requeue(PAUSE));
        }
        rounds += 1;
        let before = Milestones::of(&request);
        let decided = decided(reconciler, request, known).await?;
        request = decided.request;
        clear(context, &request, &done);
        see_progress(context, before, &request);
        for job in decided.jobs {
            jobs::start(context, &request, job);
        }
        done = execute(context, &request, decided.effects).await;
        if done.contains(&Done::Deleted) {
            return Ok(Action::await_change());
        }
        // What a job brings is not known yet, and its end starts a reconciliation.
        if done.is_empty() {
            match decided.next {
                NextLook::Now => {}
                NextLook::OnChange => return Ok(Action::await_change()),
                NextLook::At(instant) => return Ok(Action::requeue(until(context.now(), instant))),
            }
        }
    }
}

/// Records what was done since `request` was written: in the ledger, in an event, and in the
/// returned copy, whose status is not written yet.
fn record(context: &Arc<Context>, request: &ProfileRequest, done: &[Done]) -> ProfileRequest {
    let now = context.now();
    context.ledger().record(request, done, now);
    let is_injected = |done: &&Done| matches!(done, Done::Injected(_));
    let injected = done.iter().filter(is_injected).count();
    if injected > 0 {
        context
            .cluster
            .publish(request, vec![events::injected(injected)]);
    }
    let mut known = request.clone();
    let status = known.status.get_or_insert_default();
    effect::record(status, done, request.metadata.generation, now);
    known
}

/// A decision whose status is written.
struct Decided {
    request: ProfileRequest,
    effects: Vec<Effect>,
    jobs: Vec<Job>,
    next: NextLook,
}

/// Decides, and writes the status before anything is executed. What was done and what follows from
/// it become one change: `known` has what was done, and `request` is the last written version.
async fn decided(
    reconciler: &Reconciler,
    request: ProfileRequest,
    known: ProfileRequest,
) -> Result<Decided, ReconcileError> {
    let context = &reconciler.context;
    let mut observed = look(context, &known).await;
    let accepting = match observed.admission {
        Some(_) => Some(reconciler.accepting.lock().await),
        None => None,
    };
    confirm(context, &known, &mut observed);
    let decision = decide(context.now(), &known, &observed, &context.policy.limits);
    let request = persist(context, request, decision.status).await?;
    context.ledger().see(&request);
    drop(accepting);
    Ok(Decided {
        request,
        effects: decision.effects,
        jobs: decision.jobs,
        next: decision.next,
    })
}

/// How long the reconciliation waits, so that changes at about the same time are written together.
fn paced(context: &Context, request: &ProfileRequest) -> Option<Duration> {
    let namespace = request.namespace().unwrap_or_default();
    if context.cluster.halts.stops(&namespace) {
        return None;
    }
    let (now, ledger) = (context.now(), context.ledger());
    let entry = ledger.get(request)?;
    let until = wait_until(request, entry.writes()?, entry.outcomes())?;
    (now < until).then(|| self::until(now, until))
}

/// Observes the cluster for the request, or returns that it could not.
async fn look(context: &Context, request: &ProfileRequest) -> ObservedCluster {
    match observe(context, request).await {
        Ok(observed) => {
            if let Some(entry) = context.ledger().get_mut(request) {
                entry.observed();
            }
            observed
        }
        Err(error) => {
            let message = chain(&error);
            tracing::warn!(
                error = message,
                "reading the cluster's state failed; retrying"
            );
            let (now, mut ledger) = (context.now(), context.ledger());
            let blind = ledger.entry(request).observation_failed(message, now);
            ObservedCluster {
                blind: Some(blind),
                ..ObservedCluster::default()
            }
        }
    }
}

/// Never zero, so that a deadline that has just passed causes no busy loop.
fn until(now: Timestamp, instant: Timestamp) -> Duration {
    Duration::try_from(instant.duration_since(now))
        .unwrap_or_default()
        .max(Duration::from_millis(5))
}

fn worth_a_pause(done: &Done) -> Option<&str> {
    match done {
        Done::TryAgain(message) | Done::NotStopped(message) => Some(message),
        _ => None,
    }
}

/// Writes the status if it has changed, and only over the version that the decision was based on.
async fn persist(
    context: &Arc<Context>,
    request: ProfileRequest,
    status: ProfileRequestStatus,
) -> Result<ProfileRequest, ReconcileError> {
    let old = request.status.clone().unwrap_or_default();
    let status = opened(context, &request, status);
    if old == status {
        return Ok(request);
    }
    let requests: Api<ProfileRequest> = Api::namespaced(
        context.cluster.client.clone(),
        &request.namespace().unwrap_or_default(),
    );
    // Most of a finished request was dropped when it arrived. Writing it back would delete it in
    // the cluster.
    let changed = if is_over(&request) {
        json!({
            "observedGeneration": status.observed_generation, "exportTime": status.export_time,
        })
    } else {
        json!(status)
    };
    let patch =
        json!({"metadata": {"resourceVersion": request.resource_version()}, "status": changed});
    let (name, params, patch) = (
        request.name_any(),
        PatchParams::default(),
        Patch::Merge(patch),
    );
    let written = call(|| requests.patch_status(&name, &params, &patch)).await;
    let mut written = written.map_err(ReconcileError::Status)?;
    strip_all_but_who_asked(written.meta_mut());
    let (replaced, now) = (request.resource_version(), context.now());
    context.ledger().wrote(replaced, &written, now);
    log(&written, &old);
    count(&context.metrics, &old, &status);
    let events = events::between(&written, &old, &status);
    context.cluster.publish(&written, events);
    Ok(written)
}

/// A live request is read while it runs, so its status has the key from its acceptance on.
fn opened(
    context: &Context,
    request: &ProfileRequest,
    status: ProfileRequestStatus,
) -> ProfileRequestStatus {
    let runs = status.start_time.is_some() && status.completion_time.is_none();
    if request.spec.mode == ProfileMode::Live && runs {
        ProfileRequestStatus {
            access_key: context
                .contact
                .keyring
                .access_key(&request.uid().unwrap_or_default())
                .into(),
            ..status
        }
    } else {
        status
    }
}

#[cfg(test)]
mod tests;
