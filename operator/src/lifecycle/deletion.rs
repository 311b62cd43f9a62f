//! What happens to a request's samplers, and to the objects that they stored, when the request is
//! deleted while it runs.
//!
//! It is pure: `reconcile::deletion` executes it.
//!
//! Invariant: it depends only on facts from the request's acceptance or later, so an operator that
//! was down during the deletion decides the same from the request's record. No verified profile is
//! deleted: the manifest names it, and it is deleted when its retention ends.

use jiff::Timestamp;
use phpprof_crds::ProfileRequest;
use phpprof_decide::limits::{AdminLimits, Deadlines};

use crate::lifecycle::checkpoints::leftovers;
use crate::lifecycle::effect::Cancellation;
use crate::lifecycle::status::is_terminal;

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Samplers that have to drop their samples. Empty if all samplers have ended or no longer ask.
    pub cancellations: Vec<Cancellation>,
    /// Keys of checkpoints that are not the profile of a pod. A manifest names them too, because
    /// samplers may still store some.
    pub deletes: Vec<String>,
    /// The operator gives up what it could not do by then.
    pub give_up: Timestamp,
}

/// `None` if the request has no samplers: it was never accepted, or it is over and has its
/// manifest.
pub fn deletion(
    now: Timestamp,
    request: &ProfileRequest,
    limits: &AdminLimits,
) -> Option<Deletion> {
    let status = request.status.as_ref()?;
    let start = status.start_time.as_ref()?;
    if status.completion_time.is_some() {
        return None;
    }
    let mut cancellations = open_samplers(request, limits);
    cancellations.retain(|cancellation| now <= cancellation.until);
    Some(Deletion {
        cancellations,
        deletes: leftovers(request),
        give_up: Deadlines::new(start.0, request.spec.duration_seconds, limits).give_up,
    })
}

/// The samplers of a request that may still run, and until when each asks whether to stop.
pub fn open_samplers(request: &ProfileRequest, limits: &AdminLimits) -> Vec<Cancellation> {
    let status = request.status.as_ref();
    let Some((status, start)) = status.and_then(|it| Some((it, it.start_time.as_ref()?))) else {
        return Vec::new();
    };
    let deadlines = Deadlines::new(start.0, request.spec.duration_seconds, limits);
    let open = status.targets.iter().filter(|target| !is_terminal(target));
    open.map(|target| Cancellation {
        pod_uid: target.pod_uid.clone(),
        key: target.object_key.clone(),
        until: deadlines.last_upload,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use phpprof_crds::{ProfileRequestStatus, TargetState, TargetStatus};
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

    /// A long run with four pods: one has its profile, one has a checkpoint instead, one failed,
    /// one runs.
    fn running() -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}, "durationSeconds": 130}));
        let target = |uid: &str, state, file: &str| TargetStatus {
            pod_uid: uid.into(),
            state,
            object_key: format!("shop/{uid}{file}.pb.gz"),
            checkpoint_seconds: Some(60),
            ..TargetStatus::default()
        };
        request.status = Some(ProfileRequestStatus {
            start_time: Some(Time(at(0))),
            targets: vec![
                target("whole", TargetState::Uploaded, ""),
                target("cut", TargetState::Uploaded, ".checkpoint-1"),
                target("failed", TargetState::Failed, ""),
                target("open", TargetState::Sampling, ""),
            ],
            ..ProfileRequestStatus::default()
        });
        request
    }

    fn decided(request: &ProfileRequest, now: i64) -> Option<Deletion> {
        deletion(at(now), request, &AdminLimits::default())
    }

    #[test]
    fn only_samplers_that_may_run_are_stopped() {
        let deletion = decided(&running(), 30).unwrap();
        let stopped: Vec<_> = deletion.cancellations.iter().map(|it| &*it.key).collect();
        assert_eq!(stopped, ["shop/open.pb.gz"]);
        assert_eq!(deletion.cancellations[0].pod_uid, "open");
    }

    #[test]
    fn checkpoints_go_and_profiles_that_were_verified_stay() {
        let deletion = decided(&running(), 30).unwrap();
        for kept in ["shop/whole.pb.gz", "shop/cut.checkpoint-1.pb.gz"] {
            assert!(!deletion.deletes.iter().any(|key| key == kept), "{kept}");
        }
        for gone in [
            "shop/whole.checkpoint-1.pb.gz",
            "shop/cut.pb.gz",
            "shop/open.checkpoint-2.pb.gz",
        ] {
            assert!(deletion.deletes.iter().any(|key| key == gone), "{gone}");
        }
    }

    #[test]
    fn a_sampler_past_asking_is_not_stopped() {
        let until = decided(&running(), 0).unwrap().cancellations[0]
            .until
            .as_second()
            - at(0).as_second();
        assert_eq!(decided(&running(), until).unwrap().cancellations.len(), 1);
        let late = decided(&running(), until + 1).unwrap();
        assert_eq!(late.cancellations, []);
        assert!(!late.deletes.is_empty());
    }

    #[test]
    fn a_request_without_samplers_leaves_nothing_to_do() {
        let mut never = running();
        never.status.as_mut().unwrap().start_time = None;
        assert_eq!(decided(&never, 0), None);
        let mut over = running();
        over.status.as_mut().unwrap().completion_time = Some(Time(at(200)));
        assert_eq!(decided(&over, 300), None);
        never.status = None;
        assert_eq!(decided(&never, 0), None);
    }
}
