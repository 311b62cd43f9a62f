//! Builds the parts of the operator from the flags and from each other.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use jiff::Timestamp;
use kube::client::ClientBuilder;
use kube::runtime::events::Recorder;
use phpprof_operator::export::links::{self, LinkTemplate};
use phpprof_operator::http::addresses::RelayAddresses;
use phpprof_operator::http::keyring::{KeySecret, Keyring};
use phpprof_operator::http::live::Live;
use phpprof_operator::http::relay::{Gone, RelayParts};
use phpprof_operator::http::runs::Runs;
use phpprof_operator::http::tokens::NamespaceTokens;
use phpprof_operator::lease::{Election, Role};
use phpprof_operator::metrics::Metrics;
use phpprof_operator::reconcile::archives::{ArchiveChanges, Archives};
use phpprof_operator::reconcile::context::{AdminPolicy, ClusterView, Contact, Context, Storage};
use phpprof_operator::reconcile::halts::Halts;
use phpprof_operator::reconcile::requests::RequestLookup;
use phpprof_operator::reconcile::residents;
use phpprof_operator::reconcile::verdicts::ComparisonLookup;
use phpprof_operator::reconcile::watches::{PodWatches, RequestRef};
use phpprof_operator::sampler::cancellation::Cancellations;
use phpprof_operator::storage::archive::Archive;
use phpprof_operator::storage::collector::Collector;
use phpprof_operator::storage::store::ProfileStore;
use phpprof_operator::storage::usage::StorageUsage;
use tower::BoxError;
use tower::util::MapResultLayer;

use crate::Failed;
use crate::args::{Args, split};

/// Objects that changed and have to be reconciled again.
pub struct Queues {
    pub requests: UnboundedReceiver<RequestRef>,
    pub archives: ArchiveChanges,
}

/// A client whose calls are counted.
pub async fn client(metrics: &Metrics) -> Result<kube::Client, Failed> {
    let config = kube::Config::infer().await?;
    let counted = metrics.clone();
    let count = MapResultLayer::new(move |answer: Result<http::Response<_>, BoxError>| {
        counted.called(answer.as_ref().ok().map(|it| it.status().as_u16()));
        answer
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&count).build())
}

pub fn key_secret(args: &Args, client: &kube::Client) -> Result<KeySecret, Failed> {
    let (namespace, name) = split("--key-secret", &args.key_secret)?;
    Ok(KeySecret {
        client: client.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Takes part in the election for the Lease, if there is one, under the name of the operator's pod.
pub fn election(args: &Args, client: &kube::Client) -> Result<Option<Election>, Failed> {
    let Some(lease) = &args.lease else {
        return Ok(None);
    };
    let (namespace, name) = split("--lease", lease)?;
    let identity = std::env::var("HOSTNAME").unwrap_or_default();
    if identity.is_empty() {
        return Err("HOSTNAME, the name of the operator's pod, is not set".into());
    }
    let election = Election::new(client.clone(), namespace, name, identity);
    Ok(Some(election))
}

/// Builds what all requests share.
pub fn context(
    args: &Args,
    client: kube::Client,
    metrics: Metrics,
    keyring: Keyring,
    role: Arc<Role>,
) -> Result<(Arc<Context>, Queues), Failed> {
    let ca_bundle = args.ca_bundle()?;
    let store = ProfileStore::open(&args.store(ca_bundle.clone()))?.counted(metrics.store_errors());
    let exporter = args.exporter.clone().open(ca_bundle.as_deref())?;
    let archive = Arc::new(Archive::new(store.clone()));
    let (archives, archives_changed) = Archives::new(
        client.clone(),
        keyring.clone(),
        archive.clone(),
        role.clone(),
        args.results_url.clone(),
    );
    let collector = Collector::new(store.clone());
    let (watches, requests_changed) = PodWatches::new(client.clone());
    let policy = AdminPolicy {
        limits: args.limits(&store, !exporter.is_empty()),
        sampler: args.sampler(ca_bundle)?,
        links: templates(args)?,
        verdict_tokens: args.verdict_tokens.clone().map(NamespaceTokens::new),
        alert_tokens: args.alert_tokens.clone().map(NamespaceTokens::new),
    };
    let live = Live::new(role.clone(), collector.desk());
    let cluster = ClusterView {
        requests: Arc::new(RequestLookup::new(client.clone(), store.prefix())),
        comparisons: Arc::new(ComparisonLookup::new(client.clone())),
        recorder: Recorder::new(client.clone(), "phpprof-operator".into()),
        halts: Arc::new(halts(args)),
        client,
        role,
        watches,
        archives,
    };
    let storage = Storage {
        usage: StorageUsage::new(store.clone()),
        store,
        collector,
        archive,
        exporter,
    };
    let context = Context {
        cluster,
        storage,
        contact: contact(args, keyring, live),
        policy,
        ledger: Default::default(),
        metrics,
        clock: Timestamp::now,
    };
    let queues = Queues {
        requests: requests_changed,
        archives: archives_changed,
    };
    Ok((Arc::new(context), queues))
}

/// The links of each status, those that the administrator has added last.
fn templates(args: &Args) -> Result<Vec<LinkTemplate>, Failed> {
    let page = args.results_url.as_deref().map(links::page);
    let links = page.into_iter().chain(args.exporter.templates()?);
    Ok(links.chain(args.link.clone()).collect())
}

fn halts(args: &Args) -> Halts {
    match args.switch_config_map {
        Some(_) => Halts::with_switch(),
        None => Halts::default(),
    }
}

fn contact(args: &Args, keyring: Keyring, live: Live) -> Contact {
    Contact {
        keyring,
        relay_url: args.relay_url.clone(),
        relay_addresses: RelayAddresses::of(&args.relay_url),
        heard: Arc::default(),
        cancellations: Arc::new(Cancellations::default()),
        live: Arc::new(live),
    }
}

pub fn relay(args: &Args, context: &Arc<Context>) -> Arc<RelayParts> {
    let known = context.cluster.requests.clone();
    let gone: Gone = Box::new(move |key| {
        let known = known.clone();
        async move { known.is_done_with(&key).await }.boxed()
    });
    let (asked, waiting) = (context.clone(), context.clone());
    let runs = Runs::new(
        Box::new(move |asker, spoken| residents::answer(asked.clone(), asker, spoken).boxed()),
        Box::new(move |asker, seen| residents::news(waiting.clone(), asker, seen).boxed()),
    );
    let mut relay = RelayParts::new(
        context.contact.keyring.clone(),
        context.storage.store.clone(),
        context.contact.cancellations.clone(),
        gone,
        runs,
    );
    relay.verify_source = args.verify_source;
    relay.live = context.contact.live.clone();
    relay.heard = context.contact.heard.clone();
    Arc::new(relay)
}
