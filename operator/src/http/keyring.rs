//! The keys in their Secret: made at the first start, renewed while the operator runs, shared by all who sign and check.
//!
//! Invariant: a key is used only once the Secret has it, so that the next life of the operator knows it too.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::http::keys::{KeyError, Keys, is_token, token};

/// How often it is looked whether keys are old.
const LOOK: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    #[error("the operator's Secret {0} cannot be read or written")]
    Secret(String, #[source] kube::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The keys, wherever they are needed.
#[derive(Clone)]
pub struct Keyring(Arc<RwLock<Keys>>);

impl Keyring {
    pub fn new(keys: Keys) -> Self {
        Keyring(Arc::new(RwLock::new(keys)))
    }

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
    pub(crate) fn renew_for_test(&self, now: Timestamp) {
        self.replace(self.keys().renew(now).expect("keys can be made"));
    }

    /// What opens the results of one request, for whoever may read its status.
    pub fn access_key(&self, request_uid: &str) -> String {
        token(&self.keys().access, &["access", request_uid])
    }

    pub fn is_access_key(&self, request_uid: &str, key: &str) -> bool {
        is_token(&self.keys().access, &["access", request_uid], key)
    }

    /// Opens one object until then.
    pub fn link(&self, key: &str, expires: i64) -> String {
        token(&self.keys().access, &["link", &expires.to_string(), key])
    }

    pub fn is_link(&self, key: &str, expires: i64, given: &str) -> bool {
        is_token(
            &self.keys().access,
            &["link", &expires.to_string(), key],
            given,
        )
    }

    /// Lets one pod create one object until then, and hear whether it shall stop.
    pub fn grant(&self, pod: GrantPod<'_>, key: &str, expires: i64) -> String {
        let expires = expires.to_string();
        token(&self.keys().grants, &grant_parts(pod, key, &expires))
    }

    pub fn is_grant(&self, pod: GrantPod<'_>, key: &str, expires: i64, given: &str) -> bool {
        let (keys, expires) = (self.keys(), expires.to_string());
        let parts = grant_parts(pod, key, &expires);
        is_token(&keys.grants, &parts, given) || is_token(&keys.grants_before, &parts, given)
    }
}

/// The pod of a grant; `addresses` as [`crate::http::source::named`] has them.
#[derive(Clone, Copy, Debug)]
pub struct GrantPod<'a> {
    pub uid: &'a str,
    pub addresses: &'a str,
}

/// What is signed. Grants without addresses are those of operators that did not know them.
fn grant_parts<'a>(pod: GrantPod<'a>, key: &'a str, expires: &'a str) -> Vec<&'a str> {
    let addresses = Some(pod.addresses).filter(|addresses| !addresses.is_empty());
    ["grant", expires, pod.uid, key]
        .into_iter()
        .chain(addresses)
        .collect()
}

/// The Secret that holds the keys. The chart makes it, empty: so the operator needs no right to create Secrets.
#[derive(Clone)]
pub struct KeySecret {
    pub client: Client,
    pub namespace: String,
    pub name: String,
}

impl KeySecret {
    /// The keys as they are, or new ones where there are none.
    pub async fn open(&self, now: Timestamp) -> Result<Keyring, KeyringError> {
        let secret = self.read().await?;
        let keys = match &secret.data {
            Some(data) if !data.is_empty() => Keys::from_data(data)?,
            _ => self.write(secret, Keys::new(now)?).await?,
        };
        Ok(Keyring::new(keys))
    }

    /// Renews the keys whenever they are old, for as long as the process lives.
    pub async fn renew(self, keyring: Keyring, renewed: impl Fn()) {
        loop {
            let now = Timestamp::now();
            if keyring.keys().is_old(now) {
                match self.renew_once(&keyring, now).await {
                    Ok(()) => renewed(),
                    Err(error) => {
                        tracing::warn!(%error, "the keys could not be renewed; it is tried again");
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn renew_once(&self, keyring: &Keyring, now: Timestamp) -> Result<(), KeyringError> {
        let secret = self.read().await?;
        let keys = keyring.keys().renew(now)?;
        keyring.replace(self.write(secret, keys).await?);
        tracing::info!("the relay's keys were renewed");
        Ok(())
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

    /// Over the version that was read only: of two operators that start together one tries again.
    async fn write(&self, mut secret: Secret, keys: Keys) -> Result<Keys, KeyringError> {
        secret.data = Some(keys.to_data());
        self.api()
            .replace(&self.name, &PostParams::default(), &secret)
            .await
            .map_err(|error| self.failed(error))?;
        Ok(keys)
    }
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
    fn a_grant_is_of_one_key_one_pod_and_one_end() {
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
    fn an_access_key_is_of_one_request_and_outlives_renewals() {
        let keyring = Keyring::new(Keys::new(at(0)).unwrap());
        let key = keyring.access_key("first");
        keyring.renew_for_test(at(1));
        assert!(keyring.is_access_key("first", &key));
        assert!(!keyring.is_access_key("second", &key));
    }
}
