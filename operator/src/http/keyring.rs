//! The keys in their Secret: made at the first start, renewed while the operator runs, shared by
//! all that sign and check.
//!
//! The operator watches the Secret. What another replica or the administrator writes there applies;
//! if the Secret is emptied, the operator makes new keys. Invariant: a key is used only once the
//! Secret has it, so that a restarted operator knows it too.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use phpprof_crds::ProfileArchive;

use crate::http::keys::{KeyError, Keys, is_token, token};
use crate::sampler::offer::ResidentPod;
use phpprof_crds::chain;

/// How often the operator checks the age of the keys.
const LOOK: Duration = Duration::from_secs(3600);

/// Why the operator has no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The Secret, by its name in the operator's namespace, could not be read or written.
    #[error("the operator's Secret {0} cannot be read or written")]
    Secret(String, #[source] kube::Error),
    /// The Secret's content is not a key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The keys, shared by all that use them.
#[derive(Clone)]
pub struct Keyring(Arc<RwLock<Keys>>);

impl Keyring {
    /// Starts with these keys. The Secret may bring others.
    pub fn new(keys: Keys) -> Self {
        Keyring(Arc::new(RwLock::new(keys)))
    }

    /// The current keys.
    pub fn keys(&self) -> Keys {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn replace(&self, keys: Keys) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Keyring::new(Keys::new(crate::testing::at(0)).expect("keys can be made"))
    }

    #[cfg(test)]
    pub(crate) fn renew_for_test(&self, now: Timestamp) {
        self.replace(self.keys().renew(now).expect("keys can be made"));
    }

    /// The key that opens the results of one request, for users who may read its status.
    pub fn access_key(&self, request_uid: &str) -> String {
        token(&self.keys().access, &["access", request_uid])
    }

    pub(crate) fn is_access_key(&self, request_uid: &str, key: &str) -> bool {
        is_token(&self.keys().access, &["access", request_uid], key)
    }

    /// The key that opens everything stored of a namespace, for users who may read the status of
    /// its archive.
    pub(crate) fn archive_key(&self, archive: &ArchiveRef<'_>) -> String {
        token(
            &self.keys().access,
            &archive.parts().each_ref().map(String::as_str),
        )
    }

    pub(crate) fn is_archive_key(&self, archive: &ArchiveRef<'_>, key: &str) -> bool {
        let parts = archive.parts();
        is_token(
            &self.keys().access,
            &parts.each_ref().map(String::as_str),
            key,
        )
    }

    /// Opens one object until this time.
    pub fn link(&self, key: &str, expires: i64) -> String {
        token(&self.keys().access, &["link", &expires.to_string(), key])
    }

    pub(crate) fn is_link(&self, key: &str, expires: i64, given: &str) -> bool {
        is_token(
            &self.keys().access,
            &["link", &expires.to_string(), key],
            given,
        )
    }

    /// Lets one pod create one object until this time, and ask whether to stop.
    pub(crate) fn grant(&self, pod: GrantPod<'_>, key: &str, expires: i64) -> String {
        let expires = expires.to_string();
        token(&self.keys().grants, &grant_parts(pod, key, &expires))
    }

    pub(crate) fn is_grant(&self, pod: GrantPod<'_>, key: &str, expires: i64, given: &str) -> bool {
        let (keys, expires) = (self.keys(), expires.to_string());
        let parts = grant_parts(pod, key, &expires);
        is_token(&keys.grants, &parts, given) || is_token(&keys.grants_before, &parts, given)
    }

    /// Lets a resident sampler ask for its runs until this time.
    pub fn ask(&self, asker: &ResidentPod, expires: i64) -> String {
        token(&self.keys().grants, &ask_parts(asker, &expires.to_string()))
    }

    pub(crate) fn is_ask(&self, asker: &ResidentPod, expires: i64, given: &str) -> bool {
        let (keys, expires) = (self.keys(), expires.to_string());
        let parts = ask_parts(asker, &expires);
        is_token(&keys.grants, &parts, given) || is_token(&keys.grants_before, &parts, given)
    }
}

fn ask_parts<'a>(asker: &'a ResidentPod, expires: &'a str) -> [&'a str; 6] {
    [
        "ask",
        expires,
        &asker.namespace,
        &asker.pod_uid,
        &asker.pod_addresses,
        &asker.ephemeral_container_name,
    ]
}

/// What an archive's key is bound to. An older key opens neither a recreated namespace nor a
/// recreated archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArchiveRef<'a> {
    pub namespace: &'a str,
    pub namespace_uid: &'a str,
    pub uid: &'a str,
    pub generation: i64,
}

impl<'a> ArchiveRef<'a> {
    pub fn new(archive: &'a ProfileArchive, namespace_uid: &'a str) -> Self {
        ArchiveRef {
            namespace: archive.metadata.namespace.as_deref().unwrap_or_default(),
            namespace_uid,
            uid: archive.metadata.uid.as_deref().unwrap_or_default(),
            generation: archive.spec.access_key_generation,
        }
    }

    fn parts(&self) -> [String; 5] {
        let words = ["archive", self.namespace, self.namespace_uid, self.uid];
        let [kind, namespace, namespace_uid, uid] = words.map(str::to_owned);
        [
            kind,
            namespace,
            namespace_uid,
            uid,
            self.generation.to_string(),
        ]
    }
}

/// The pod of a grant. `addresses` is in the format of [`crate::http::source::named`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantPod<'a> {
    pub uid: &'a str,
    pub addresses: &'a str,
}

/// The parts that are signed. Grants without addresses come from operators that did not know them.
fn grant_parts<'a>(pod: GrantPod<'a>, key: &'a str, expires: &'a str) -> Vec<&'a str> {
    let addresses = Some(pod.addresses).filter(|addresses| !addresses.is_empty());
    ["grant", expires, pod.uid, key]
        .into_iter()
        .chain(addresses)
        .collect()
}

/// The Secret that holds the keys. The chart creates it empty, so the operator needs no right to
/// create Secrets.
#[derive(Clone)]
pub struct KeySecret {
    /// It may get, watch and patch this one Secret.
    pub client: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// `<release>-keys`.
    pub name: String,
}

impl KeySecret {
    /// The current keys, or new ones if there are none.
    pub async fn open(&self, now: Timestamp) -> Result<Keyring, KeyringError> {
        let secret = self.read().await?;
        let keys = self.current(secret, now).await?;
        Ok(Keyring::new(keys))
    }

    /// Follows the Secret's keys, and renews them when they are old, while the process runs.
    pub async fn keep(self, keyring: Keyring, changed: impl Fn()) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut changes = watcher(self.api(), only).default_backoff().boxed();
        let mut looks = tokio::time::interval(LOOK);
        loop {
            let secret = tokio::select! {
                change = changes.next() => match change {
                    Some(Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret))) => Ok(secret),
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => {
                        tracing::warn!(%error, "watching the Secret of the keys failed; retrying");
                        continue;
                    }
                    // The watch ends only with the process.
                    None => return,
                },
                _ = looks.tick() => {
                    if !keyring.keys().is_old(Timestamp::now()) {
                        continue;
                    }
                    self.read().await
                }
            };
            let kept = match secret {
                Ok(secret) => self.current(secret, Timestamp::now()).await,
                Err(error) => Err(error),
            };
            match kept {
                Ok(keys) if keys == keyring.keys() => {}
                Ok(keys) => {
                    keyring.replace(keys);
                    changed();
                    tracing::info!("the operator's keys were renewed");
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "the operator keeps its old keys");
                }
            }
        }
    }

    /// The keys of the Secret. Old ones are renewed, and missing ones are made.
    async fn current(&self, secret: Secret, now: Timestamp) -> Result<Keys, KeyringError> {
        match found(&secret)? {
            None => self.write(secret, Keys::new(now)?).await,
            Some(keys) if keys.is_old(now) => self.write(secret, keys.renew(now)?).await,
            Some(keys) => Ok(keys),
        }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn failed(&self, error: kube::Error) -> KeyringError {
        KeyringError::Secret(self.name.clone(), error)
    }

    async fn read(&self) -> Result<Secret, KeyringError> {
        self.api()
            .get(&self.name)
            .await
            .map_err(|error| self.failed(error))
    }

    /// Writes only over the version that was read. If two operators start together, one of them
    /// tries again.
    async fn write(&self, mut secret: Secret, keys: Keys) -> Result<Keys, KeyringError> {
        secret.data = Some(keys.to_data());
        self.api()
            .replace(&self.name, &PostParams::default(), &secret)
            .await
            .map_err(|error| self.failed(error))?;
        Ok(keys)
    }
}

/// The keys in a Secret; `None` if it is empty.
fn found(secret: &Secret) -> Result<Option<Keys>, KeyringError> {
    let data = secret.data.as_ref().filter(|data| !data.is_empty());
    Ok(data.map(Keys::from_data).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const POD: GrantPod<'_> = GrantPod {
        uid: "u",
        addresses: "10.0.0.5",
    };

    #[test]
    fn a_grant_outlives_one_renewal_and_not_two() {
        let keyring = Keyring::new(Keys::new(at(0)).unwrap());
        let grant = keyring.grant(POD, "a/b", 5);
        keyring.renew_for_test(at(1));
        assert!(keyring.is_grant(POD, "a/b", 5, &grant));
        keyring.renew_for_test(at(2));
        assert!(!keyring.is_grant(POD, "a/b", 5, &grant));
    }

    #[test]
    fn a_grant_has_one_key_pod_and_end() {
        let keyring = Keyring::new(Keys::new(at(0)).unwrap());
        let grant = keyring.grant(POD, "a/b", 5);
        let (other, elsewhere) = (
            GrantPod { uid: "v", ..POD },
            GrantPod {
                addresses: "10.0.0.6",
                ..POD
            },
        );
        let anywhere = GrantPod {
            addresses: "",
            ..POD
        };
        assert!(!keyring.is_grant(POD, "a/c", 5, &grant));
        assert!(!keyring.is_grant(POD, "a/b", 6, &grant));
        for pod in [other, elsewhere, anywhere] {
            assert!(!keyring.is_grant(pod, "a/b", 5, &grant), "{pod:?}");
        }
        assert!(!keyring.is_link("a/b", 5, &grant));
    }

    #[test]
    fn an_access_key_of_a_request_outlives_renewals() {
        let keyring = Keyring::new(Keys::new(at(0)).unwrap());
        let key = keyring.access_key("first");
        keyring.renew_for_test(at(1));
        assert!(keyring.is_access_key("first", &key));
        assert!(!keyring.is_access_key("second", &key));
    }

    #[test]
    fn an_archive_key_fits_one_archive_generation() {
        let keyring = Keyring::new(Keys::new(at(0)).unwrap());
        let archive = ArchiveRef {
            namespace: "shop",
            namespace_uid: "n1",
            uid: "a1",
            generation: 0,
        };
        let key = keyring.archive_key(&archive);
        keyring.renew_for_test(at(1));
        assert!(keyring.is_archive_key(&archive, &key));
        let (namespace, namespace_uid, uid, generation) = ("blog", "n2", "a2", 1);
        for other in [
            ArchiveRef {
                namespace,
                ..archive
            },
            ArchiveRef {
                namespace_uid,
                ..archive
            },
            ArchiveRef { uid, ..archive },
            ArchiveRef {
                generation,
                ..archive
            },
        ] {
            assert!(!keyring.is_archive_key(&other, &key), "{other:?}");
        }
        assert!(!keyring.is_access_key("a1", &key));
    }
}
