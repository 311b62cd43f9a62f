//! The sampler's container, and what admission's answer to it means.
//!
//! Invariant: the container gets the contract's arguments and environment and nothing else: no volume, no token,
//! no port, no secret but its grants.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::{
    Capabilities, EnvVar, EphemeralContainer, SeccompProfile, SecurityContext,
};
use phpprof_crds::TargetReason;
use serde::Serialize;
use serde_json::{Value, json};

use crate::sampler::grant::Grant;
use crate::sampler::injection::Injection;
use crate::sampler::injection::Mode;
use crate::sampler::receipt::printable;

/// What all samplers have in common: their image, what CPU each may use, and which private CA they trust.
#[derive(Clone, Debug, Default)]
pub struct SamplerConfig {
    pub image: String,
    pub pull_policy: String,
    /// Of one core.
    pub cpu_budget_percent: u32,
    pub ca_bundle: Option<String>,
}

/// In PHPPROF_GRANTS.
#[derive(Serialize)]
struct ForProfile<'a> {
    profile: &'a [Grant],
}

/// What a sampler may write: its profile and, in a long run, what it has sampled so far; each on any of these ways.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    pub profile: Vec<Grant>,
    pub checkpoint_seconds: i32,
    /// In their order; none in a short run.
    pub checkpoints: Vec<Vec<Grant>>,
}

/// The strategic-merge patch of a pod's ephemeral containers: the new entry and the pod that it is for.
///
/// The uid is a precondition: a pod of the same name that has come since is not patched.
pub fn patch(injection: &Injection, config: &SamplerConfig, grants: &Grants) -> Value {
    json!({
        "metadata": {"uid": injection.pod_uid},
        "spec": {"ephemeralContainers": [container(injection, config, grants)]},
    })
}

fn container(injection: &Injection, config: &SamplerConfig, grants: &Grants) -> EphemeralContainer {
    EphemeralContainer {
        name: injection.ephemeral_container_name.clone(),
        image: Some(config.image.clone()),
        image_pull_policy: Some(config.pull_policy.clone()),
        args: Some(args(injection, config)),
        env: Some(env(config, grants)),
        target_container_name: Some(injection.container_name.clone()),
        termination_message_policy: Some("File".to_owned()),
        security_context: Some(security_context(injection.mode)),
        ..EphemeralContainer::default()
    }
}

/// As in contract/args.json.
fn args(injection: &Injection, config: &SamplerConfig) -> Vec<String> {
    let id = injection
        .container_id
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let labels = [
        ("namespace", &injection.namespace),
        ("pod", &injection.pod_name),
        ("container", &injection.container_name),
    ];
    let mut args = vec![
        "record".to_owned(),
        format!("--container-id={id}"),
        format!("--duration-seconds={}", injection.duration_seconds),
        format!("--samples-per-second={}", injection.samples_per_second),
        format!("--cpu-budget-percent={}", config.cpu_budget_percent),
        format!("--not-after={}", injection.not_after.as_second()),
        format!("--upload-until={}", injection.upload_until.as_second()),
        "--receipt=/dev/termination-log".to_owned(),
    ];
    args.extend(injection.include_idle.then(|| "--include-idle".to_owned()));
    args.extend(labels.map(|(key, value)| format!("--label={key}={value}")));
    args
}

/// As in contract/env.json.
fn env(config: &SamplerConfig, grants: &Grants) -> Vec<EnvVar> {
    let variable = |name: &str, value: String| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    };
    let profile = ForProfile {
        profile: &grants.profile,
    };
    // Strings always serialise.
    let profile = serde_json::to_string(&profile).unwrap_or_default();
    let checkpoints = (!grants.checkpoints.is_empty())
        .then(|| variable("PHPPROF_CHECKPOINTS", packed(&checkpoints(grants))));
    let ca_bundle = config
        .ca_bundle
        .clone()
        .map(|bundle| variable("PHPPROF_CA_BUNDLE", bundle));
    [variable("PHPPROF_GRANTS", profile)]
        .into_iter()
        .chain(checkpoints)
        .chain(ca_bundle)
        .collect()
}

/// As in contract/checkpoints.json.
fn checkpoints(grants: &Grants) -> Value {
    json!({"everySeconds": grants.checkpoint_seconds, "checkpoints": grants.checkpoints})
}

/// Signed URLs are long, and alike but for key and signature: 29 of them as they are, for each of 64 samplers, would not fit into a pod's object.
fn packed(value: &Value) -> String {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let written = gzip.write_all(value.to_string().as_bytes());
    // A vector can always be written to.
    let bytes = written.and_then(|()| gzip.finish()).unwrap_or_default();
    STANDARD.encode(bytes)
}

fn security_context(mode: Mode) -> SecurityContext {
    let (uid, gid, added) = match mode {
        Mode::SameUser { uid, gid } => (uid, gid, None),
        Mode::Ptrace { .. } => (0, 0, Some(vec!["SYS_PTRACE".to_owned()])),
    };
    SecurityContext {
        run_as_user: Some(uid),
        run_as_group: Some(gid),
        run_as_non_root: Some(uid != 0),
        privileged: Some(false),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            add: added,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..SecurityContext::default()
    }
}

/// What an error of the patch, or of its dry run, means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sampler is there already.
    AlreadyThere,
    /// A webhook does not support dry runs, so only the patch itself can tell.
    Unknown,
    /// Not an answer, or not a final one.
    TryAgain(String),
    Final(TargetReason, String),
}

/// Reads the API server's answer.
pub fn refusal(error: &kube::Error, injection: &Injection) -> Refusal {
    let kube::Error::Api(status) = error else {
        return Refusal::TryAgain(error.to_string());
    };
    let said = printable(&status.message, 700);
    match status.code {
        422 if said.contains("may not be changed") => Refusal::AlreadyThere,
        400 if said.contains("does not support dry run") => Refusal::Unknown,
        403 if said.contains("violates PodSecurity") => pod_security(said, injection),
        404 if said.contains("could not find the requested resource") => Refusal::Final(
            TargetReason::InjectionRefused,
            "this cluster has no ephemeral containers; it needs Kubernetes 1.25".to_owned(),
        ),
        404 => Refusal::Final(
            TargetReason::PodDeleted,
            "the pod was deleted before its sampler was added".to_owned(),
        ),
        // The patch names the uid of the pod that it is for.
        422 if said.contains("metadata.uid") => Refusal::Final(
            TargetReason::PodDeleted,
            "the pod was replaced before its sampler was added".to_owned(),
        ),
        400 | 403 | 405 | 422 => Refusal::Final(TargetReason::InjectionRefused, said),
        _ => Refusal::TryAgain(said),
    }
}

/// Pod Security judges the whole pod, and so also what others have added to it.
fn pod_security(said: String, injection: &Injection) -> Refusal {
    let ours = said.contains(&injection.ephemeral_container_name);
    match injection.mode {
        _ if !ours => {
            let found = "it is another container of the pod that is refused";
            Refusal::Final(TargetReason::PodSecurityDenied, format!("{found}: {said}"))
        }
        Mode::Ptrace { user_known: false } => {
            let found = "SYS_PTRACE is refused and the pod does not say its user";
            Refusal::Final(TargetReason::UserUnknown, format!("{found}: {said}"))
        }
        Mode::Ptrace { user_known: true } => {
            let found = "PHP starts as root, which needs SYS_PTRACE";
            Refusal::Final(TargetReason::PodSecurityDenied, format!("{found}: {said}"))
        }
        Mode::SameUser { .. } => Refusal::Final(TargetReason::PodSecurityDenied, said),
    }
}

#[cfg(test)]
mod tests;
