//! Deletes expired profiles: first everything that a manifest past its `expiresAt` names, then the
//! manifest.
//!
//! Invariant: it deletes only what a manifest names, and only in the manifest's own folder.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Deserialize;

use crate::lease::Role;
use crate::sampler::object_keys::MANIFEST;
use crate::storage::manifest::LARGEST_MANIFEST;
use crate::storage::store::{ProfileStore, StoreError};

const EVERY: Duration = Duration::from_secs(3600);

/// The part of a manifest that says what to delete, and when.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expiry {
    expires_at: Timestamp,
    merged: Option<NamedArchive>,
    requests: Option<NamedArchive>,
    #[serde(default)]
    stop_keys: Vec<String>,
    #[serde(default)]
    checkpoint_keys: Vec<String>,
    #[serde(default)]
    targets: Vec<NamedArchive>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedArchive {
    #[serde(default)]
    object_key: String,
}

impl Expiry {
    /// The keys that the manifest names in its own folder.
    fn keys(self, manifest: &str) -> Vec<String> {
        let folder = manifest.strip_suffix(MANIFEST).unwrap_or_default();
        let inside = |key: &String| {
            let file = key.strip_prefix(folder);
            !folder.is_empty() && file.is_some_and(|file| !file.is_empty() && !file.contains('/'))
        };
        let merged = self.merged.into_iter().chain(self.requests);
        let named = merged.chain(self.targets);
        let named = named.map(|named| named.object_key);
        let beside = self.stop_keys.into_iter().chain(self.checkpoint_keys);
        named.chain(beside).filter(inside).collect()
    }
}

/// Sweeps regularly while the process runs, if this replica leads. Calls `swept` after each sweep.
pub async fn run(store: ProfileStore, role: Arc<Role>, swept: impl Fn()) {
    let mut turns = role.subscribe();
    loop {
        if turns.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        match sweep(&store, Timestamp::now()).await {
            Ok(Swept { requests, failed }) => {
                if requests > 0 {
                    tracing::info!(requests, "expired profiles were deleted");
                }
                if let Some((manifests, first)) = failed {
                    tracing::warn!(manifests, %first, "deleting the profiles of some requests failed; retrying in an hour");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "deleting expired profiles failed; retrying in an hour");
            }
        }
        swept();
        tokio::time::sleep(EVERY).await;
    }
}

/// The result of one sweep.
#[derive(Debug, Default)]
pub(super) struct Swept {
    requests: usize,
    /// The number of manifests that could not be read or whose objects could not be deleted, and
    /// the first error.
    failed: Option<(usize, StoreError)>,
}

/// Deletes what has expired. A failure for one request does not stop the deletion for others.
pub(super) async fn sweep(store: &ProfileStore, now: Timestamp) -> Result<Swept, StoreError> {
    let mut manifests = std::pin::pin!(store.keys_ending("/manifest.json"));
    let mut swept = Swept::default();
    while let Some(manifest) = manifests.next().await {
        match sweep_one(store, &manifest?, now).await {
            Ok(deleted) => swept.requests += usize::from(deleted),
            Err(error) => {
                let (count, first) = swept.failed.take().unwrap_or((0, error));
                swept.failed = Some((count + 1, first));
            }
        }
    }
    Ok(swept)
}

/// Whether a request's profiles had expired and were deleted.
async fn sweep_one(
    store: &ProfileStore,
    manifest: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let bytes = match store.read(manifest, LARGEST_MANIFEST).await {
        Ok(bytes) => bytes,
        Err(StoreError::Missing(_) | StoreError::TooLarge { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    // A manifest that cannot be parsed is not one of phpprof, and stays.
    let Ok(expiry) = serde_json::from_slice::<Expiry>(&bytes) else {
        return Ok(false);
    };
    if expiry.expires_at > now {
        return Ok(false);
    }
    for key in expiry.keys(manifest) {
        store.delete(&key).await?;
    }
    // The manifest is deleted last: until then it says what is left.
    store.delete(manifest).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use serde_json::json;

    use super::*;
    use crate::sampler::object_keys::stop_key;
    use crate::testing::{at, store_in};

    async fn store(objects: &[(&str, String)]) -> ProfileStore {
        let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
        for (key, text) in objects {
            store.create(key, text.clone()).await.unwrap();
        }
        store
    }

    async fn keys(store: &ProfileStore) -> Vec<String> {
        let mut keys: Vec<String> = store
            .keys_ending("")
            .map(|key| key.unwrap())
            .collect()
            .await;
        keys.sort();
        keys
    }

    fn manifest(expires_at: Timestamp, keys: &[&str]) -> String {
        let targets: Vec<_> = keys.iter().map(|key| json!({"objectKey": key})).collect();
        json!({
            "expiresAt": expires_at, "merged": {"objectKey": "shop/a-1/merged.pb.gz"},
            "requests": {"objectKey": "shop/a-1/requests.json.gz"},
            "stopKeys": [stop_key("shop/a-1/web.pb.gz")], "targets": targets,
            "checkpointKeys": ["shop/a-1/web.checkpoint-1.pb.gz", "shop/b-2/web.checkpoint-1.pb.gz"],
        })
        .to_string()
    }

    #[tokio::test]
    async fn only_what_an_expired_manifest_names_goes() {
        let file = String::new;
        let named = [
            "shop/a-1/web.pb.gz",
            "shop/b-2/web.pb.gz",
            "other",
            "shop/a-1/x/y",
        ];
        let store = store(&[
            ("shop/a-1/manifest.json", manifest(at(0), &named)),
            ("shop/a-1/merged.pb.gz", file()),
            ("shop/a-1/requests.json.gz", file()),
            ("shop/a-1/web.pb.gz", file()),
            ("shop/a-1/web.pb.gz.stop", file()),
            ("shop/a-1/web.checkpoint-1.pb.gz", file()),
            ("shop/b-2/web.checkpoint-1.pb.gz", file()),
            ("shop/a-1/x/y", file()),
            ("shop/a-1/unnamed.pb.gz", file()),
            ("shop/b-2/web.pb.gz", file()),
            ("other", file()),
        ])
        .await;
        assert_eq!(sweep(&store, at(0)).await.unwrap().requests, 1);
        assert_eq!(
            keys(&store).await,
            [
                "other",
                "shop/a-1/unnamed.pb.gz",
                "shop/a-1/x/y",
                "shop/b-2/web.checkpoint-1.pb.gz",
                "shop/b-2/web.pb.gz"
            ]
        );
    }

    /// An older operator stored below the namespace's name, this one stores below its uid. Nothing
    /// is moved.
    #[tokio::test]
    async fn objects_of_older_operators_go_by_their_time() {
        let (over, lasts) = (at(0), at(1));
        let mut objects = Vec::new();
        for folder in ["shop/old-1", "shop/n1/new-2"] {
            for (suffix, expires) in [("over", over), ("lasts", lasts)] {
                let folder = format!("{folder}-{suffix}");
                let profile = format!("{folder}/web.pb.gz");
                let manifest = manifest(expires, &[&profile]);
                objects.push((format!("{folder}/manifest.json"), manifest));
                objects.push((profile, String::new()));
            }
        }
        let named: Vec<(&str, String)> = objects
            .iter()
            .map(|(key, text)| (key.as_str(), text.clone()))
            .collect();
        let store = store(&named).await;
        assert_eq!(sweep(&store, at(0)).await.unwrap().requests, 2);
        assert_eq!(
            keys(&store).await,
            [
                "shop/n1/new-2-lasts/manifest.json",
                "shop/n1/new-2-lasts/web.pb.gz",
                "shop/old-1-lasts/manifest.json",
                "shop/old-1-lasts/web.pb.gz",
            ]
        );
    }

    #[tokio::test]
    async fn unexpired_objects_and_broken_manifests_stay() {
        let store = store(&[
            (
                "shop/a-1/manifest.json",
                manifest(at(1), &["shop/a-1/web.pb.gz"]),
            ),
            ("shop/a-1/web.pb.gz", String::new()),
            ("shop/c-3/manifest.json", "{}".into()),
        ])
        .await;
        assert_eq!(sweep(&store, at(0)).await.unwrap().requests, 0);
        assert_eq!(keys(&store).await.len(), 3);
    }

    /// On a volume, nobody can delete a folder as a file.
    #[tokio::test]
    async fn what_cannot_be_deleted_keeps_only_its_manifest() {
        let folder = tempfile::tempdir().unwrap();
        let store = store_in(folder.path());
        for request in ["a-1", "b-2", "c-3"] {
            let key = format!("shop/{request}/manifest.json");
            let named = [&*format!("shop/{request}/web.pb.gz")];
            store.create(&key, manifest(at(0), &named)).await.unwrap();
        }
        std::fs::create_dir(folder.path().join("shop/b-2/web.pb.gz")).unwrap();
        let swept = sweep(&store, at(0)).await.unwrap();
        assert_eq!(swept.requests, 2);
        assert_eq!(swept.failed.unwrap().0, 1);
        assert_eq!(keys(&store).await, ["shop/b-2/manifest.json"]);
    }
}
