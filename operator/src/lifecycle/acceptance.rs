//! Whether a request is accepted, and its targets if it is.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use phpprof_crds::{
    ProfileMode, ProfileRequest, ProfileRequestStatus, RequestReason, TargetState, TargetStatus,
    UploadMode,
};
use phpprof_decide::limits::AdminLimits;
use phpprof_decide::namespace;
use phpprof_decide::resident::{Serving, ServingSampler, stays};
use phpprof_decide::select::{Chosen, Selection, select};

use crate::lifecycle::checkpoints::interval;
use crate::lifecycle::observed::{Admission, RequestRefusal, StoreWrites};
use crate::lifecycle::status::{ConditionReason, container_note};
use crate::sampler::injection::SAMPLER_PREFIX;
use crate::sampler::object_keys::key;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Fills in the start and the targets of a request if it is accepted; the verdict says whether it
/// is.
pub fn admit(
    now: Timestamp,
    request: &ProfileRequest,
    admission: &Admission,
    limits: &AdminLimits,
    status: &mut ProfileRequestStatus,
) -> ConditionReason {
    let matched = admission.matched.as_ref().map_or(0, Vec::len);
    status.matched = i32::try_from(matched).unwrap_or(i32::MAX);
    match choose(now, request, admission, limits) {
        Err(refusal) => ConditionReason {
            reason: refusal.reason,
            message: refusal.message,
        },
        Ok(Selection { chosen, note }) => {
            status.namespace_uid = Some(admission.namespace_uid.clone());
            status.start_time = Some(Time(now));
            // Object keys contain the namespace's uid, which comes from the status.
            let mut accepted = request.clone();
            accepted.status = Some(status.clone());
            let target = |chosen| new_target(&accepted, chosen, limits);
            status.targets = chosen.into_iter().map(target).collect();
            let message = format!(
                "starting samplers in {} of {matched} matching pods{}{note}",
                status.targets.len(),
                container_note(&status.targets),
            );
            ConditionReason {
                reason: RequestReason::Starting,
                message,
            }
        }
    }
}

fn choose(
    now: Timestamp,
    request: &ProfileRequest,
    admission: &Admission,
    limits: &AdminLimits,
) -> Result<Selection, RequestRefusal> {
    let (spec, namespace) = (&request.spec, request.namespace().unwrap_or_default());
    namespace::check(&namespace, admission.namespace_enabled, limits)?;
    if spec.duration_seconds > limits.duration_seconds {
        let (asked, allowed) = (spec.duration_seconds, limits.duration_seconds);
        return refuse(
            RequestReason::DurationOverLimit,
            format!("durationSeconds is {asked}, but the administrator allows at most {allowed}"),
        );
    }
    if spec.samples_per_second > limits.samples_per_second {
        let (asked, allowed) = (spec.samples_per_second, limits.samples_per_second);
        return refuse(
            RequestReason::RateOverLimit,
            format!("samplesPerSecond is {asked}, but the administrator allows at most {allowed}"),
        );
    }
    if limits.is_full(admission.stored_bytes) {
        let allowed = size(limits.bytes_of_namespace.unwrap_or_default());
        return refuse(
            RequestReason::StorageQuotaExceeded,
            format!(
                "the stored profiles of namespace {namespace} have reached the administrator's limit of {allowed}"
            ),
        );
    }
    if let StoreWrites::Refused(found) = admission.store {
        return refuse(
            RequestReason::StoreOverwrites,
            format!("{found}, and the administrator does not allow profiles there"),
        );
    }
    let signs = limits.store_signs && admission.store == StoreWrites::CreateOnly;
    if spec.upload_mode == UploadMode::Direct && !signs {
        return refuse(
            RequestReason::DirectNotSupported,
            "uploadMode is Direct, but the operator's store cannot sign create-only writes"
                .to_owned(),
        );
    }
    let serving = Serving {
        now,
        request_uid: &request.uid().unwrap_or_default(),
        stays: stays(request, limits)?,
    };
    select(
        &spec.target,
        admission.matched.as_ref().map_err(RequestRefusal::clone)?,
        &admission.samplers,
        limits,
        &serving,
    )
}

/// A number of bytes with its unit, for a message.
fn size(bytes: u64) -> String {
    match bytes {
        GIB.. => format!("{:.1} GiB", bytes as f64 / GIB as f64),
        MIB.. => format!("{:.1} MiB", bytes as f64 / MIB as f64),
        _ => format!("{bytes} bytes"),
    }
}

fn refuse<T>(reason: RequestReason, message: String) -> Result<T, RequestRefusal> {
    Err(RequestRefusal { reason, message })
}

fn new_target(request: &ProfileRequest, chosen: Chosen, limits: &AdminLimits) -> TargetStatus {
    let Chosen {
        pod,
        container,
        choice,
        sampler,
    } = chosen;
    let (ephemeral_container_name, resident) = match sampler {
        ServingSampler::Resident { name, .. } => (name, true),
        ServingSampler::Once | ServingSampler::NotBefore(_) => {
            let uid = request.uid().unwrap_or_default();
            (format!("{SAMPLER_PREFIX}{}-0", first_8(&uid)), false)
        }
    };
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
        container_choice: Some(choice),
        ephemeral_container_name,
        resident,
        state: TargetState::Pending,
        object_key: key(request, &limits.key_prefix, &file),
        // A reader of a live request gets every second, and a snapshot takes no time.
        checkpoint_seconds: interval(request.spec.duration_seconds, limits.checkpoint_seconds)
            .filter(|_| request.spec.mode == ProfileMode::Profile),
        ..TargetStatus::default()
    }
}

fn first_8(uid: &str) -> &str {
    uid.get(..8).unwrap_or(uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{admission, at, request};

    #[test]
    fn a_namespace_over_its_storage_limit_is_refused() {
        let limits = AdminLimits {
            bytes_of_namespace: Some(3 << 29),
            ..AdminLimits::default()
        };
        let judge = |stored_bytes| {
            let admission = Admission {
                stored_bytes,
                ..admission(Vec::new())
            };
            let request = request(json!({"target": {"podName": "web"}}));
            let mut status = ProfileRequestStatus::default();
            admit(at(0), &request, &admission, &limits, &mut status)
        };
        assert_eq!(judge((3 << 29) - 1).reason, RequestReason::NoPodsReady);
        let full = judge(3 << 29);
        assert_eq!(full.reason, RequestReason::StorageQuotaExceeded);
        assert_eq!(
            full.message,
            "the stored profiles of namespace shop have reached the administrator's limit of 1.5 GiB"
        );
    }

    #[test]
    fn a_store_that_overwrites_never_gets_a_grant() {
        let judge = |store, mode: &str| {
            let admission = Admission {
                store,
                ..admission(Vec::new())
            };
            let spec = json!({"target": {"podName": "web"}, "uploadMode": mode});
            let mut status = ProfileRequestStatus::default();
            let limits = AdminLimits {
                store_signs: true,
                ..AdminLimits::default()
            };
            let verdict = admit(at(0), &request(spec), &admission, &limits, &mut status);
            (verdict.reason, verdict.message)
        };
        let (reason, message) = judge(StoreWrites::Refused("the store overwrites"), "Relay");
        assert_eq!(reason, RequestReason::StoreOverwrites);
        assert!(
            message.starts_with("the store overwrites, and"),
            "{message}"
        );
        // Without pods, what is not refused for the store's sake is refused for theirs.
        for (store, mode, expected) in [
            (
                StoreWrites::CreateOnly,
                "Direct",
                RequestReason::NoPodsReady,
            ),
            (
                StoreWrites::ByOperator,
                "Direct",
                RequestReason::DirectNotSupported,
            ),
            (StoreWrites::ByOperator, "Auto", RequestReason::NoPodsReady),
        ] {
            assert_eq!(judge(store, mode).0, expected, "{store:?} {mode}");
        }
    }

    #[test]
    fn sizes_are_in_units_that_people_read() {
        assert_eq!(
            [size(512), size(5 << 19), size(10 << 30)],
            ["512 bytes", "2.5 MiB", "10.0 GiB"]
        );
    }
}
