//! The sampler's container, and what the answer of admission means.
//!
//! Invariant: the container gets the contract's arguments and environment and nothing else: no
//! volume, no token, no port, and no secret except its grants.

use std::io::Write as _;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::{EnvVar, EphemeralContainer};
use phpprof_crds::RequestLabel;
use phpprof_decide::admission::{NotAdded, not_added};
use serde::Serialize;
use serde_json::{Value, json};

use crate::sampler::contract::{NUMBER, VARIABLE};
use crate::sampler::grant::KeyGrant;
use crate::sampler::injection::{Injection, PodRun, Residence, Subject, bare_id};
use crate::sampler::offer::PollGrant;
use crate::sampler::receipt::printable;

const RECEIPT: &str = "--receipt=/dev/termination-log";

/// The settings that all samplers share: their image, their CPU budget, the private CA that they
/// trust, and how they upload.
#[derive(Clone, Debug, Default)]
pub struct SamplerConfig {
    /// With a digest if the chart has one.
    pub image: String,
    /// `IfNotPresent`, `Always` or `Never`.
    pub pull_policy: String,
    /// Percent of one core.
    pub cpu_budget_percent: u32,
    /// Names of routes, as GLOB=NAME. The sampler tries them before it derives a name from the
    /// path.
    pub routes: Vec<String>,
    /// PEM of a private CA. Samplers trust it for stores, in addition to the public ones.
    pub ca_bundle: Option<String>,
    /// The checksum that samplers send with each upload to a store; without it none.
    pub direct_checksum: Option<DirectChecksum>,
}

/// A checksum of uploads by presigned URLs. S3 refuses every header `x-amz-…` of such a PUT that is
/// not signed (`HeadersNotSigned`), and the body is not known when the grant is signed. This leaves
/// `Content-MD5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DirectChecksum {
    /// RFC 1864.
    #[value(name = "MD5")]
    Md5,
}

/// The content of PHPPROF_GRANTS.
#[derive(Serialize)]
struct ForProfile<'a> {
    profile: &'a [KeyGrant],
}

/// The content of PHPPROF_REQUESTS. It is a separate variable, which a resident sampler of an
/// earlier version ignores.
#[derive(Serialize)]
struct ForRequests<'a> {
    requests: &'a [KeyGrant],
}

/// What a sampler may write: its profile, checkpoints in a long run, and its list of requests if
/// routes are recorded. Each has a grant for every possible route of the upload.
#[derive(Clone, Debug, Default)]
pub(crate) struct SamplerGrants {
    pub profile: Vec<KeyGrant>,
    pub checkpoint_seconds: i32,
    /// When each checkpoint is due, in seconds of sampling.
    pub checkpoint_times: Vec<i32>,
    /// Oldest first; empty in a short run.
    pub checkpoints: Vec<Vec<KeyGrant>>,
    /// Empty if no requests are listed.
    pub requests: Vec<KeyGrant>,
    /// Addresses of the relay, for pods that do not know its name.
    pub relay_addresses: Vec<IpAddr>,
}

/// The arguments and the environment of a sampler's container.
#[derive(Clone, PartialEq, Eq)]
pub struct ContainerSettings {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// Only what is no grant.
impl std::fmt::Debug for ContainerSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Given")
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

impl ContainerSettings {
    #[cfg(test)]
    pub(crate) fn for_test(arguments: Vec<String>, environment: Vec<(String, String)>) -> Self {
        ContainerSettings {
            arguments,
            environment,
        }
    }

    /// The format of contract/args.json and contract/env.json.
    pub(crate) fn once(
        subject: &Subject,
        run: &PodRun,
        grants: &SamplerGrants,
        config: &SamplerConfig,
    ) -> Self {
        let receipt = [RECEIPT.to_owned()];
        ContainerSettings {
            arguments: arguments(subject, run, config, &receipt),
            environment: environment(config, grants, NUMBER),
        }
    }

    /// The format of contract/resident.json.
    pub fn resident(
        subject: &Subject,
        residence: Residence,
        ask: &PollGrant,
        relay_addresses: &[IpAddr],
    ) -> Self {
        let Residence {
            first_answer_seconds,
            idle_seconds,
            ..
        } = residence;
        let id = bare_id(&subject.container_id);
        ContainerSettings {
            arguments: vec![
                "resident".to_owned(),
                format!("--container-id={id}"),
                format!("--first-answer-seconds={first_answer_seconds}"),
                format!("--idle-seconds={idle_seconds}"),
                RECEIPT.to_owned(),
            ],
            environment: [
                contract(NUMBER),
                // Serialising strings cannot fail.
                (
                    "PHPPROF_ASK".to_owned(),
                    serde_json::to_string(ask).unwrap_or_default(),
                ),
            ]
            .into_iter()
            .chain(addresses(relay_addresses))
            .collect(),
        }
    }
}

/// The strategic-merge patch of a pod's ephemeral containers: the new entry and the pod that it is
/// for.
///
/// The uid is a precondition, so that a newer pod of the same name is not patched.
pub fn patch(injection: &Injection, given: &ContainerSettings, config: &SamplerConfig) -> Value {
    json!({
        "metadata": {"uid": injection.subject.pod_uid},
        "spec": {"ephemeralContainers": [container(injection, given, config)]},
    })
}

fn container(
    injection: &Injection,
    given: &ContainerSettings,
    config: &SamplerConfig,
) -> EphemeralContainer {
    let variable = |(name, value): &(String, String)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        value_from: None,
    };
    EphemeralContainer {
        name: injection.ephemeral_container_name.clone(),
        image: Some(config.image.clone()),
        image_pull_policy: Some(config.pull_policy.clone()),
        args: Some(given.arguments.clone()),
        env: Some(given.environment.iter().map(variable).collect()),
        target_container_name: Some(injection.subject.container_name.clone()),
        termination_message_policy: Some("File".to_owned()),
        security_context: Some(injection.mode.security_context()),
        ..EphemeralContainer::default()
    }
}

/// The arguments of a run that a resident sampler is offered, as in contract/runs.json.
pub fn arguments_of_offer(subject: &Subject, run: &PodRun, config: &SamplerConfig) -> Vec<String> {
    let receipt = ["--receipt=-", "--grants-on-stdin"].map(str::to_owned);
    arguments(subject, run, config, &receipt)
}

fn arguments(
    subject: &Subject,
    run: &PodRun,
    config: &SamplerConfig,
    receipt: &[String],
) -> Vec<String> {
    let id = bare_id(&subject.container_id);
    let labels = [
        ("namespace", &subject.namespace),
        ("pod", &subject.pod_name),
        ("container", &subject.container_name),
    ];
    let mut args = vec![
        "record".to_owned(),
        format!("--container-id={id}"),
        format!("--duration-seconds={}", run.duration_seconds),
        format!("--samples-per-second={}", run.samples_per_second),
        format!("--cpu-budget-percent={}", config.cpu_budget_percent),
        format!("--not-after={}", run.not_after.as_second()),
        format!("--upload-until={}", run.upload_until.as_second()),
    ];
    args.extend_from_slice(receipt);
    args.extend(run.include_idle.then(|| "--include-idle".to_owned()));
    args.extend(run.heap.then(|| "--heap".to_owned()));
    args.extend(run.include_suspended.then(|| "--fibers".to_owned()));
    args.extend(run.is_snapshot.then(|| "--snapshot".to_owned()));
    args.extend(run.is_heap_snapshot.then(|| "--heap-snapshot".to_owned()));
    args.extend(run.is_live.then(|| "--live".to_owned()));
    args.extend(of_requests(run, &config.routes));
    args.extend(labels.map(|(key, value)| format!("--label={key}={value}")));
    args
}

/// The arguments that say which HTTP requests are sampled and how they are labelled.
fn of_requests(run: &PodRun, routes: &[String]) -> Vec<String> {
    let mut args = Vec::new();
    if !run.labels.is_empty() {
        // The names are those of the CRD.
        let names: Vec<_> = run.labels.iter().map(|it| format!("{it:?}")).collect();
        args.push(format!("--labels={}", names.join(",")));
    }
    if run.labels.contains(&RequestLabel::Route) {
        args.extend(routes.iter().map(|route| format!("--route={route}")));
    }
    let filter = run.filter.clone().unwrap_or_default();
    args.extend(
        filter
            .path_prefix
            .map(|prefix| format!("--path-prefix={prefix}")),
    );
    args.extend(filter.methods.iter().map(|it| format!("--method={it}")));
    args.extend(filter.scripts.iter().map(|it| format!("--script={it}")));
    let age = filter.min_request_age_milliseconds;
    args.extend(age.map(|age| format!("--min-request-age-ms={age}")));
    args.extend(filter.include_young.then(|| "--include-young".to_owned()));
    args
}

/// The format of contract/env.json. `spoken` is the contract's number: that of both sides where the
/// sampler's is known, else this operator's.
pub(crate) fn environment(
    config: &SamplerConfig,
    grants: &SamplerGrants,
    spoken: u32,
) -> Vec<(String, String)> {
    let variable = |name: &str, value: String| (name.to_owned(), value);
    let profile = ForProfile {
        profile: &grants.profile,
    };
    // Serialising strings cannot fail.
    let profile = serde_json::to_string(&profile).unwrap_or_default();
    let checkpoints = (!grants.checkpoints.is_empty())
        .then(|| variable("PHPPROF_CHECKPOINTS", packed(&checkpoints(grants))));
    // A variable of its own: older samplers refuse fields that they do not know, and store the
    // first checkpoints an interval apart.
    let times = grants.checkpoint_times.iter().map(i32::to_string);
    let times = checkpoints.is_some().then(|| {
        variable(
            "PHPPROF_CHECKPOINT_TIMES",
            times.collect::<Vec<_>>().join(","),
        )
    });
    let requests = ForRequests {
        requests: &grants.requests,
    };
    let requests = (!grants.requests.is_empty()).then(|| {
        let requests = serde_json::to_string(&requests).unwrap_or_default();
        variable("PHPPROF_REQUESTS", requests)
    });
    let ca_bundle = config
        .ca_bundle
        .clone()
        .map(|bundle| variable("PHPPROF_CA_BUNDLE", bundle));
    let checksum = config
        .direct_checksum
        .map(|DirectChecksum::Md5| variable("PHPPROF_DIRECT_CHECKSUM", "MD5".to_owned()));
    [contract(spoken), variable("PHPPROF_GRANTS", profile)]
        .into_iter()
        .chain(checkpoints)
        .chain(times)
        .chain(requests)
        .chain(addresses(&grants.relay_addresses))
        .chain(checksum)
        .chain(ca_bundle)
        .collect()
}

/// The variable with the relay's addresses. It is a separate one, which samplers from before it
/// ignore.
fn addresses(relay: &[IpAddr]) -> Option<(String, String)> {
    let names: Vec<String> = relay.iter().map(IpAddr::to_string).collect();
    (!names.is_empty()).then(|| ("PHPPROF_RELAY_ADDRESSES".to_owned(), names.join(",")))
}

/// The variable with the number of the contract.
fn contract(number: u32) -> (String, String) {
    (VARIABLE.to_owned(), number.to_string())
}

/// The format of contract/checkpoints.json.
fn checkpoints(grants: &SamplerGrants) -> Value {
    json!({"everySeconds": grants.checkpoint_seconds, "checkpoints": grants.checkpoints})
}

/// Compresses the grants. Signed URLs are long but differ only in key and signature. Uncompressed,
/// 29 of them for each of 64 samplers would not fit into a pod's object.
fn packed(value: &Value) -> String {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let written = gzip.write_all(value.to_string().as_bytes());
    // Writing to a vector cannot fail.
    let bytes = written.and_then(|()| gzip.finish()).unwrap_or_default();
    STANDARD.encode(bytes)
}

/// What an error of the patch, or of its dry run, means.
pub fn refusal(error: &kube::Error, injection: &Injection) -> NotAdded {
    match error {
        kube::Error::Api(status) => {
            let said = printable(&status.message, 700);
            let name = &injection.ephemeral_container_name;
            not_added(status, said, name, injection.mode)
        }
        error => NotAdded::TryAgain(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
