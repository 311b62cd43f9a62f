//! Requests that are deleted while their samplers run: these are told to drop what they have, and a manifest names what they may have stored, so
//! that it goes in time.
//!
//! No finalizer holds a request for that: it can be deleted at any time, also where the operator is away or was removed for good. A deletion that
//! no operator has seen is heard of by the relay, which knows when a request is gone; a sampler that asks only the store goes on to its end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, TargetState, TargetStatus};

use crate::decide::effect::{Done, Telling};
use crate::decide::limits::Deadlines;
use crate::reconcile::controller::Context;
use crate::reconcile::execute::{AT_ONCE, tell_store};
use crate::reconcile::watches::RequestRef;
use crate::sampler::cancellation::Stop;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Requests that may have samplers, as they were seen last: the news of a deletion comes without the object.
#[derive(Default)]
pub struct Running(Mutex<HashMap<RequestRef, ProfileRequest>>);

impl Running {
    /// Keeps the request for as long as it runs; gives one of the same name that must have been deleted meanwhile.
    pub fn see(&self, reference: &RequestRef, request: &ProfileRequest) -> Option<ProfileRequest> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match is_running(request) {
            true => all.insert(reference.clone(), request.clone()),
            false => all.remove(reference),
        };
        before.filter(|before| before.uid() != request.uid())
    }

    pub fn references(&self) -> Vec<RequestRef> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.keys().cloned().collect()
    }

    pub fn take(&self, reference: &RequestRef) -> Option<ProfileRequest> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(reference)
    }
}

/// Whether it may have samplers that have not ended.
pub fn is_running(request: &ProfileRequest) -> bool {
    request
        .status
        .as_ref()
        .is_some_and(|status| status.start_time.is_some() && status.completion_time.is_none())
}

/// Beside the work: nobody waits for it, and a store that is away is tried for as long as it is for any request.
pub fn abandon(context: Arc<Context>, mut request: ProfileRequest) {
    let uid = request.uid().unwrap_or_default();
    context.memory.forget(&uid);
    let status = request.status.clone().unwrap_or_default();
    let Some(start) = status.start_time else {
        return;
    };
    tracing::info!(
        request = request.name_any(),
        namespace = request.namespace(),
        "deleted while it runs"
    );
    let now = context.now();
    request.metadata.deletion_timestamp.get_or_insert(Time(now));
    let deadlines = Deadlines::new(start.0, request.spec.duration_seconds, &context.limits);
    let tellings: Vec<Telling> = status
        .targets
        .iter()
        .filter(|target| open(target))
        .map(|target| Telling {
            pod_uid: target.pod_uid.clone(),
            key: target.object_key.clone(),
            until: deadlines.last_upload,
        })
        .collect();
    for telling in &tellings {
        let Telling { key, until, .. } = telling;
        context.stops.tell(key, Stop::Drop, now, *until);
    }
    tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = settle(&context, &request, &tellings).await {
            let name = request.name_any();
            if context.now() > deadlines.give_up {
                tracing::warn!(error, name, "what a deleted request stored is not listed");
                return;
            }
            tracing::info!(error, name, "a deleted request is settled later");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
}

fn open(target: &TargetStatus) -> bool {
    !matches!(target.state, TargetState::Uploaded | TargetState::Failed)
}

/// Tells the samplers that ask the store, then lists what was stored until now and what is stored before they hear.
async fn settle(
    context: &Context,
    request: &ProfileRequest,
    tellings: &[Telling],
) -> Result<(), String> {
    stream::iter(tellings.to_vec())
        .map(|telling| async move { tell_store(context, request, &telling, Stop::Drop).await })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map_err(|error| error.to_string())?;
    if let Done::StoreAway(error) = context.collector.list(request, &context.limits).await {
        return Err(error);
    }
    context.collector.clear(request).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, request};
    use kube::runtime::reflector::ObjectRef;
    use phpprof_crds::ProfileRequestStatus;
    use serde_json::json;

    fn seen(uid: &str, ended: bool) -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}}));
        request.metadata.uid = Some(uid.to_owned());
        request.status = Some(ProfileRequestStatus {
            start_time: Some(Time(at(0))),
            completion_time: ended.then(|| Time(at(9))),
            ..ProfileRequestStatus::default()
        });
        request
    }

    #[test]
    fn a_request_is_kept_while_it_runs_and_given_once() {
        let (running, reference) = (Running::default(), ObjectRef::new("first").within("shop"));
        assert_eq!(running.see(&reference, &seen("a", false)), None);
        assert_eq!(running.see(&reference, &seen("a", false)), None);
        assert_eq!(
            running.take(&reference).and_then(|kept| kept.uid()),
            Some("a".into())
        );
        assert_eq!(running.take(&reference), None);
        running.see(&reference, &seen("b", false));
        assert_eq!(running.see(&reference, &seen("b", true)), None);
        assert_eq!(running.take(&reference), None);
    }

    #[test]
    fn one_that_was_replaced_by_another_of_its_name_was_deleted() {
        let (running, reference) = (Running::default(), ObjectRef::new("first").within("shop"));
        running.see(&reference, &seen("a", false));
        let displaced = running.see(&reference, &seen("b", false));
        assert_eq!(
            displaced.and_then(|displaced| displaced.uid()),
            Some("a".into())
        );
        let fresh = request(json!({"target": {"podName": "web"}}));
        let displaced = running.see(&reference, &fresh);
        assert_eq!(
            displaced.and_then(|displaced| displaced.uid()),
            Some("b".into())
        );
    }
}
