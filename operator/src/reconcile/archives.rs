//! The ProfileArchive of each namespace: made with the first request that is accepted there, its status kept up to date.
//!
//! Nothing of a request waits for it: an archive that cannot be made or written is tried again, and a cluster without the kind has profiles all the
//! same.
//!
//! Invariant: a status has the key of the namespace and the archive that there are now, whoever made them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{DeserializeGuard, Status};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store, reflector};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use phpprof_crds::{ARCHIVE, ProfileArchive, ProfileArchiveSpec, ProfileArchiveStatus};
use serde_json::json;

use crate::decide::limits::later;
use crate::http::keyring::{ArchiveRef, Keyring};
use crate::lease::Role;
use crate::reconcile::calls::call;
use crate::reconcile::requests::strip_metadata;
use crate::reconcile::scopes::{routed, scopes};
use crate::reconcile::watches::paged;
use crate::storage::archive::{Archive, Listing};
use phpprof_crds::chain;

/// Namespaces that are looked at at the same time.
const CONCURRENCY: u16 = 2;
/// Until a look that failed is tried again.
const PAUSE: Duration = Duration::from_secs(60);

/// An archive is counted so often at most.
const COUNTED: SignedDuration = SignedDuration::from_secs(10);

type Guarded = DeserializeGuard<ProfileArchive>;

/// Why an archive's status is not what it should be; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Its uid is part of the key.
    #[error("reading the namespace failed")]
    Namespace(#[source] kube::Error),
    /// The API server has refused it, or did not answer.
    #[error("writing the archive's status failed")]
    Status(#[source] kube::Error),
    /// The store has refused it, or did not answer.
    #[error("counting the namespace's stored profiles failed")]
    Count(#[source] crate::storage::store::StoreError),
}

/// The archives that the cluster has.
pub struct Archives {
    client: Client,
    keyring: Keyring,
    archive: Arc<Archive>,
    role: Arc<Role>,
    /// Where people reach the results, if the administrator has said so.
    url: String,
    known: OnceLock<Vec<Store<Guarded>>>,
    changes: UnboundedSender<ObjectRef<Guarded>>,
}

/// What shall be looked at again, by name.
pub type Changes = UnboundedReceiver<ObjectRef<Guarded>>;

impl Archives {
    /// Without any archive; `Changes` are those that shall be looked at once the controller runs. `url` is the results' base.
    pub fn new(
        client: Client,
        keyring: Keyring,
        archive: Arc<Archive>,
        role: Arc<Role>,
        url: Option<String>,
    ) -> (Arc<Self>, Changes) {
        let (changes, changed) = unbounded();
        let archives = Archives {
            client,
            keyring,
            archive,
            role,
            url: url.unwrap_or_default(),
            known: OnceLock::new(),
            changes,
        };
        (Arc::new(archives), changed)
    }

    /// As its watch has shown it last.
    pub fn find(&self, namespace: &str) -> Option<ProfileArchive> {
        let mut known = self.known.get()?.iter();
        let found = known.find_map(|known| known.get(&reference(namespace)))?;
        found.0.as_ref().ok().cloned()
    }

    /// Makes the archive of a namespace, unless there is one.
    pub fn ensure(self: &Arc<Self>, namespace: &str) {
        // The replica that leads makes it.
        if !self.role.leads() || self.find(namespace).is_some() {
            return;
        }
        let (archives, namespace) = (self.clone(), namespace.to_owned());
        tokio::spawn(async move {
            match archives.create(&namespace).await {
                Ok(()) => tracing::info!(namespace, "the namespace has an archive"),
                // The watch is behind, or another operator was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(kube::Error::Api(status)) if is_of_a_namespace_that_goes(&status) => {}
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(
                        error,
                        namespace,
                        "creating the namespace's archive failed; the next request retries it"
                    );
                }
            }
        });
    }

    /// Something was stored of a namespace.
    pub fn count_again(self: &Arc<Self>, namespace: &str) {
        match self.find(namespace) {
            None => self.ensure(namespace),
            Some(_) => self.look_again(reference(namespace)),
        }
    }

    /// Something was deleted, of whatever namespace.
    pub fn count_all_again(&self) {
        let known = self.known.get().into_iter().flatten();
        for archive in known.flat_map(Store::state) {
            self.look_again(ObjectRef::from_obj(&*archive));
        }
    }

    fn look_again(&self, archive: ObjectRef<Guarded>) {
        // A closed channel means that the process is about to end.
        let _ = self.changes.unbounded_send(archive);
    }

    async fn create(&self, namespace: &str) -> kube::Result<()> {
        let api: Api<ProfileArchive> = Api::namespaced(self.client.clone(), namespace);
        let archive = ProfileArchive::new(ARCHIVE, ProfileArchiveSpec::default());
        let params = PostParams::default();
        call(|| api.create(&params, &archive)).await.map(drop)
    }

    async fn namespace_uid(&self, namespace: &str) -> Result<String, ArchiveError> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let metadata = call(|| namespaces.get_metadata(namespace)).await;
        let metadata = metadata.map_err(ArchiveError::Namespace)?;
        Ok(metadata.uid().unwrap_or_default())
    }

    /// Into this archive only, not into one that has taken its place.
    async fn write(
        &self,
        archive: &ProfileArchive,
        mut status: ProfileArchiveStatus,
    ) -> Result<(), ArchiveError> {
        status.last_update_time = Some(Time(Timestamp::now()));
        let namespace = archive.namespace().unwrap_or_default();
        let api: Api<ProfileArchive> = Api::namespaced(self.client.clone(), &namespace);
        let (params, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({"metadata": {"uid": archive.uid()}, "status": status})),
        );
        let written = call(|| api.patch_status(ARCHIVE, &params, &patch)).await;
        written.map(drop).map_err(ArchiveError::Status)
    }
}

/// What the API server answers while a namespace is deleted, and afterwards.
fn is_of_a_namespace_that_goes(status: &Status) -> bool {
    match status.code {
        403 => status.message.contains("is being terminated"),
        404 => status.message.starts_with("namespaces "),
        _ => false,
    }
}

fn reference(namespace: &str) -> ObjectRef<Guarded> {
    ObjectRef::new(ARCHIVE).within(namespace)
}

/// Runs for as long as the process does.
pub async fn run(archives: Arc<Archives>, changes: Changes, namespaces: Vec<String>) {
    let scopes: Vec<Api<Guarded>> = scopes(&archives.client, &namespaces);
    let (stores, writers): (Vec<_>, Vec<_>) = scopes.iter().map(|_| reflector::store()).unzip();
    // There is one controller in a process.
    let _ = archives.known.set(stores.clone());
    let (routes, changes) = routed(changes, namespaces);
    tokio::spawn(routes);
    let loops = scopes.into_iter().zip(stores).zip(writers).zip(changes);
    let loops = loops.map(|(((api, known), writer), changes)| {
        let arriving = watcher(api, paged())
            .default_backoff()
            .modify(|arriving| strip_metadata(arriving.meta_mut()));
        let touched = reflector(writer, arriving).touched_objects();
        let archives = archives.clone();
        Controller::for_stream(touched, known)
            .with_config(controller::Config::default().concurrency(CONCURRENCY))
            .reconcile_on(changes)
            .run(
                reconcile,
                |_, _, _| Action::requeue(PAUSE),
                archives.clone(),
            )
            .for_each(move |result| {
                report(&archives, result);
                std::future::ready(())
            })
    });
    futures::future::join_all(loops).await;
}

type Looked = Result<(ObjectRef<Guarded>, Action), controller::Error<ArchiveError, watcher::Error>>;

fn report(archives: &Arc<Archives>, looked: Looked) {
    match looked {
        Ok(_) => {}
        // Somebody deleted it: there is another one, with another key, unless its namespace is going too.
        Err(controller::Error::ObjectNotFound(gone)) => {
            if let Some(namespace) = &gone.namespace {
                archives.ensure(namespace);
            }
        }
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "updating an archive failed; retrying");
        }
    }
}

async fn reconcile(guarded: Arc<Guarded>, archives: Arc<Archives>) -> Result<Action, ArchiveError> {
    let Ok(archive) = &guarded.0 else {
        return Ok(Action::await_change());
    };
    // Another replica writes it.
    if !archives.role.leads() {
        return Ok(Action::await_change());
    }
    tokio::select! {
        kept = keep(archive, &archives) => kept,
        // From here on it does, also what was to be written now.
        () = archives.role.is_lost() => Ok(Action::await_change()),
    }
}

/// Writes what opens the archive and how much there is, where that is not there.
async fn keep(archive: &ProfileArchive, archives: &Archives) -> Result<Action, ArchiveError> {
    let namespace = archive.namespace().unwrap_or_default();
    // No other name passes the kind's rule; whatever does all the same is left alone.
    if archive.name_any() != ARCHIVE || archive.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    if let Some(wait) = rests(archive, &archives.keyring, Timestamp::now()) {
        return Ok(Action::requeue(wait));
    }
    let namespace_uid = archives.namespace_uid(&namespace).await?;
    let key = archives
        .keyring
        .archive_key(&ArchiveRef::new(archive, &namespace_uid));
    if let Some(status) = opened(archive, &namespace_uid, key, &archives.url) {
        archives.write(archive, status).await?;
        // Which brings it here again.
        return Ok(Action::await_change());
    }
    let listing = archives.archive.list(&namespace, &namespace_uid).await;
    let listing = listing.map_err(ArchiveError::Count)?;
    if let Some(status) = counted(archive, &listing) {
        archives.write(archive, status).await?;
    }
    Ok(Action::await_change())
}

/// How long an archive that was counted a moment ago, and whose key is still the one that it shall have, is left alone: of many requests that
/// end together it is counted once.
fn rests(archive: &ProfileArchive, keyring: &Keyring, now: Timestamp) -> Option<Duration> {
    let status = archive.status.as_ref().filter(|it| it.profiles.is_some())?;
    let key = keyring.archive_key(&ArchiveRef::new(archive, &status.namespace_uid));
    let until = later(status.last_update_time.as_ref()?.0, COUNTED);
    let wait = Duration::try_from(until.duration_since(now)).ok()?;
    (status.access_key == key && !wait.is_zero()).then_some(wait)
}

/// The status with what opens the archive, where it does not have that.
fn opened(
    archive: &ProfileArchive,
    namespace_uid: &str,
    access_key: String,
    url: &str,
) -> Option<ProfileArchiveStatus> {
    let before = archive.status.clone().unwrap_or_default();
    let status = ProfileArchiveStatus {
        namespace_uid: namespace_uid.to_owned(),
        access_key,
        url: url.to_owned(),
        ..before.clone()
    };
    (status != before).then_some(status)
}

/// The status with what there is now, where that has changed.
fn counted(archive: &ProfileArchive, listing: &Listing) -> Option<ProfileArchiveStatus> {
    let before = archive.status.clone().unwrap_or_default();
    let profiles = listing.profiles.len() + listing.left_out;
    let status = ProfileArchiveStatus {
        profiles: i64::try_from(profiles).ok(),
        bytes: i64::try_from(listing.bytes).ok(),
        ..before.clone()
    };
    (status != before).then_some(status)
}

#[cfg(test)]
mod tests;
