//! The operator's flags, and their values.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use jiff::SignedDuration;
use phpprof_decide::limits::AdminLimits;
use phpprof_operator::export::exporter::ExportArgs;
use phpprof_operator::export::links::LinkTemplate;
use phpprof_operator::http::source::VerifySource;
use phpprof_operator::sampler::container::{DirectChecksum, SamplerConfig};
use phpprof_operator::sampler::route::{self, Route};
use phpprof_operator::storage::store::{ProfileStore, StoreConfig};

use crate::Failed;

/// Runs a sampler for each pod of a ProfileRequest, and merges their uploads into one profile. The
/// chart sets every flag.
#[derive(Parser)]
#[command(version)]
pub struct Args {
    /// Where profiles are stored: file:///folder, s3://bucket/prefix, gs://bucket/prefix or
    /// az://container/prefix; credentials come from the environment
    #[arg(long)]
    pub store_url: String,
    /// Endpoint of an S3 server outside AWS, for instance https://s3.example.org
    #[arg(long)]
    pub store_endpoint: Option<String>,
    /// Allow an endpoint that begins with http://; samplers then upload through the operator
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
    /// How S3 encrypts objects: AES256, aws:kms or aws:kms:dsse; without it, the environment's,
    /// else the bucket's own setting
    #[arg(long)]
    pub store_encryption: Option<String>,
    /// KMS key for it, by id or ARN
    #[arg(long)]
    pub store_kms_key: Option<String>,
    /// Checksum that the operator's writes to S3 carry: SHA256 or CRC64NVME
    #[arg(long)]
    pub store_checksum: Option<String>,
    /// Checksum that samplers send with direct uploads to S3, unsigned
    #[arg(long)]
    pub store_direct_checksum: Option<DirectChecksum>,
    /// Whether to accept requests if the store has no create-only writes. Uploads then go through
    /// the operator
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false)]
    pub store_allow_overwrite: bool,
    /// ConfigMap, as namespace/name, into which the operator writes how the store is. It must exist
    #[arg(long)]
    pub status_config_map: Option<String>,
    /// Image of the sampler
    #[arg(long)]
    pub sampler_image: String,
    /// When nodes pull the sampler's image
    #[arg(long, default_value = "IfNotPresent")]
    pub sampler_pull_policy: String,
    /// Percent of one core that a sampler may use; a sampler that needs more samples less often
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=400))]
    pub sampler_cpu_percent: u32,
    /// Name of a route, as GLOB=NAME: * matches one segment of a path, ** matches the rest. May be
    /// repeated; the first match applies
    #[arg(long)]
    pub route: Vec<Route>,
    /// Accept requests of every namespace, not only of namespaces labelled
    /// phpprof.dev/profiling=enabled
    #[arg(long)]
    pub all_namespaces: bool,
    /// Handle the requests of this namespace only. May be repeated
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
    /// The most ephemeral containers of phpprof in one pod, over its whole life
    #[arg(long, default_value_t = 64)]
    pub max_ephemeral_containers: usize,
    /// The most requests that run at the same time in a namespace; others wait
    #[arg(long, default_value_t = 16)]
    pub max_requests_per_namespace: usize,
    /// The most requests that run at the same time in the cluster; others wait
    #[arg(long, default_value_t = 64)]
    pub max_requests: usize,
    /// The most samplers that run at the same time on a node; requests for more wait
    #[arg(long, default_value_t = 16)]
    pub max_samplers_per_node: usize,
    /// The most bytes that a namespace's profiles may use in the store. Above it, no request is
    /// accepted there. 0 means no limit
    #[arg(long, default_value_t = 0)]
    pub max_stored_bytes_per_namespace: u64,
    /// User, as the API server names it, whose requests may have resident samplers, which stay in
    /// their pods. May be repeated
    #[arg(long)]
    pub resident_user: Vec<String>,
    /// Seconds between two polls of a resident sampler for a run
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(i64).range(1..=3600))]
    pub resident_ask_seconds: i64,
    /// How long a resident sampler stays without a run
    #[arg(long, default_value_t = 21600, value_parser = clap::value_parser!(i64).range(60..=31_536_000))]
    pub resident_idle_seconds: i64,
    /// How long a resident sampler stays without an answer
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(i64).range(10..=86400))]
    pub resident_lease_seconds: i64,
    /// How long a request waits for its turn
    #[arg(long, default_value_t = 600)]
    pub queue_timeout_seconds: i64,
    /// How long a sampler may take to start
    #[arg(long, default_value_t = 60)]
    pub start_slack_seconds: i64,
    /// How long uploads are retried; grants expire after that
    #[arg(long, default_value_t = 600)]
    pub upload_deadline_seconds: i64,
    /// Seconds between two checkpoints, after the first ones at 5, 10, 20 and 40 s; long runs have
    /// longer intervals, and at most 30 checkpoints
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(i32).range(10..))]
    pub checkpoint_seconds: i32,
    /// How long after the upload deadline the operator still tries to verify and merge profiles,
    /// while the store does not answer
    #[arg(long, default_value_t = 300)]
    pub store_grace_seconds: i64,
    /// Address to listen on for the relay, which receives profiles from samplers
    #[arg(long, default_value = "[::]:8443")]
    pub relay_address: SocketAddr,
    /// URL of the relay for samplers, for instance https://phpprof-operator.phpprof-system.svc:8443
    #[arg(long)]
    pub relay_url: String,
    /// What the relay does with an upload that does not come from an address of its pod
    #[arg(long, value_enum, default_value_t)]
    pub verify_source: VerifySource,
    /// Secret for the operator's keys, as namespace/name. It must exist; the operator fills it at
    /// its first start
    #[arg(long)]
    pub key_secret: String,
    /// Lease, as namespace/name. The replica that holds it handles requests. It must exist. Without
    /// this flag, run one replica only
    #[arg(long)]
    pub lease: Option<String>,
    /// Replicas of the operator. With more than one, none hears all samplers, so none says that it
    /// has not heard from one
    #[arg(long, default_value_t = 1)]
    pub replicas: u32,
    /// ConfigMap, as namespace/name, that stops all profiling if it has profiling: stopped
    #[arg(long)]
    pub switch_config_map: Option<String>,
    /// Address to listen on for results. They are served without TLS: use an Ingress, a
    /// port-forward or the API server
    #[arg(long, default_value = "[::]:8080")]
    pub results_address: SocketAddr,
    /// URL of the results for people, for instance https://phpprof.example.org. Each request's
    /// status then links to its flame graph
    #[arg(long)]
    pub results_url: Option<String>,
    /// Folder with a token for each namespace, in a file of its name, that opens /verdict on the
    /// port of the results. Without it, verdicts are off
    #[arg(long)]
    pub verdict_tokens: Option<PathBuf>,
    /// Folder with a token for each namespace, in a file of its name, that opens /alerts on the
    /// port of the results. Without it, alerts are off
    #[arg(long)]
    pub alert_tokens: Option<PathBuf>,
    /// Link for each request's status, as NAME=URL with {namespace}, {name}, {uid}, {workload},
    /// {service}, {accessKey}, {from} and {to}. May be repeated
    #[arg(long)]
    pub link: Vec<LinkTemplate>,
    /// Memory limit of the operator's container in bytes, for its metrics
    #[arg(long, env = "PHPPROF_MEMORY_LIMIT_BYTES")]
    pub memory_limit_bytes: Option<u64>,
    #[command(flatten)]
    pub exporter: ExportArgs,
    /// Address to listen on for /healthz, /readyz and /metrics
    #[arg(long, default_value = "[::]:8081")]
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
            encryption: self.store_encryption.clone(),
            kms_key: self.store_kms_key.clone(),
            checksum: self.store_checksum.clone(),
            allow_overwrite: self.store_allow_overwrite,
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
            direct_checksum: self.store_direct_checksum,
        })
    }

    pub fn limits(&self, store: &ProfileStore, exports: bool) -> AdminLimits {
        AdminLimits {
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
            hears_all: self.replicas == 1,
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
    split.ok_or_else(|| format!("{flag} must be namespace/name").into())
}
