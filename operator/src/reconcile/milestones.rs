//! What follows from a request's acceptance, from its collection and from its end.
//!
//! Invariant: no request waits for it: calls to the store run in the background.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, TargetReason};
use tracing::Instrument as _;

use crate::lifecycle::checkpoints::leftovers;
use crate::lifecycle::effect::Done;
use crate::lifecycle::status::is_over;
use crate::reconcile::context::Context;
use crate::reconcile::deletion::keep_record;

/// How far a request has come.
#[derive(Clone, Copy)]
pub struct Milestones {
    is_accepted: bool,
    is_over: bool,
}

impl Milestones {
    pub fn of(request: &ProfileRequest) -> Self {
        let status = request.status.as_ref();
        Milestones {
            is_accepted: status.is_some_and(|status| status.start_time.is_some()),
            is_over: is_over(request),
        }
    }
}

/// Whether a sampler may have been alive when its target was given up: only where the pod is gone,
/// nothing tells that its containers are.
fn may_outlive(request: &ProfileRequest) -> bool {
    let targets = request.status.iter().flat_map(|status| &status.targets);
    let mut reasons = targets.filter_map(|target| target.reason);
    reasons.any(|reason| reason == TargetReason::PodDeleted)
}

/// Does what follows from an acceptance or an end, which the status says since this decision.
pub fn see_progress(context: &Arc<Context>, before: Milestones, request: &ProfileRequest) {
    let (now, namespace) = (
        Milestones::of(request),
        request.namespace().unwrap_or_default(),
    );
    if now.is_accepted && !before.is_accepted {
        context.cluster.archives.ensure(&namespace);
        keep_record(context, request);
    }
    if now.is_over && !before.is_over {
        context.call_next();
        if now.is_accepted {
            context.cluster.archives.count_again(&namespace);
        }
    }
}

/// After this time, a sampler that outlived its pod's object is dead: the kubelet kills the
/// containers of a pod that was deleted with a grace of 0 after two seconds, once it has seen the
/// deletion.
const OUTLIVED: Duration = Duration::from_secs(60);

/// Deletes in the background what is no longer needed once the request is collected. A sampler that
/// gets SIGTERM stores what it has; if its pod is gone from the API server by then, it is too late.
/// The relay refuses that, but a store takes it, so it is deleted again later. If this operator
/// ends before, the sweep does it, because the manifest names these keys.
pub fn clear(context: &Arc<Context>, request: &ProfileRequest, done: &[Done]) {
    let is_over = |done: &Done| {
        matches!(
            done,
            Done::Merged { .. } | Done::MergeFailed(_) | Done::Listed
        )
    };
    if done.iter().any(is_over) {
        let (context, request) = (context.clone(), request.clone());
        let cleared = async move {
            let keys = leftovers(&request);
            let again = may_outlive(&request).then(|| keys.clone());
            context.storage.collector.clear(keys).await;
            // If the record stays, the next leader deletes it when it starts.
            if let Err(error) = context
                .storage
                .collector
                .forget(&request, &context.policy.limits)
                .await
            {
                tracing::info!(%error, "deleting the record of a request failed; retrying later");
            }
            drop(request);
            if let Some(keys) = again {
                tokio::time::sleep(OUTLIVED).await;
                context.storage.collector.clear(keys).await;
            }
        };
        tokio::spawn(cleared.in_current_span());
    }
}

#[cfg(test)]
mod tests {
    use phpprof_crds::{ProfileRequestStatus, TargetStatus};
    use serde_json::json;

    use super::*;
    use crate::lifecycle::checkpoints::keys;
    use crate::testing::api::{ApiServer, context};
    use crate::testing::request;

    /// A request with a run that has its second checkpoint for a profile, because of this.
    fn over(reason: TargetReason) -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}, "durationSeconds": 30}));
        let target = TargetStatus {
            object_key: "web.0.checkpoint-2.pb.gz".into(),
            checkpoint_seconds: Some(60),
            reason: Some(reason),
            ..TargetStatus::default()
        };
        request.status = Some(ProfileRequestStatus {
            targets: vec![target],
            ..ProfileRequestStatus::default()
        });
        request
    }

    /// What is left of the checkpoints, and of a whole profile that comes after the clean-up.
    async fn left(reason: TargetReason) -> Vec<String> {
        let api = ApiServer::new([vec![], vec![]], json!({}));
        let context = Arc::new(context(api.client()).0);
        let request = over(reason);
        let target = &request.status.as_ref().unwrap().targets[0];
        let mut all = keys(target, 30);
        for key in &all {
            context.storage.store.create(key, vec![1]).await.unwrap();
        }
        clear(&context, &request, &[Done::Listed]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let late = "web.0.pb.gz".to_owned();
        context.storage.store.create(&late, vec![1]).await.unwrap();
        tokio::time::sleep(OUTLIVED).await;
        all.push(late);
        let mut left = Vec::new();
        for key in all {
            if context.storage.store.size(&key).await.unwrap().is_some() {
                left.push(key);
            }
        }
        left
    }

    #[tokio::test(start_paused = true)]
    async fn clear_deletes_what_a_deleted_pods_sampler_stores() {
        let profile = "web.0.checkpoint-2.pb.gz";
        assert_eq!(left(TargetReason::PodDeleted).await, [profile]);
        // The kernel has killed this one with its target.
        let both = [profile, "web.0.pb.gz"];
        assert_eq!(left(TargetReason::TargetExited).await, both);
    }
}
