//! Whether a request is accepted, and the targets that it then has.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use phpprof_crds::{
    NAMESPACE_ENABLED, NAMESPACE_LABEL, ProfileRequest, ProfileRequestStatus, Reason, TargetState,
    TargetStatus, UploadMode,
};

use crate::decide::checkpoints::interval;
use crate::decide::limits::Limits;
use crate::decide::observed::{Admission, ContainerView, PodView, Refusal};
use crate::decide::select::{Selection, select};
use crate::decide::status::Verdict;
use crate::sampler::injection::SAMPLER_PREFIX;
use crate::sampler::object_keys::key;

/// Fills in start and targets of a request that is accepted; the verdict says whether it is.
pub fn admit(
    now: Timestamp,
    request: &ProfileRequest,
    admission: &Admission,
    limits: &Limits,
    status: &mut ProfileRequestStatus,
) -> Verdict {
    let matched = admission.matched.as_ref().map_or(0, Vec::len);
    status.matched = i32::try_from(matched).unwrap_or(i32::MAX);
    match choose(request, admission, limits) {
        Err(refusal) => Verdict {
            reason: refusal.reason,
            message: refusal.message,
        },
        Ok(Selection { chosen, note }) => {
            let message = format!(
                "starting samplers in {} of {matched} matching pods{note}",
                chosen.len()
            );
            let target = |(pod, container)| new_target(request, &pod, container, limits);
            status.targets = chosen.into_iter().map(target).collect();
            status.start_time = Some(Time(now));
            Verdict {
                reason: Reason::Starting,
                message,
            }
        }
    }
}

fn choose(
    request: &ProfileRequest,
    admission: &Admission,
    limits: &Limits,
) -> Result<Selection, Refusal> {
    let (spec, namespace) = (&request.spec, request.namespace().unwrap_or_default());
    if limits.namespace_opt_in && !admission.namespace_enabled {
        let command =
            format!("kubectl label namespace {namespace} {NAMESPACE_LABEL}={NAMESPACE_ENABLED}");
        return refuse(
            Reason::NamespaceNotEnabled,
            format!("profiling is not enabled in this namespace; to enable it: {command}"),
        );
    }
    if spec.duration_seconds > limits.duration_seconds {
        let (asked, allowed) = (spec.duration_seconds, limits.duration_seconds);
        return refuse(
            Reason::DurationOverLimit,
            format!("durationSeconds is {asked}, and the administrator allows {allowed} at most"),
        );
    }
    if spec.samples_per_second > limits.samples_per_second {
        let (asked, allowed) = (spec.samples_per_second, limits.samples_per_second);
        return refuse(
            Reason::RateOverLimit,
            format!("samplesPerSecond is {asked}, and the administrator allows {allowed} at most"),
        );
    }
    if spec.upload_mode == UploadMode::Direct && !limits.store_signs {
        return refuse(
            Reason::DirectNotSupported,
            "the operator's store cannot sign create-only writes; set uploadMode to Auto or Relay"
                .to_owned(),
        );
    }
    select(
        &spec.target,
        admission.matched.as_ref().map_err(Refusal::clone)?,
        &admission.samplers,
        limits,
    )
}

fn refuse<T>(reason: Reason, message: String) -> Result<T, Refusal> {
    Err(Refusal { reason, message })
}

fn new_target(
    request: &ProfileRequest,
    pod: &PodView,
    container: ContainerView,
    limits: &Limits,
) -> TargetStatus {
    let file = format!(
        "{}.{}.{}.0.pb.gz",
        pod.name,
        container.name,
        first_8(&pod.uid)
    );
    TargetStatus {
        pod_name: pod.name.clone(),
        pod_uid: pod.uid.clone(),
        node_name: pod.node.clone(),
        container_id: container.id,
        container_name: container.name,
        ephemeral_container_name: format!(
            "{SAMPLER_PREFIX}{}-0",
            first_8(&request.uid().unwrap_or_default())
        ),
        state: TargetState::Pending,
        object_key: key(request, &limits.key_prefix, &file),
        checkpoint_seconds: interval(request.spec.duration_seconds, limits.checkpoint_seconds),
        ..TargetStatus::default()
    }
}

fn first_8(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}
