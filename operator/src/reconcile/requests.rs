//! The cluster's requests, as the controller knows them, and whether the request of a key is gone.
//!
//! The controller keeps little of a finished request: there may be thousands, and any user can
//! create them.
//!
//! Invariant: an existing request is never taken for a deleted one. If the memory does not have it,
//! the API server is asked. Without an answer, the request counts as existing.

use std::sync::{Arc, OnceLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource as _};
use phpprof_crds::{ProfileRequest, ProfileTarget, REQUESTED_BY};
use tokio::sync::watch;

use crate::reconcile::calls::call;
use crate::sampler::object_keys::UID_LENGTH;

/// The requests that a watch has shown.
pub type WatchedRequests = Store<DeserializeGuard<ProfileRequest>>;

/// Looks requests up in the controller's memory, once there is one.
pub struct RequestLookup {
    client: Client,
    /// The beginning of every key, before `<namespace>/…`.
    key_prefix: String,
    known: OnceLock<Vec<WatchedRequests>>,
    changed: watch::Sender<()>,
}

impl RequestLookup {
    /// Knows no requests until it gets the controller's memory.
    pub fn new(client: Client, key_prefix: &str) -> Self {
        RequestLookup {
            client,
            key_prefix: key_prefix.to_owned(),
            known: OnceLock::new(),
            changed: watch::Sender::new(()),
        }
    }

    pub(crate) fn know(&self, known: Vec<WatchedRequests>) {
        // There is one controller in a process.
        let _ = self.known.set(known);
    }

    /// Notes that a watch has shown something.
    pub(crate) fn touch(&self) {
        self.changed.send_replace(());
    }

    /// Changes whenever a watch has shown something.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// All requests as the watch keeps them.
    pub fn all(&self) -> Vec<Arc<DeserializeGuard<ProfileRequest>>> {
        let known = self.known.get().into_iter().flatten();
        known.flat_map(Store::state).collect()
    }

    /// A request as the watch keeps it: without its targets if it is finished.
    pub fn find(&self, namespace: &str, name: &str) -> Option<ProfileRequest> {
        let reference = ObjectRef::new(name).within(namespace);
        let mut known = self.known.get()?.iter();
        let found = known.find_map(|known| known.get(&reference))?;
        found.0.as_ref().ok().cloned()
    }

    /// The whole request, from the API server.
    ///
    /// # Errors
    /// What the API server answers, unless the request does not exist.
    pub async fn fetch(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ProfileRequest>, kube::Error> {
        let requests: Api<ProfileRequest> = Api::namespaced(self.client.clone(), namespace);
        call(|| requests.get_opt(name)).await
    }

    /// Whether nothing more is wanted under a key: its request is over, or certainly does not exist
    /// any more.
    pub async fn is_done_with(&self, key: &str) -> bool {
        self.is_over(key) || self.is_gone(key).await
    }

    /// Whether the watch shows that the request of a key is over.
    fn is_over(&self, key: &str) -> bool {
        let Some(owner) = Owner::of(key, &self.key_prefix) else {
            return false;
        };
        let known = self.find(owner.namespace, owner.name);
        let status = known
            .filter(|request| owner.is(&request.metadata.uid))
            .and_then(|request| request.status);
        status.is_some_and(|status| status.completion_time.is_some())
    }

    /// Whether the request of a key certainly does not exist any more.
    pub async fn is_gone(&self, key: &str) -> bool {
        let Some(owner) = Owner::of(key, &self.key_prefix) else {
            return false;
        };
        let known = self.find(owner.namespace, owner.name);
        if known.is_some_and(|request| owner.is(&request.metadata.uid)) {
            return false;
        }
        let requests: Api<ProfileRequest> = Api::namespaced(self.client.clone(), owner.namespace);
        match call(|| requests.get_metadata_opt(owner.name)).await {
            Ok(there) => !there.is_some_and(|there| owner.is(&there.metadata.uid)),
            Err(error) => {
                tracing::debug!(%error, key, "reading whether the request still exists failed");
                false
            }
        }
    }
}

/// Drops metadata that others can fill without a bound and that the operator does not use.
pub fn strip_metadata(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.labels = None;
    metadata.annotations = None;
    metadata.owner_references = None;
    metadata.finalizers = None;
}

/// No user's name is longer.
const LONGEST_NAME: usize = 512;

/// Drops what the operator does not use of an arriving request: unbounded metadata, except who
/// asked for it, and, if the request is finished, the details of its pods.
pub fn strip(arriving: &mut DeserializeGuard<ProfileRequest>) {
    strip_all_but_who_asked(arriving.meta_mut());
    let Ok(request) = &mut arriving.0 else {
        return;
    };
    if let Some(status) = &mut request.status
        && status.completion_time.is_some()
    {
        status.targets = Vec::new();
        status.links = Vec::new();
        status.conditions.truncate(1);
        request.spec.target = ProfileTarget::default();
    }
}

/// Drops metadata that no schema bounds, except the annotation that says who asked.
pub fn strip_all_but_who_asked(metadata: &mut ObjectMeta) {
    let annotations = metadata.annotations.take();
    strip_metadata(metadata);
    metadata.annotations = annotations.and_then(|mut all| {
        all.retain(|name, value| name == REQUESTED_BY && value.len() <= LONGEST_NAME);
        (!all.is_empty()).then_some(all)
    });
}

/// The request of a key, as `object_keys::key` wrote it.
#[derive(Debug, PartialEq, Eq)]
struct Owner<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

impl<'a> Owner<'a> {
    fn of(key: &'a str, prefix: &str) -> Option<Self> {
        let path = match prefix {
            "" => key,
            prefix => key.strip_prefix(prefix)?.strip_prefix('/')?,
        };
        let parts: Vec<&str> = path.splitn(5, '/').collect();
        let (namespace, folder) = match parts.as_slice() {
            [namespace, _namespace_uid, folder, _file] => (*namespace, *folder),
            // The form of older operators.
            [namespace, folder, _file] => (*namespace, *folder),
            _ => return None,
        };
        let (name, uid) = folder.split_at_checked(folder.len().checked_sub(UID_LENGTH)?)?;
        let name = name.strip_suffix('-').filter(|name| !name.is_empty())?;
        Some(Owner {
            namespace,
            name,
            uid,
        })
    }

    fn is(&self, uid: &Option<String>) -> bool {
        uid.as_deref() == Some(self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::object_keys::key;
    use crate::testing::api::ApiServer;
    use crate::testing::{NAMESPACE_UID, request};
    use kube::runtime::{reflector, watcher};
    use phpprof_crds::ProfileRequestStatus;
    use proptest::prelude::*;
    use serde_json::json;

    fn stripped(status: serde_json::Value) -> ProfileRequest {
        let mut request = request(json!({"target": {"podName": "web"}}));
        let annotations = [
            ("x".into(), "y".repeat(1 << 20)),
            (REQUESTED_BY.into(), "alice".into()),
        ];
        request.metadata.annotations = Some(annotations.into());
        request.metadata.labels = Some([("app".into(), "web".into())].into());
        request.status = serde_json::from_value(status).unwrap();
        let mut arriving = DeserializeGuard(Ok(request));
        strip(&mut arriving);
        arriving.0.unwrap()
    }

    fn target() -> serde_json::Value {
        let names = ["podName", "podUID", "containerName", "containerID"];
        let mut target = json!({"state": "Uploaded", "ephemeralContainerName": "phpprof-0"});
        for name in names {
            target[name] = json!("web");
        }
        target
    }

    #[test]
    fn few_bytes_are_known_of_a_finished_request() {
        let condition = json!({"type": "Complete", "status": "True", "reason": "Complete", "message": "",
            "lastTransitionTime": "2026-09-21T14:13:20Z"});
        let request = stripped(json!({
            "startTime": "2026-09-21T14:13:20Z", "completionTime": "2026-09-21T14:14:20Z",
            "conditions": [condition, condition, condition], "targets": vec![target(); 100],
        }));
        let text = serde_json::to_string(&request).unwrap();
        assert!(text.len() < 1000, "{text}");
        assert!(request.metadata.uid.is_some());
    }

    #[tokio::test]
    async fn is_done_with_knows_finished_and_gone_requests() {
        let nobody = ApiServer::new(
            [vec![], vec![]],
            json!({"kind": "Status", "code": 404, "reason": "NotFound"}),
        );
        let requests = RequestLookup::new(nobody.client(), "");
        let (known, mut writer) = reflector::store();
        requests.know(vec![known]);
        let mut show = |completion_time: Option<&str>| {
            let request = stripped(
                json!({"startTime": "2026-09-21T14:13:20Z", "completionTime": completion_time}),
            );
            let key = key(&request, "", "web.fpm.4f9c7a1d.0.pb.gz");
            writer.apply_watcher_event(&watcher::Event::Apply(DeserializeGuard(Ok(request))));
            key
        };
        let key = show(None);
        assert!(!requests.is_done_with(&key).await);
        show(Some("2026-09-21T14:14:20Z"));
        assert!(requests.is_done_with(&key).await);
        // A later request of the name is another one.
        let other = key.replace("0b1c2d3e", "ffffffff");
        assert!(!requests.is_over(&other));
        assert!(!requests.is_done_with("x").await);
    }

    #[test]
    fn a_running_request_is_known_without_foreign_fields() {
        let request = stripped(json!({"startTime": "2026-09-21T14:13:20Z", "targets": [target()]}));
        assert_eq!(request.spec.target.pod_name.as_deref(), Some("web"));
        assert_eq!(request.status.unwrap().targets.len(), 1);
        let by = Some([(REQUESTED_BY.to_owned(), "alice".to_owned())].into());
        assert_eq!(
            (request.metadata.annotations, request.metadata.labels),
            (by, None)
        );
    }

    #[track_caller]
    fn check(key: &str, prefix: &str, expected: Option<[&str; 3]>) {
        let expected = expected.map(|[namespace, name, uid]| Owner {
            namespace,
            name,
            uid,
        });
        assert_eq!(Owner::of(key, prefix), expected, "{key}");
    }

    #[test]
    fn a_keys_request_is_the_one_it_names() {
        let uid = "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
        let older = request(json!({"target": {"podName": "web"}}));
        let mut newer = older.clone();
        newer.status = Some(ProfileRequestStatus {
            namespace_uid: Some(NAMESPACE_UID.into()),
            ..ProfileRequestStatus::default()
        });
        for prefix in ["", "team/profiles"] {
            for request in [&older, &newer] {
                let key = key(request, prefix, "web.fpm.4f9c7a1d.0.pb.gz");
                check(&key, prefix, Some(["shop", "first", uid]));
            }
        }
        let key = format!("shop/a-b-{uid}/x");
        check(&key, "", Some(["shop", "a-b", uid]));
    }

    proptest! {
        #[test]
        fn every_key_names_its_own_request(
            prefix in "(|[a-z]{1,5}(/[a-z]{1,5}){0,2})",
            namespace in "[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?",
            name in "[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?",
            is_old in any::<bool>(),
        ) {
            let mut request = request(json!({"target": {"podName": "web"}}));
            request.metadata.namespace = Some(namespace.clone());
            request.metadata.name = Some(name.clone());
            request.status = (!is_old).then(|| ProfileRequestStatus {
                namespace_uid: Some(NAMESPACE_UID.into()),
                ..ProfileRequestStatus::default()
            });
            let key = key(&request, &prefix, "web.fpm.4f9c7a1d.0.pb.gz");
            let owner = Owner::of(&key, &prefix).unwrap();
            prop_assert_eq!((owner.namespace, owner.name), (&*namespace, &*name));
        }
    }

    #[test]
    fn a_namespace_named_like_a_uid_is_one() {
        let key = format!("profiles/{NAMESPACE_UID}/first-{NAMESPACE_UID}/x");
        let expected = [NAMESPACE_UID, "first", NAMESPACE_UID];
        check(&key, "profiles", Some(expected));
    }

    #[test]
    fn a_key_of_another_shape_belongs_to_nobody() {
        for key in [
            "",
            "x",
            "shop/first/x",
            "first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/x",
        ] {
            check(key, "", None);
        }
        check("shop/-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/x", "", None);
        check("shop/ä0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4dé/x", "", None);
        let elsewhere = "x/a/shop/first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/x";
        check(elsewhere, "", None);
        check(elsewhere, "y", None);
    }
}
