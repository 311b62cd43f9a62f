//! The operator's tasks, from its start to its shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use jiff::Timestamp;
use phpprof_crds::chain;
use phpprof_operator::http::health::{self, Readiness};
use phpprof_operator::http::keyring::KeySecret;
use phpprof_operator::http::relay::RelayParts;
use phpprof_operator::http::tls::{self, Certificate};
use phpprof_operator::lease::{Election, Role};
use phpprof_operator::memory;
use phpprof_operator::metrics::{MemoryBounds, Metrics, Port};
use phpprof_operator::reconcile::context::Context;
use phpprof_operator::reconcile::store_watch::StoreWatch;
use phpprof_operator::reconcile::{archives, comparisons, controller, halts};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tower::util::MapResponseLayer;

use crate::Failed;
use crate::args::{Args, split};
use crate::wiring;

/// How long the operator waits at shutdown for uploads that are under way. It is less than a pod's
/// grace period.
const DRAINS: Duration = Duration::from_secs(25);

/// Runs until the process is asked to end, or until a task that it needs ends.
pub async fn serve(args: Args) -> Result<(), Failed> {
    // The binary contains no other provider, and only a second call fails.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let metrics = Metrics::new(&MemoryBounds {
        parts: memory::parts(),
        limit: args.memory_limit_bytes,
    });
    let client = wiring::client(&metrics).await?;
    let secret = wiring::key_secret(&args, &client)?;
    let keyring = secret.open(Timestamp::now()).await;
    let keyring = keyring.map_err(|error| chain(&error))?;
    let certificate = Arc::new(Certificate::new(&keyring)?);
    let election = wiring::election(&args, &client)?;
    let role = Arc::new(Role::new(election.is_none()));
    let (context, changed) = wiring::context(&args, client, metrics, keyring, role.clone())?;
    watch_halts(&args, &context)?;
    watch_store(&args, &context)?;
    let archives = context.cluster.archives.clone();
    tokio::spawn(archives::run(
        archives,
        changed.archives,
        args.namespace.clone(),
    ));
    tokio::spawn(comparisons::run(context.clone(), args.namespace.clone()));
    let relay = wiring::relay(&args, &context);
    let readiness = Readiness::default();
    let looped = controller::run(
        context.clone(),
        changed.requests,
        args.namespace,
        args.results_address,
        readiness.clone(),
    );
    let kept = keep_keys(secret, &context, &certificate);
    let asked = signal(SignalKind::terminate())?;
    let relayed = counted(&relay, &context.metrics);
    let scraped = context.clone();
    let told = move || scraped.metrics();
    let port = |port| context.metrics.port(port);
    let ended = tokio::select! {
        ended = looped => ended.map_err(Into::into),
        () = kept => Ok(()),
        // From here on, another replica handles requests.
        () = lead(election, &role, asked) => Ok(()),
        served = tls::serve(args.relay_address, certificate.clone(), relayed, port(Port::Relay)) => served.map_err(Into::into),
        served = health::serve(args.health_address, readiness, told, port(Port::Health)) => served.map_err(Into::into),
    };
    // The operator takes no new connections, but waits for uploads that are under way.
    let _ = tokio::time::timeout(DRAINS, relay.drained()).await;
    ended
}

/// Starts to watch what stops profiling.
fn watch_halts(args: &Args, context: &Arc<Context>) -> Result<(), Failed> {
    let (client, halts) = (&context.cluster.client, &context.cluster.halts);
    let changed = || {
        let context = context.clone();
        move || context.look_again()
    };
    if args.namespace.is_empty() {
        let watched = halts::watch_labels(client.clone(), halts.clone(), changed());
        tokio::spawn(watched);
    } else {
        let known = context.clone();
        let running = move || known.running_namespaces();
        let polled = halts::poll_labels(client.clone(), halts.clone(), running, changed());
        tokio::spawn(polled);
    }
    if let Some(map) = &args.switch_config_map {
        let (namespace, name) = split("--switch-config-map", map)?;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let (client, halts) = (client.clone(), halts.clone());
        let watched = halts::watch_switch(client, halts, namespace, name, changed());
        tokio::spawn(watched);
    }
    Ok(())
}

/// Starts to probe the store.
fn watch_store(args: &Args, context: &Context) -> Result<(), Failed> {
    let map = args.status_config_map.as_deref();
    let map = map
        .map(|map| split("--status-config-map", map))
        .transpose()?;
    let watch = StoreWatch {
        client: context.cluster.client.clone(),
        role: context.cluster.role.clone(),
        store: context.storage.store.clone(),
        metrics: context.metrics.clone(),
        map: map.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
    };
    tokio::spawn(watch.run());
    Ok(())
}

/// The relay's router. It counts the relay's answers.
fn counted(relay: &Arc<RelayParts>, metrics: &Metrics) -> Router {
    let metrics = metrics.clone();
    let count = MapResponseLayer::new(move |answer: Response| {
        metrics.relayed(answer.status().as_u16());
        answer
    });
    relay.clone().router().layer(count)
}

/// Follows the Secret of the keys while the process runs.
async fn keep_keys(secret: KeySecret, context: &Context, certificate: &Certificate) {
    let changed = || {
        if let Err(error) = certificate.renew(&context.contact.keyring) {
            tracing::error!(%error, "the renewed certificate cannot be served");
        }
        // If all keys are new, the archives' access keys are new too.
        context.cluster.archives.count_all_again();
    };
    secret.keep(context.contact.keyring.clone(), changed).await;
}

/// Takes part in the election, if there is one, until the process is asked to end.
async fn lead(election: Option<Election>, role: &Role, mut asked: Signal) {
    let asked = async {
        asked.recv().await;
        tracing::info!("asked to end");
    };
    match election {
        Some(election) => election.run(role, asked).await,
        None => asked.await,
    }
}
