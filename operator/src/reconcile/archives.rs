//! The ProfileArchive of each namespace: created with the first accepted request, and its status
//! kept up to date.
//!
//! No request waits for it. The operator retries an archive that it could not create or update, and
//! profiling also works in a cluster without this kind.
//!
//! Invariant: a status has the key of the current namespace and the current archive, whoever
//! created them.

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
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use phpprof_crds::{ARCHIVE, ProfileArchive, ProfileArchiveSpec, ProfileArchiveStatus};
use phpprof_decide::limits::later;
use serde_json::json;

use crate::http::keyring::{ArchiveRef, Keyring};
use crate::lease::Role;
use crate::reconcile::calls::call;
use crate::reconcile::reflected::reflected;
use crate::reconcile::requests::strip_metadata;
use crate::reconcile::scopes::{routed, scopes};
use crate::reconcile::watches::paged;
use crate::storage::archive::{Archive, ArchiveListing};
use phpprof_crds::chain;

/// Archives that are reconciled at the same time.
const CONCURRENCY: u16 = 2;
/// The pause after a failed reconciliation.
const PAUSE: Duration = Duration::from_secs(60);

/// The shortest time between two counts of an archive.
const COUNTED: SignedDuration = SignedDuration::from_secs(10);

type Guarded = DeserializeGuard<ProfileArchive>;

/// Why an archive's status is out of date. The operator tries again.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The namespace could not be read. The key contains its uid.
    #[error("reading the namespace failed")]
    Namespace(#[source] kube::Error),
    /// The API server refused the write, or did not answer.
    #[error("writing the archive's status failed")]
    Status(#[source] kube::Error),
    /// The store refused the call, or did not answer.
    #[error("counting the namespace's stored profiles failed")]
    Count(#[source] crate::storage::store::StoreError),
}

/// The archives that the cluster has.
pub struct Archives {
    client: Client,
    keyring: Keyring,
    archive: Arc<Archive>,
    role: Arc<Role>,
    /// The URL of the results for users, if the administrator has set one.
    url: String,
    known: OnceLock<Vec<Store<Guarded>>>,
    changes: UnboundedSender<ObjectRef<Guarded>>,
}

/// Archives to reconcile again, by name.
pub type ArchiveChanges = UnboundedReceiver<ObjectRef<Guarded>>;

impl Archives {
    /// Starts without any archive. `ArchiveChanges` has those to reconcile once the controller
    /// runs. `url` is the base of the results' URLs.
    pub fn new(
        client: Client,
        keyring: Keyring,
        archive: Arc<Archive>,
        role: Arc<Role>,
        url: Option<String>,
    ) -> (Arc<Self>, ArchiveChanges) {
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

    /// The archive as last seen by the watch.
    pub fn find(&self, namespace: &str) -> Option<ProfileArchive> {
        let mut known = self.known.get()?.iter();
        let found = known.find_map(|known| known.get(&reference(namespace)))?;
        found.0.as_ref().ok().cloned()
    }

    /// Creates the archive of a namespace, unless there is one.
    pub fn ensure(self: &Arc<Self>, namespace: &str) {
        // Only the replica that leads creates it.
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

    /// Counts again after something of this namespace was stored.
    pub fn count_again(self: &Arc<Self>, namespace: &str) {
        match self.find(namespace) {
            None => self.ensure(namespace),
            Some(_) => self.look_again(reference(namespace)),
        }
    }

    /// Counts all archives again, after something was deleted in any namespace.
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

    /// Writes to this archive only, not to one that has replaced it.
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

/// Whether the API server answers this way while a namespace is deleted, or afterwards.
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

/// Runs while the process runs.
pub async fn run(archives: Arc<Archives>, changes: ArchiveChanges, namespaces: Vec<String>) {
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
        let changed = reflected(writer, arriving);
        let archives = archives.clone();
        Controller::for_stream(changed, known)
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
        // Somebody deleted the archive. It is replaced by one with another key, unless its
        // namespace is being deleted too.
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
        // From here on another replica writes it, including what this one has not written yet.
        () = archives.role.lost() => Ok(Action::await_change()),
    }
}

/// Updates the key and the counts in the archive's status if they have changed.
async fn keep(archive: &ProfileArchive, archives: &Archives) -> Result<Action, ArchiveError> {
    let namespace = archive.namespace().unwrap_or_default();
    // The kind's rule allows no other name. An archive with another name is left alone all the
    // same.
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
        // This write triggers the next reconciliation.
        return Ok(Action::await_change());
    }
    let listing = archives.archive.list(&namespace, &namespace_uid).await;
    let listing = listing.map_err(ArchiveError::Count)?;
    if let Some(status) = counted(archive, &listing) {
        archives.write(archive, status).await?;
    }
    Ok(Action::await_change())
}

/// How long to leave an archive alone that was counted a moment ago and whose key is still right.
/// So many requests that end together cause one count.
fn rests(archive: &ProfileArchive, keyring: &Keyring, now: Timestamp) -> Option<Duration> {
    let status = archive.status.as_ref().filter(|it| it.profiles.is_some())?;
    let key = keyring.archive_key(&ArchiveRef::new(archive, &status.namespace_uid));
    let until = later(status.last_update_time.as_ref()?.0, COUNTED);
    let wait = Duration::try_from(until.duration_since(now)).ok()?;
    (*status.access_key == *key && !wait.is_zero()).then_some(wait)
}

/// The status with the current key and URL; `None` if it has them.
fn opened(
    archive: &ProfileArchive,
    namespace_uid: &str,
    access_key: String,
    url: &str,
) -> Option<ProfileArchiveStatus> {
    let before = archive.status.clone().unwrap_or_default();
    let status = ProfileArchiveStatus {
        namespace_uid: namespace_uid.to_owned(),
        access_key: access_key.into(),
        url: url.to_owned(),
        ..before.clone()
    };
    (status != before).then_some(status)
}

/// The status with the current counts; `None` if it has them.
fn counted(archive: &ProfileArchive, listing: &ArchiveListing) -> Option<ProfileArchiveStatus> {
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
