//! The operator's flags, and what they say as values.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use jiff::SignedDuration;
use phpprof_operator::decide::limits::Limits;
use phpprof_operator::export::exporter::ExportArgs;
use phpprof_operator::export::links::Template;
use phpprof_operator::http::source::VerifySource;
use phpprof_operator::sampler::container::SamplerConfig;
use phpprof_operator::sampler::route::{self, Route};
use phpprof_operator::storage::store::{Store, StoreConfig};

use crate::Failed;

/// Turns ProfileRequests into samplers and their uploads into one profile. Every flag is set by the chart.
#[derive(Parser)]
#[command(version)]
pub struct Args {
    /// Where profiles are stored: file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix;
    /// credentials come from the environment
    #[arg(long)]
    pub store_url: String,
    /// Endpoint of an S3 server that is not at AWS, for instance https://s3.example.org
    #[arg(long)]
    pub store_endpoint: Option<String>,
    /// Allow an endpoint that begins with http://: samplers upload through the operator then
    #[arg(long)]
    pub store_allow_insecure: bool,
    /// Region of an S3 bucket; without it AWS_REGION, else us-east-1
    #[arg(long)]
    pub store_region: Option<String>,
    /// Put the bucket into the path instead of the host name
    #[arg(long)]
    pub store_path_style: bool,
    /// PEM file of a private CA that signed the store's certificate
    #[arg(long)]
    pub store_ca_bundle: Option<PathBuf>,
    /// Image of the sampler
    #[arg(long)]
    pub sampler_image: String,
    /// When nodes pull the sampler's image
    #[arg(long, default_value = "IfNotPresent")]
    pub sampler_pull_policy: String,
    /// What a sampler may use of one core, in percent; beyond that it samples less often
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub sampler_cpu_percent: u32,
    /// How samplers name a route, as GLOB=NAME: * stands for one segment of a path, ** for all that is left; may be given several times, and the first
    /// that matches holds
    #[arg(long)]
    pub route: Vec<Route>,
    /// Accept requests of every namespace, not only of those labelled phpprof.dev/profiling=enabled
    #[arg(long)]
    pub all_namespaces: bool,
    /// Look after the requests of this namespace only; may be given several times
    #[arg(long)]
    pub namespace: Vec<String>,
    /// The longest durationSeconds of a request
    #[arg(long, default_value_t = 300)]
    pub max_duration_seconds: i32,
    /// The highest samplesPerSecond of a request
    #[arg(long, default_value_t = 1000)]
    pub max_samples_per_second: i32,
    /// The most pods of a request
    #[arg(long, default_value_t = 10)]
    pub max_pods: i32,
    /// Ephemeral containers of ours in one pod, over its whole life
    #[arg(long, default_value_t = 64)]
    pub max_ephemeral_containers: usize,
    /// Requests that run at the same time in a namespace; others wait
    #[arg(long, default_value_t = 16)]
    pub max_requests_per_namespace: usize,
    /// Requests that run at the same time in all; others wait
    #[arg(long, default_value_t = 64)]
    pub max_requests: usize,
    /// Samplers that run at the same time on a node; requests for more wait
    #[arg(long, default_value_t = 16)]
    pub max_samplers_per_node: usize,
    /// Bytes that the profiles of a namespace may take in the store; while they take more, no request is accepted there. 0 for no limit
    #[arg(long, default_value_t = 0)]
    pub max_stored_bytes_per_namespace: u64,
    /// A user, as the API server names it, whose requests may have samplers that stay in their pods; may be given several times
    #[arg(long)]
    pub resident_user: Vec<String>,
    /// How often such a sampler asks for runs
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(i64).range(1..=3600))]
    pub resident_ask_seconds: i64,
    /// How long it stays without a run
    #[arg(long, default_value_t = 21600, value_parser = clap::value_parser!(i64).range(60..=31_536_000))]
    pub resident_idle_seconds: i64,
    /// How long it stays without an answer
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(i64).range(10..=86400))]
    pub resident_lease_seconds: i64,
    /// How long a request waits for its turn
    #[arg(long, default_value_t = 600)]
    pub queue_timeout_seconds: i64,
    /// How long a sampler may take to start
    #[arg(long, default_value_t = 60)]
    pub start_slack_seconds: i64,
    /// How long uploads are retried; grants end then
    #[arg(long, default_value_t = 600)]
    pub upload_deadline_seconds: i64,
    /// How often a run that takes longer stores what it has sampled so far; in long runs more seldom, 29 times at most
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(i32).range(10..))]
    pub checkpoint_seconds: i32,
    /// How long profiles are verified and merged after that, while the store does not answer
    #[arg(long, default_value_t = 300)]
    pub store_grace_seconds: i64,
    /// Address of the relay, where samplers bring their profiles
    #[arg(long, default_value = "0.0.0.0:8443")]
    pub relay_address: SocketAddr,
    /// Where samplers reach the relay, for instance https://phpprof-operator.phpprof-system.svc:8443
    #[arg(long)]
    pub relay_url: String,
    /// What the relay does about an upload whose source is not an address of its pod
    #[arg(long, value_enum, default_value_t)]
    pub verify_source: VerifySource,
    /// Secret that holds the operator's own keys, as namespace/name; it must exist, and is filled at the first start
    #[arg(long)]
    pub key_secret: String,
    /// Lease of which one replica at a time looks after requests, as namespace/name; it must exist. Without it the operator must be alone
    #[arg(long)]
    pub lease: Option<String>,
    /// ConfigMap that stops all profiling, as namespace/name: profiling: stopped
    #[arg(long)]
    pub switch_config_map: Option<String>,
    /// Address of the results, which are served without TLS: behind an Ingress, a port-forward or the API server
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub results_address: SocketAddr,
    /// Where people reach the results, for instance https://phpprof.example.org; requests get a link to their flame graph then
    #[arg(long)]
    pub results_url: Option<String>,
    /// Link of each request's status, as NAME=URL with {namespace}, {name}, {uid}, {workload}, {service}, {accessKey}, {from} and {to}; may be
    /// given several times
    #[arg(long)]
    pub link: Vec<Template>,
    /// What the operator's container may take of memory, for its metrics
    #[arg(long, env = "PHPPROF_MEMORY_LIMIT_BYTES")]
    pub memory_limit_bytes: Option<u64>,
    #[command(flatten)]
    pub exporter: ExportArgs,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value = "0.0.0.0:8081")]
    pub health_address: SocketAddr,
}

impl Args {
    /// The PEM of the private CA, if there is one.
    pub fn ca_bundle(&self) -> Result<Option<String>, Failed> {
        let Some(path) = &self.store_ca_bundle else {
            return Ok(None);
        };
        let pem = std::fs::read_to_string(path)
            .map_err(|error| format!("reading {}: {error}", path.display()))?;
        Ok(Some(pem))
    }

    pub fn store(&self, ca_bundle: Option<String>) -> StoreConfig {
        StoreConfig {
            url: self.store_url.clone(),
            endpoint: self.store_endpoint.clone(),
            allow_insecure: self.store_allow_insecure,
            region: self.store_region.clone(),
            path_style: self.store_path_style,
            ca_bundle,
        }
    }

    pub fn sampler(&self, ca_bundle: Option<String>) -> Result<SamplerConfig, Failed> {
        if self.route.len() > route::MOST {
            let most = route::MOST;
            return Err(format!(
                "--route may be given {most} times, not {}",
                self.route.len()
            )
            .into());
        }
        Ok(SamplerConfig {
            image: self.sampler_image.clone(),
            pull_policy: self.sampler_pull_policy.clone(),
            cpu_budget_percent: self.sampler_cpu_percent,
            routes: self.route.iter().map(Route::to_string).collect(),
            ca_bundle,
        })
    }

    pub fn limits(&self, store: &Store, exports: bool) -> Limits {
        Limits {
            namespace_opt_in: !self.all_namespaces,
            duration_seconds: self.max_duration_seconds,
            samples_per_second: self.max_samples_per_second,
            pods: self.max_pods,
            ephemeral_containers: self.max_ephemeral_containers,
            requests_of_namespace: self.max_requests_per_namespace,
            requests_of_cluster: self.max_requests,
            samplers_of_node: self.max_samplers_per_node,
            bytes_of_namespace: Some(self.max_stored_bytes_per_namespace)
                .filter(|&bytes| bytes > 0),
            queue_timeout: SignedDuration::from_secs(self.queue_timeout_seconds),
            start_slack: SignedDuration::from_secs(self.start_slack_seconds),
            upload_deadline: SignedDuration::from_secs(self.upload_deadline_seconds),
            checkpoint_seconds: self.checkpoint_seconds,
            store_grace: SignedDuration::from_secs(self.store_grace_seconds),
            store_signs: store.signs(),
            exports,
            resident_users: self.resident_user.iter().cloned().collect(),
            resident_asks: SignedDuration::from_secs(self.resident_ask_seconds),
            resident_idle: SignedDuration::from_secs(self.resident_idle_seconds),
            resident_lease: SignedDuration::from_secs(self.resident_lease_seconds),
            key_prefix: store.prefix().to_owned(),
        }
    }
}

/// Namespace and name out of a flag's value; `flag` is how the flag is written.
pub fn split<'a>(flag: &str, value: &'a str) -> Result<(&'a str, &'a str), Failed> {
    let split = value.split_once('/');
    split.ok_or_else(|| format!("{flag} is namespace/name").into())
}
