//! Grants of the store and of the relay, which say what a sampler may write and poll. Each sampler
//! gets new ones.
//!
//! Invariant: a grant is for one key, one pod, and until one instant. It cannot overwrite an
//! existing object.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use phpprof_crds::UploadMode;

use crate::http::grants;
use crate::http::keyring::GrantPod;
use crate::http::runs::ask;
use crate::http::source::named;
use crate::reconcile::calls::AT_ONCE;
use crate::reconcile::context::{Contact, Context};
use crate::sampler::container::SamplerGrants;
use crate::sampler::grant::KeyGrant;
use crate::sampler::injection::{PodRun, Subject};
use crate::sampler::object_keys::receipt_key;
use crate::sampler::offer::{PollGrant, ResidentPod};
use crate::storage::store::ProfileStore;

/// Makes the grants of one pod's samplers.
pub struct Granter<'a> {
    contact: &'a Contact,
    store: &'a ProfileStore,
    subject: &'a Subject,
    now: Timestamp,
}

/// Whether a sampler may ask, with a grant, whether to stop.
#[derive(Clone, Copy, PartialEq)]
enum Asks {
    Yes,
    No,
}

impl<'a> Granter<'a> {
    /// With what the operator has.
    pub fn new(context: &'a Context, subject: &'a Subject) -> Self {
        Granter {
            contact: &context.contact,
            store: &context.storage.store,
            subject,
            now: context.now(),
        }
    }

    /// The grants for a run.
    ///
    /// # Errors
    /// The text says why a grant could not be made.
    pub async fn grants(&self, run: &PodRun) -> Result<SamplerGrants, String> {
        let checkpoints = stream::iter(run.checkpoint_keys.clone())
            .map(|key| async move { self.routes(run, &key, Asks::No).await })
            // Some stores use a service to make each signature.
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let requests = match &run.requests_key {
            Some(key) => self.routes(run, key, Asks::No).await?,
            None => Vec::new(),
        };
        Ok(SamplerGrants {
            profile: self.routes(run, &run.object_key, Asks::Yes).await?,
            checkpoint_seconds: run.checkpoint_seconds,
            checkpoint_times: run.checkpoint_times.clone(),
            checkpoints,
            requests,
            relay_addresses: match run.upload_mode {
                UploadMode::Direct => Vec::new(),
                _ => self.contact.relay_addresses.get().await,
            },
        })
    }

    /// The grant with which a resident sampler stores the receipt of a run, over the relay.
    ///
    /// # Errors
    /// As [`Granter::grants`].
    pub fn receipt(&self, run: &PodRun) -> Result<KeyGrant, String> {
        let key = receipt_key(&run.object_key);
        self.relay(&key, run.upload_until, Asks::No)
    }

    /// The grant with which the resident sampler in this container asks for runs until this time.
    ///
    /// # Errors
    /// As [`Granter::grants`].
    pub fn first_ask(&self, container: &str, until: Timestamp) -> Result<PollGrant, String> {
        let asker = ResidentPod {
            namespace: self.subject.namespace.clone(),
            pod_uid: self.subject.pod_uid.clone(),
            pod_addresses: named(&self.subject.pod_addresses),
            ephemeral_container_name: container.to_owned(),
        };
        let made = ask(
            &self.contact.keyring,
            &self.contact.relay_url,
            &asker,
            until,
        );
        made.map_err(|error| error.to_string())
    }

    /// The routes of the request's mode, in the order in which the sampler tries them.
    async fn routes(&self, run: &PodRun, key: &str, asks: Asks) -> Result<Vec<KeyGrant>, String> {
        let mut grants = Vec::new();
        if run.upload_mode != UploadMode::Relay && self.store.signs() {
            let valid_for = valid_for(self.now, run.upload_until);
            let grant = match asks {
                Asks::Yes => self.store.grant(key, valid_for).await,
                Asks::No => self.store.put_grant(key, valid_for).await,
            };
            grants.push(grant.map_err(|error| error.to_string())?);
        }
        if run.upload_mode != UploadMode::Direct {
            let mut grant = self.relay(key, run.upload_until, asks)?;
            if !run.is_live {
                grant.live.clear();
            }
            grants.push(grant);
        }
        Ok(grants)
    }

    fn relay(&self, key: &str, until: Timestamp, asks: Asks) -> Result<KeyGrant, String> {
        let pod = GrantPod {
            uid: &self.subject.pod_uid,
            addresses: &named(&self.subject.pod_addresses),
        };
        let grant = grants::grant(
            &self.contact.keyring,
            &self.contact.relay_url,
            pod,
            key,
            until,
        );
        let mut grant = grant.map_err(|error| error.to_string())?;
        if asks == Asks::No {
            grant.stop.clear();
            grant.live.clear();
        }
        Ok(grant)
    }
}

/// A grant expires at the second that the contract names, but is valid for at least one second.
fn valid_for(now: Timestamp, until: Timestamp) -> Duration {
    let seconds = until.as_second() - now.as_second();
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
}
