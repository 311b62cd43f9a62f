//! Deletes profiles whose time is over: what a manifest past its `expiresAt` names, then the manifest.
//!
//! Invariant: nothing is deleted that a manifest does not name, and nothing outside the folder that the manifest lies in.

use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Deserialize;

use crate::sampler::object_keys::MANIFEST;
use crate::storage::store::{Store, StoreError};

const EVERY: Duration = Duration::from_secs(3600);
/// A hundred targets and their receipts.
const LARGEST_MANIFEST: u64 = 4 << 20;

/// What of a manifest says what to delete, and when.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expiry {
    expires_at: Timestamp,
    merged: Option<Named>,
    #[serde(default)]
    stop_keys: Vec<String>,
    #[serde(default)]
    checkpoint_keys: Vec<String>,
    #[serde(default)]
    targets: Vec<Named>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    object_key: String,
}

impl Expiry {
    /// The keys that it names below its own folder.
    fn keys(self, manifest: &str) -> Vec<String> {
        let folder = manifest.strip_suffix(MANIFEST).unwrap_or_default();
        let inside = |key: &String| {
            let file = key.strip_prefix(folder);
            !folder.is_empty() && file.is_some_and(|file| !file.is_empty() && !file.contains('/'))
        };
        let named = self.merged.into_iter().chain(self.targets);
        let named = named.map(|named| named.object_key);
        let beside = self.stop_keys.into_iter().chain(self.checkpoint_keys);
        named.chain(beside).filter(inside).collect()
    }
}

/// Sweeps for as long as the process lives.
pub async fn run(store: Store) {
    loop {
        match sweep(&store, Timestamp::now()).await {
            Ok(0) => {}
            Ok(requests) => tracing::info!(requests, "expired profiles were deleted"),
            Err(error) => {
                tracing::warn!(%error, "expired profiles could not be deleted; it is tried again in an hour");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Deletes what is over now; says of how many requests.
async fn sweep(store: &Store, now: Timestamp) -> Result<usize, StoreError> {
    let mut manifests = std::pin::pin!(store.keys_ending("/manifest.json"));
    let mut swept = 0;
    while let Some(manifest) = manifests.next().await {
        let manifest = manifest?;
        let bytes = match store.read(&manifest, LARGEST_MANIFEST).await {
            Ok(bytes) => bytes,
            Err(StoreError::Missing(_) | StoreError::TooLarge { .. }) => continue,
            Err(error) => return Err(error),
        };
        // What cannot be read is not ours, and stays.
        let Ok(expiry) = serde_json::from_slice::<Expiry>(&bytes) else {
            continue;
        };
        if expiry.expires_at > now {
            continue;
        }
        for key in expiry.keys(&manifest) {
            store.delete(&key).await?;
        }
        store.delete(&manifest).await?;
        swept += 1;
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use serde_json::json;

    use super::*;
    use crate::sampler::object_keys::stop_key;
    use crate::testing::at;

    async fn store(objects: &[(&str, String)]) -> Store {
        let store = Store::in_memory(Arc::new(InMemory::new()));
        for (key, text) in objects {
            store.create(key, text.clone()).await.unwrap();
        }
        store
    }

    async fn keys(store: &Store) -> Vec<String> {
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
            "stopKeys": [stop_key("shop/a-1/web.pb.gz")], "targets": targets,
            "checkpointKeys": ["shop/a-1/web.checkpoint-1.pb.gz", "shop/b-2/web.checkpoint-1.pb.gz"],
        })
        .to_string()
    }

    #[tokio::test]
    async fn what_a_manifest_past_its_time_names_goes_and_nothing_else() {
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
        assert_eq!(sweep(&store, at(0)).await.unwrap(), 1);
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

    #[tokio::test]
    async fn what_is_not_over_and_what_is_no_manifest_stays() {
        let store = store(&[
            (
                "shop/a-1/manifest.json",
                manifest(at(1), &["shop/a-1/web.pb.gz"]),
            ),
            ("shop/a-1/web.pb.gz", String::new()),
            ("shop/c-3/manifest.json", "{}".into()),
        ])
        .await;
        assert_eq!(sweep(&store, at(0)).await.unwrap(), 0);
        assert_eq!(keys(&store).await.len(), 3);
    }
}
