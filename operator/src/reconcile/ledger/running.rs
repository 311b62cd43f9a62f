//! Requests that may have samplers, as last seen. They are kept because the notice of a deletion has no object.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;

use crate::decide::status::is_running;
use crate::reconcile::watches::RequestRef;

/// By name. The uid tells a deleted request from a later one of the same name.
#[derive(Default)]
pub struct Running(Mutex<State>);

#[derive(Default)]
struct State {
    running: HashMap<RequestRef, Arc<ProfileRequest>>,
    /// Uids of requests whose end the watch may not show yet, the latest at the end.
    ended: VecDeque<String>,
    /// Namespaces whose requests got places, the latest turn at the end.
    served: VecDeque<String>,
}

/// Far more than can finish before a watch shows it.
const ENDED: usize = 1024;
/// Far more than wait for a place at the same time.
const SERVED: usize = 1024;

impl Running {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the request while it runs. Returns an earlier request of the same name, which must have been deleted meanwhile.
    pub fn see(&self, reference: &RequestRef, request: &ProfileRequest) -> Option<ProfileRequest> {
        let mut state = self.state();
        let before = match is_running(request) {
            true => {
                if !state.running.contains_key(reference) {
                    state.serve(request.namespace().unwrap_or_default());
                }
                let running = Arc::new(request.clone());
                state.running.insert(reference.clone(), running)
            }
            false => {
                let before = state.running.remove(reference);
                if before.is_some() {
                    state.end(request.uid());
                }
                before
            }
        };
        let before = before.filter(|before| before.uid() != request.uid());
        before.map(Arc::unwrap_or_clone)
    }

    pub(crate) fn references(&self) -> Vec<RequestRef> {
        self.state().running.keys().cloned().collect()
    }

    /// By uid.
    pub fn all(&self) -> Vec<(String, Arc<ProfileRequest>)> {
        let state = self.state();
        let all = state.running.values();
        all.map(|request| (request.uid().unwrap_or_default(), request.clone()))
            .collect()
    }

    /// Uids of requests that this operator saw finish.
    pub fn ended(&self) -> HashSet<String> {
        self.state().ended.iter().cloned().collect()
    }

    /// Namespaces whose requests got places, the latest turn at the end.
    pub fn served(&self) -> Vec<String> {
        self.state().served.iter().cloned().collect()
    }

    /// Removes a request, and returns its last known state if it was running.
    pub fn take(&self, reference: &RequestRef) -> Option<ProfileRequest> {
        let mut state = self.state();
        let taken = state.running.remove(reference)?;
        state.end(taken.uid());
        Some(Arc::unwrap_or_clone(taken))
    }
}

impl State {
    fn serve(&mut self, namespace: String) {
        self.served.retain(|served| *served != namespace);
        self.served.push_back(namespace);
        if self.served.len() > SERVED {
            self.served.pop_front();
        }
    }

    fn end(&mut self, uid: Option<String>) {
        self.ended.extend(uid);
        if self.ended.len() > ENDED {
            self.ended.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::runtime::reflector::ObjectRef;
    use phpprof_crds::ProfileRequestStatus;
    use serde_json::json;

    use super::*;
    use crate::testing::{at, request};

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
    fn who_was_given_a_place_last_is_the_last_of_those_served() {
        let running = Running::default();
        for (number, namespace) in ["shop", "blog", "shop"].into_iter().enumerate() {
            let mut request = seen(&number.to_string(), false);
            request.metadata.namespace = Some(namespace.to_owned());
            let reference = ObjectRef::new(&number.to_string()).within(namespace);
            running.see(&reference, &request);
            running.see(&reference, &request);
        }
        assert_eq!(running.served(), ["blog", "shop"]);
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
