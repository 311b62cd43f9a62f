//! The requests that the cluster has, as the controller knows them, and whether the one of a key is gone.
//!
//! Invariant: a request that is there is never taken for one that is gone: what is not known is asked for, and a question without an
//! answer says nothing.

use std::sync::OnceLock;

use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client};
use phpprof_crds::ProfileRequest;

/// What a uid of Kubernetes has.
const UID_LENGTH: usize = 36;

/// Looked up in the controller's memory, once it has one.
pub struct Requests {
    client: Client,
    known: OnceLock<Store<DeserializeGuard<ProfileRequest>>>,
}

impl Requests {
    pub fn new(client: Client) -> Self {
        Requests {
            client,
            known: OnceLock::new(),
        }
    }

    pub(crate) fn know(&self, known: Store<DeserializeGuard<ProfileRequest>>) {
        // There is one controller in a process.
        let _ = self.known.set(known);
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<ProfileRequest> {
        let found = self
            .known
            .get()?
            .get(&ObjectRef::new(name).within(namespace))?;
        found.0.as_ref().ok().cloned()
    }

    /// Whether the request of a key is certainly not there any more.
    pub async fn is_gone(&self, key: &str) -> bool {
        let Some(owner) = Owner::of(key) else {
            return false;
        };
        let known = self.find(owner.namespace, owner.name);
        if known.is_some_and(|request| owner.is(&request.metadata.uid)) {
            return false;
        }
        let requests: Api<ProfileRequest> = Api::namespaced(self.client.clone(), owner.namespace);
        match requests.get_metadata_opt(owner.name).await {
            Ok(there) => !there.is_some_and(|there| owner.is(&there.metadata.uid)),
            Err(error) => {
                tracing::debug!(%error, key, "it is not known whether the request is gone");
                false
            }
        }
    }
}

/// The request that a key belongs to: what `object_keys::key` wrote into it.
#[derive(Debug, PartialEq, Eq)]
struct Owner<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

impl<'a> Owner<'a> {
    fn of(key: &'a str) -> Option<Self> {
        let mut parts = key.rsplit('/').skip(1);
        let (folder, namespace) = (parts.next()?, parts.next()?);
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
    use crate::decide::limits::Limits;
    use crate::sampler::object_keys::key;
    use crate::testing::request;
    use serde_json::json;

    #[track_caller]
    fn check(key: &str, expected: Option<[&str; 3]>) {
        let expected = expected.map(|[namespace, name, uid]| Owner {
            namespace,
            name,
            uid,
        });
        assert_eq!(Owner::of(key), expected, "{key}");
    }

    #[test]
    fn the_request_of_a_key_is_the_one_that_the_key_was_made_for() {
        let request = request(json!({"target": {"podName": "web"}}));
        let uid = "0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d";
        for prefix in ["", "team/profiles"] {
            let limits = Limits {
                key_prefix: prefix.to_owned(),
                ..Limits::default()
            };
            check(
                &key(&request, &limits.key_prefix, "web.fpm.4f9c7a1d.0.pb.gz"),
                Some(["shop", "first", uid]),
            );
        }
        check(&format!("shop/a-b-{uid}/x"), Some(["shop", "a-b", uid]));
    }

    #[test]
    fn a_key_of_another_shape_belongs_to_nobody() {
        for key in [
            "",
            "x",
            "shop/first/x",
            "first-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/x",
        ] {
            check(key, None);
        }
        check("shop/-0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4d/x", None);
        check("shop/ä0b1c2d3e-4f50-4a6b-8c7d-9e0f1a2b3c4dé/x", None);
    }
}
