//! Stored profiles of a namespace, read from the manifests. Its requests may have been deleted.
//!
//! Invariant: a listing reads at most the newest [`MOST`] manifests, a limited number at a time,
//! and each only once, because a manifest never changes. The memory for summaries is bounded,
//! however many namespaces there are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use phpprof_crds::ProfileTarget;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::sampler::object_keys::{MANIFEST, below, namespace_folder};
use crate::storage::manifest::{LARGEST_MANIFEST, StoredRequest, StoredTarget};
use crate::storage::store::{ListedObject, ProfileStore, StoreError};

/// The most requests that a listing of a namespace has.
pub const MOST: usize = 1_000;
/// The most requests of all namespaces whose summaries are in memory.
pub const REMEMBERED: usize = 2_048;
/// The bytes of one summary: names, and the text about its target.
pub const SUMMARY: usize = 3 << 9;
/// The most manifests that are read at the same time: few large ones, or many small ones.
const AT_ONCE: usize = 16;
pub(crate) const ROOM: u64 = LARGEST_MANIFEST;
const UNIT: u64 = 1 << 10;
/// Characters of the text about a target.
const LONGEST_TARGET: usize = 320;
/// Characters of the name of who asked.
const LONGEST_NAME: usize = 128;
/// The time limit of a listing, because a user waits for it. What was read is kept, so the next try
/// gets further.
const TAKES: Duration = Duration::from_secs(40);

/// A summary of one request's profiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Summary {
    pub name: String,
    pub uid: String,
    /// What was profiled, as `deployment/web`. Empty in manifests of older operators.
    pub target: String,
    /// Who asked for it: the beginning of a user's name. Empty if the request does not say it.
    pub requested_by: String,
    pub start_time: Timestamp,
    pub duration_seconds: Option<i32>,
    /// The number of pods with a profile.
    pub pods: usize,
    /// Of the merged profile, or the sum of the pods' profiles if there is none.
    pub samples: i64,
    pub size_bytes: i64,
    pub expires_at: Timestamp,
}

/// The listing of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchiveListing {
    /// Newest first.
    pub(crate) profiles: Vec<Arc<Summary>>,
    /// The number of older requests, whose manifests were not read.
    pub left_out: usize,
    /// Bytes of everything in the namespace's folder.
    pub bytes: u64,
}

/// Summaries by the manifest's key; `None` for a request without a profile.
type KnownSummaries = BTreeMap<String, Option<Arc<Summary>>>;

/// Reads the manifests of namespaces, and keeps summaries of them.
pub struct Archive {
    store: ProfileStore,
    known: Mutex<KnownSummaries>,
    /// Limits the bytes of manifests that are read at the same time, in units.
    room: Semaphore,
    /// Only one namespace is listed at a time.
    desk: Semaphore,
}

impl Archive {
    /// Starts without summaries.
    pub fn new(store: ProfileStore) -> Self {
        Archive {
            store,
            known: Mutex::default(),
            room: Semaphore::new(usize::try_from(ROOM / UNIT).unwrap_or(1)),
            desk: Semaphore::new(1),
        }
    }

    /// What is stored of the namespace with this uid.
    ///
    /// # Errors
    /// The store does not answer in time, or does not allow listing.
    pub(crate) async fn list(
        &self,
        namespace: &str,
        namespace_uid: &str,
    ) -> Result<ArchiveListing, StoreError> {
        let listed = tokio::time::timeout(TAKES, async {
            let _alone = self.desk.acquire().await;
            self.read_all(&namespace_folder(namespace, namespace_uid))
                .await
        });
        let slow = || StoreError::Store(format!("listing took over {} s", TAKES.as_secs()));
        listed.await.map_err(|_| slow())?
    }

    /// The whole manifest of one request's folder.
    ///
    /// # Errors
    /// There is none, or the store does not answer.
    pub async fn open(&self, folder: &str) -> Result<StoredRequest, StoreError> {
        let key = below(self.store.prefix(), &format!("{folder}/{MANIFEST}"));
        let bytes = self.store.read(&key, LARGEST_MANIFEST).await?;
        StoredRequest::of(&bytes).ok_or(StoreError::Missing(key))
    }

    async fn read_all(&self, folder: &str) -> Result<ArchiveListing, StoreError> {
        let FoundManifests {
            manifests,
            left_out,
            bytes,
        } = self.found(folder).await?;
        stream::iter(self.unknown(&manifests))
            .map(|manifest| async move { self.learn(manifest).await })
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let known = self.known();
        let summaries = manifests
            .iter()
            .filter_map(|it| known.get(&it.key)?.clone());
        let mut profiles: Vec<Arc<Summary>> = summaries.collect();
        profiles.sort_by(|a, b| (b.start_time, &b.name).cmp(&(a.start_time, &a.name)));
        Ok(ArchiveListing {
            profiles,
            left_out,
            bytes,
        })
    }

    /// The newest manifests of a folder, and the size of everything in it.
    async fn found(&self, folder: &str) -> Result<FoundManifests, StoreError> {
        let mut newest = BinaryHeap::new();
        let (mut left_out, mut bytes) = (0, 0_u64);
        let mut objects = std::pin::pin!(self.store.objects(folder));
        while let Some(object) = objects.try_next().await? {
            bytes = bytes.saturating_add(object.size);
            if object.key.rsplit('/').next() == Some(MANIFEST) {
                newest.push(Reverse(object));
            }
            if newest.len() > MOST {
                newest.pop();
                left_out += 1;
            }
        }
        Ok(FoundManifests {
            manifests: newest.into_iter().map(|Reverse(object)| object).collect(),
            left_out,
            bytes,
        })
    }

    /// The manifests without a summary. If there would be too many summaries, those of other
    /// manifests are dropped.
    fn unknown(&self, manifests: &[ListedObject]) -> Vec<ListedObject> {
        let mut known = self.known();
        let is_unknown = |it: &&ListedObject| !known.contains_key(&it.key);
        let unknown: Vec<ListedObject> = manifests.iter().filter(is_unknown).cloned().collect();
        if known.len() + unknown.len() > REMEMBERED {
            let wanted: BTreeSet<&str> = manifests.iter().map(|it| &*it.key).collect();
            known.retain(|key, _| wanted.contains(&**key));
        }
        unknown
    }

    async fn learn(&self, manifest: ListedObject) -> Result<(), StoreError> {
        let size = manifest.size.min(LARGEST_MANIFEST);
        let units = u32::try_from(size.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _room = self.room.acquire_many(units).await;
        let summary = match self.store.read(&manifest.key, size).await {
            Ok(bytes) => StoredRequest::of(&bytes).and_then(|stored| summary(&stored)),
            // It was deleted meanwhile, or is not a manifest of phpprof.
            Err(StoreError::Missing(_) | StoreError::TooLarge { .. }) => None,
            Err(error) => return Err(error),
        };
        self.known().insert(manifest.key, summary.map(Arc::new));
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, KnownSummaries> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct FoundManifests {
    manifests: Vec<ListedObject>,
    left_out: usize,
    bytes: u64,
}

/// The summary of a manifest; `None` if no profile is stored.
fn summary(stored: &StoredRequest) -> Option<Summary> {
    let pods: Vec<_> = stored.uploaded().collect();
    if pods.is_empty() && stored.merged.is_none() {
        return None;
    }
    let sum =
        |of: fn(&StoredTarget) -> Option<i64>| pods.iter().filter_map(|target| of(target)).sum();
    let (samples, size_bytes) = match &stored.merged {
        Some(merged) => (merged.samples, merged.size_bytes),
        None => (
            sum(|target| target.samples),
            sum(|target| target.size_bytes),
        ),
    };
    Some(Summary {
        name: stored.name.clone(),
        uid: stored.uid.clone(),
        target: stored.target.as_ref().map_or_else(String::new, words),
        requested_by: stored
            .requested_by
            .iter()
            .flat_map(|name| name.chars().take(LONGEST_NAME))
            .collect(),
        start_time: stored.start_time,
        duration_seconds: stored.duration_seconds,
        pods: pods.len(),
        samples,
        size_bytes,
        expires_at: stored.expires_at,
    })
}

/// A target as the plugin's command line names it.
pub(crate) fn words(target: &ProfileTarget) -> String {
    let words = match (&target.pod_name, &target.workload_ref, &target.selector) {
        (Some(pod), _, _) => format!("pod/{pod}"),
        (_, Some(workload), _) => {
            format!("{}/{}", workload.kind.to_ascii_lowercase(), workload.name)
        }
        (_, _, Some(selector)) => {
            let labels = selector.match_labels.iter().flatten();
            let mut words: Vec<String> = labels
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            if selector.match_expressions.is_some() {
                words.push("…".to_owned());
            }
            words.join(",")
        }
        _ => String::new(),
    };
    words.chars().take(LONGEST_TARGET).collect()
}

#[cfg(test)]
mod tests;
