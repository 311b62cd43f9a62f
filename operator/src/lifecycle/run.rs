//! What a request asks of one pod, in the form that its sampler receives.

use kube::ResourceExt as _;
use phpprof_crds::{ProfileMode, ProfileRequest, TargetStatus};
use phpprof_decide::pod::SamplerDeadlines;

use crate::lifecycle::checkpoints;
use crate::sampler::injection::{PodRun, Subject};

/// The container that a target names. The pod's addresses are left out, because the status does not
/// have them.
pub fn subject(request: &ProfileRequest, target: &TargetStatus) -> Subject {
    Subject {
        namespace: request.namespace().unwrap_or_default(),
        pod_name: target.pod_name.clone(),
        pod_uid: target.pod_uid.clone(),
        pod_addresses: Vec::new(),
        container_name: target.container_name.clone(),
        container_id: target.container_id.clone(),
    }
}

/// What a request asks of one pod, with these deadlines.
pub fn run(request: &ProfileRequest, target: &TargetStatus, deadlines: SamplerDeadlines) -> PodRun {
    let spec = &request.spec;
    let is_live = spec.mode == ProfileMode::Live;
    let is_of_heaps = spec.mode == ProfileMode::Heap;
    PodRun {
        object_key: target.object_key.clone(),
        checkpoint_seconds: target.checkpoint_seconds.unwrap_or_default(),
        checkpoint_times: checkpoints::times(
            spec.duration_seconds,
            target.checkpoint_seconds.unwrap_or_default(),
        ),
        // A reader of a live request gets every second, so it needs no checkpoints.
        checkpoint_keys: if is_live {
            Vec::new()
        } else {
            checkpoints::keys(target, spec.duration_seconds)
        },
        requests_key: checkpoints::lists_requests(request)
            .then(|| checkpoints::requests_key(target)),
        upload_mode: spec.upload_mode,
        duration_seconds: spec.duration_seconds,
        samples_per_second: spec.samples_per_second,
        include_idle: spec.include_idle,
        heap: spec.heap,
        include_suspended: spec.include_suspended,
        is_snapshot: spec.mode == ProfileMode::Snapshot,
        is_heap_snapshot: is_of_heaps,
        is_live,
        // The default is the label Script, but what is in a heap belongs to no HTTP request.
        labels: if is_of_heaps {
            Vec::new()
        } else {
            spec.labels.clone()
        },
        filter: spec.filter.clone(),
        not_after: deadlines.not_after,
        upload_until: deadlines.upload_until,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

    #[track_caller]
    fn check(mode: &str, is_live: bool, checkpoints: usize) {
        let asked = request(json!({
            "target": {"podName": "web"}, "mode": mode, "durationSeconds": 120,
        }));
        let target = TargetStatus {
            object_key: "shop/web.pb.gz".into(),
            checkpoint_seconds: Some(60),
            ..TargetStatus::default()
        };
        let deadlines = SamplerDeadlines {
            not_after: at(0),
            upload_until: at(1),
        };
        let run = run(&asked, &target, deadlines);
        let found = (run.is_live, run.checkpoint_keys.len());
        assert_eq!(found, (is_live, checkpoints), "{mode}");
    }

    #[test]
    fn a_live_run_brings_seconds_without_checkpoints() {
        check("Live", true, 0);
        check("Profile", false, 5);
    }

    #[test]
    fn a_look_into_heaps_has_no_labels() {
        let asked = request(json!({
            "target": {"podName": "web"}, "mode": "Heap", "durationSeconds": 1,
        }));
        let deadlines = SamplerDeadlines {
            not_after: at(0),
            upload_until: at(1),
        };
        let run = run(&asked, &TargetStatus::default(), deadlines);
        assert!(run.is_heap_snapshot && !run.is_snapshot && !run.heap);
        assert!(run.labels.is_empty() && run.checkpoint_keys.is_empty());
        assert_eq!(run.requests_key, None);
    }
}
