//! phpprof-operator: flags, wiring, and an exit code.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use clap::Parser;
use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::client::ClientBuilder;
use kube::runtime::events::Recorder;
use phpprof_operator::chain::chain;
use phpprof_operator::decide::limits::Limits;
use phpprof_operator::export::exporter::ExportArgs;
use phpprof_operator::export::links::{self, Template};
use phpprof_operator::http::health::{self, Readiness};
use phpprof_operator::http::keyring::KeySecret;
use phpprof_operator::http::relay::{Gone, Relay};
use phpprof_operator::http::source::VerifySource;
use phpprof_operator::http::tls::{self, Certificate};
use phpprof_operator::lease::{Election, Role};
use phpprof_operator::metrics::Metrics;
use phpprof_operator::reconcile::archives::{self, Archives};
use phpprof_operator::reconcile::context::Context;
use phpprof_operator::reconcile::controller;
use phpprof_operator::reconcile::expectations::Expectations;
use phpprof_operator::reconcile::halts::{self, Halts};
use phpprof_operator::reconcile::jobs::Jobs;
use phpprof_operator::reconcile::requests::Requests;
use phpprof_operator::reconcile::running::Running;
use phpprof_operator::reconcile::watches::PodWatches;
use phpprof_operator::reconcile::written::Written;
use phpprof_operator::sampler::cancellation::Stops;
use phpprof_operator::sampler::container::SamplerConfig;
use phpprof_operator::storage::archive::Archive;
use phpprof_operator::storage::collector::Collector;
use phpprof_operator::storage::store::{Store, StoreConfig};
use phpprof_operator::storage::usage::Usage;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tower::BoxError;
use tower::util::{MapResponseLayer, MapResultLayer};
use tracing_subscriber::EnvFilter;

/// Turns ProfileRequests into samplers and their uploads into one profile. Every flag is set by the chart.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where profiles are stored: file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix;
    /// credentials come from the environment
    #[arg(long)]
    store_url: String,
    /// Endpoint of an S3 server that is not at AWS, for instance https://s3.example.org
    #[arg(long)]
    store_endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long)]
    store_region: Option<String>,
    /// Put the bucket into the path instead of the host name
    #[arg(long)]
    store_path_style: bool,
    /// PEM file of a private CA that signed the store's certificate
    #[arg(long)]
    store_ca_bundle: Option<PathBuf>,
    /// Image of the sampler
    #[arg(long)]
    sampler_image: String,
    /// When nodes pull the sampler's image
    #[arg(long, default_value = "IfNotPresent")]
    sampler_pull_policy: String,
    /// What a sampler may use of one core, in percent; beyond that it samples less often
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=400))]
    sampler_cpu_percent: u32,
    /// Accept requests of every namespace, not only of those labelled phpprof.dev/profiling=enabled
    #[arg(long)]
    all_namespaces: bool,
    /// Look after the requests of this namespace only; may be given several times
    #[arg(long)]
    namespace: Vec<String>,
    /// The longest durationSeconds of a request
    #[arg(long, default_value_t = 300)]
    max_duration_seconds: i32,
    /// The highest samplesPerSecond of a request
    #[arg(long, default_value_t = 1000)]
    max_samples_per_second: i32,
    /// The most pods of a request
    #[arg(long, default_value_t = 10)]
    max_pods: i32,
    /// Ephemeral containers of ours in one pod, over its whole life
    #[arg(long, default_value_t = 64)]
    max_ephemeral_containers: usize,
    /// Requests that run at the same time in a namespace; others wait
    #[arg(long, default_value_t = 16)]
    max_requests_per_namespace: usize,
    /// Requests that run at the same time in all; others wait
    #[arg(long, default_value_t = 64)]
    max_requests: usize,
    /// Samplers that run at the same time on a node; requests for more wait
    #[arg(long, default_value_t = 16)]
    max_samplers_per_node: usize,
    /// Bytes that the profiles of a namespace may take in the store; while they take more, no request is accepted there. 0 for no limit
    #[arg(long, default_value_t = 0)]
    max_stored_bytes_per_namespace: u64,
    /// How long a request waits for its turn
    #[arg(long, default_value_t = 600)]
    queue_timeout_seconds: i64,
    /// How long a sampler may take to start
    #[arg(long, default_value_t = 60)]
    start_slack_seconds: i64,
    /// How long uploads are retried; grants end then
    #[arg(long, default_value_t = 600)]
    upload_deadline_seconds: i64,
    /// How often a run that takes longer stores what it has sampled so far; in long runs more seldom, 29 times at most
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(i32).range(10..))]
    checkpoint_seconds: i32,
    /// How long profiles are verified and merged after that, while the store does not answer
    #[arg(long, default_value_t = 300)]
    store_grace_seconds: i64,
    /// Address of the relay, where samplers bring their profiles
    #[arg(long, default_value = "0.0.0.0:8443")]
    relay_address: SocketAddr,
    /// Where samplers reach the relay, for instance https://phpprof-operator.phpprof-system.svc:8443
    #[arg(long)]
    relay_url: String,
    /// What the relay does about an upload whose source is not an address of its pod
    #[arg(long, value_enum, default_value_t)]
    verify_source: VerifySource,
    /// Secret that holds the operator's own keys, as namespace/name; it must exist, and is filled at the first start
    #[arg(long)]
    key_secret: String,
    /// Lease of which one replica at a time looks after requests, as namespace/name; it must exist. Without it the operator must be alone
    #[arg(long)]
    lease: Option<String>,
    /// ConfigMap that stops all profiling, as namespace/name: profiling: stopped
    #[arg(long)]
    switch_config_map: Option<String>,
    /// Address of the results, which are served without TLS: behind an Ingress, a port-forward or the API server
    #[arg(long, default_value = "0.0.0.0:8080")]
    results_address: SocketAddr,
    /// Where people reach the results, for instance https://phpprof.example.org; requests get a link to their flame graph then
    #[arg(long)]
    results_url: Option<String>,
    /// Link of each request's status, as NAME=URL with {namespace}, {name}, {uid}, {workload}, {service}, {accessKey}, {from} and {to}; may be
    /// given several times
    #[arg(long)]
    link: Vec<Template>,
    #[command(flatten)]
    exporter: ExportArgs,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_address: SocketAddr,
}

/// How long uploads that are under way are heard out when the operator is asked to end; less than a pod's grace period.
const DRAINS: Duration = Duration::from_secs(25);

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_span_list(false)
        .with_env_filter(filter)
        .init();
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.to_string();
            tracing::error!(error, "the operator cannot run");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    // The only provider that is compiled in; a second call is the only way to fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca_bundle = match &args.store_ca_bundle {
        None => None,
        Some(path) => Some(
            std::fs::read_to_string(path)
                .map_err(|error| format!("reading {}: {error}", path.display()))?,
        ),
    };
    let store = Store::open(&StoreConfig {
        url: args.store_url.clone(),
        endpoint: args.store_endpoint.clone(),
        region: args.store_region.clone(),
        path_style: args.store_path_style,
        ca_bundle: ca_bundle.clone(),
    })?;
    let mut limits = limits(&args, &store);
    let page = args.results_url.as_deref().map(links::page);
    let grafana = args.exporter.templates()?;
    let links = page.into_iter().chain(grafana).chain(args.link).collect();
    let exporter = args.exporter.open(ca_bundle.as_deref())?;
    limits.exports = !exporter.is_empty();
    let sampler = SamplerConfig {
        image: args.sampler_image,
        pull_policy: args.sampler_pull_policy,
        cpu_budget_percent: args.sampler_cpu_percent,
        ca_bundle,
    };
    let metrics = Metrics::default();
    let client = client(&metrics).await?;
    let (namespace, name) = args
        .key_secret
        .split_once('/')
        .ok_or("--key-secret is namespace/name")?;
    let secret = KeySecret {
        client: client.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let keyring = secret
        .open(Timestamp::now())
        .await
        .map_err(|error| chain(&error))?;
    let certificate = Arc::new(Certificate::new(&keyring)?);
    let stops = Arc::new(Stops::default());
    let requests = Arc::new(Requests::new(client.clone(), store.prefix()));
    let known = requests.clone();
    let gone: Gone = Box::new(move |key| {
        let known = known.clone();
        async move { known.is_gone(&key).await }.boxed()
    });
    let election = args.lease.as_deref().map(|lease| elect(&client, lease));
    let election = election.transpose()?;
    let role = Arc::new(Role::new(election.is_none()));
    let mut relay = Relay::new(keyring.clone(), store.clone(), stops.clone(), gone);
    relay.verify_source = args.verify_source;
    let relay = Arc::new(relay);
    let readiness = Readiness::default();
    let archive = Arc::new(Archive::new(store.clone()));
    let (archives, archives_changed) = Archives::new(
        client.clone(),
        keyring.clone(),
        archive.clone(),
        role.clone(),
        args.results_url,
    );
    let (watches, changes) = PodWatches::new(client.clone());
    let context = Arc::new(Context {
        recorder: Recorder::new(client.clone(), "phpprof-operator".into()),
        collector: Collector::new(store.clone()),
        archive,
        archives: archives.clone(),
        usage: Usage::new(store.clone()),
        expectations: Expectations::default(),
        metrics: metrics.clone(),
        halts: Halts::default(),
        jobs: Jobs::default(),
        running: Running::default(),
        role: role.clone(),
        accepting: Default::default(),
        written: Written::default(),
        places: Semaphore::new(controller::CONCURRENCY),
        clock: Timestamp::now,
        client,
        limits,
        sampler,
        store,
        keyring: keyring.clone(),
        relay_url: args.relay_url,
        stops,
        links,
        exporter,
        requests,
        watches,
    });
    match args.namespace.is_empty() {
        true => tokio::spawn(halts::watch_labels(context.clone())),
        false => tokio::spawn(halts::poll_labels(context.clone())),
    };
    if let Some(map) = &args.switch_config_map {
        let (namespace, name) = map
            .split_once('/')
            .ok_or("--switch-config-map is namespace/name")?;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        tokio::spawn(halts::watch_switch(context.clone(), namespace, name));
    }
    let scraped = context.clone();
    let told = move || scraped.metrics();
    let relayed = relay
        .clone()
        .router()
        .layer(MapResponseLayer::new(move |answer: Response| {
            metrics.relayed(answer.status().as_u16());
            answer
        }));
    let kept_archives = archives.clone();
    tokio::spawn(archives::run(
        archives,
        archives_changed,
        args.namespace.clone(),
    ));
    let looped = controller::run(
        context,
        changes,
        args.namespace,
        args.results_address,
        readiness.clone(),
    );
    let kept = secret.keep(keyring.clone(), || {
        if let Err(error) = certificate.renew(&keyring) {
            tracing::error!(%error, "the renewed certificate cannot be served");
        }
        // Where all keys are new, the archives' are.
        kept_archives.count_all_again();
    });
    let mut asked = signal(SignalKind::terminate())?;
    let asked = async move {
        asked.recv().await;
        tracing::info!("asked to end");
    };
    let led = async {
        match election {
            Some(election) => election.run(&role, asked).await,
            None => asked.await,
        }
    };
    let ended = tokio::select! {
        ended = looped => ended.map_err(Into::into),
        () = kept => Ok(()),
        // Another replica looks after requests from here on.
        () = led => Ok(()),
        served = tls::serve(args.relay_address, certificate.clone(), relayed) => served.map_err(Into::into),
        served = health::serve(args.health_address, readiness, told) => served.map_err(Into::into),
    };
    // Nobody is let in any more; who brings a profile is heard out.
    let _ = tokio::time::timeout(DRAINS, relay.drained()).await;
    ended
}

/// Takes part in the election for a Lease, given as namespace/name, under the name of the operator's pod.
fn elect(client: &kube::Client, lease: &str) -> Result<Election, Box<dyn std::error::Error>> {
    let (namespace, name) = lease.split_once('/').ok_or("--lease is namespace/name")?;
    let identity = std::env::var("HOSTNAME").unwrap_or_default();
    if identity.is_empty() {
        return Err("HOSTNAME, the name of the operator's pod, is not set".into());
    }
    Ok(Election::new(client.clone(), namespace, name, identity))
}

/// A client whose calls are counted.
async fn client(metrics: &Metrics) -> Result<kube::Client, Box<dyn std::error::Error>> {
    let config = kube::Config::infer().await?;
    let counted = metrics.clone();
    let count = MapResultLayer::new(move |answer: Result<http::Response<_>, BoxError>| {
        counted.called(answer.as_ref().ok().map(|it| it.status().as_u16()));
        answer
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&count).build())
}

fn limits(args: &Args, store: &Store) -> Limits {
    Limits {
        namespace_opt_in: !args.all_namespaces,
        duration_seconds: args.max_duration_seconds,
        samples_per_second: args.max_samples_per_second,
        pods: args.max_pods,
        ephemeral_containers: args.max_ephemeral_containers,
        requests_of_namespace: args.max_requests_per_namespace,
        requests_of_cluster: args.max_requests,
        samplers_of_node: args.max_samplers_per_node,
        bytes_of_namespace: Some(args.max_stored_bytes_per_namespace).filter(|&bytes| bytes > 0),
        queue_timeout: SignedDuration::from_secs(args.queue_timeout_seconds),
        start_slack: SignedDuration::from_secs(args.start_slack_seconds),
        upload_deadline: SignedDuration::from_secs(args.upload_deadline_seconds),
        checkpoint_seconds: args.checkpoint_seconds,
        store_grace: SignedDuration::from_secs(args.store_grace_seconds),
        store_signs: store.signs(),
        exports: false,
        key_prefix: store.prefix().to_owned(),
    }
}
