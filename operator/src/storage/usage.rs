//! Counts the bytes that a namespace has in the store.
//!
//! Invariant: the store is asked at most once a minute for a namespace, and counting stops once the
//! answer is clear.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};

use crate::storage::store::{ProfileStore, StoreError};

/// How long an answer is used.
const FRESH: SignedDuration = SignedDuration::from_secs(60);
/// A request waits for the answer at most this long.
const TAKES: Duration = Duration::from_secs(10);

/// The bytes of namespaces, as counted within the last minute.
pub struct StorageUsage {
    store: ProfileStore,
    known: Mutex<BTreeMap<String, (Timestamp, u64)>>,
}

impl StorageUsage {
    /// Starts without counts.
    #[must_use]
    pub fn new(store: ProfileStore) -> Self {
        Self {
            store,
            known: Mutex::default(),
        }
    }

    /// The bytes in a namespace's folder. Counting stops when they exceed `enough`.
    ///
    /// # Errors
    /// The store does not answer in time, or does not allow listing.
    pub async fn bytes(
        &self,
        namespace: &str,
        enough: u64,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let is_fresh = |since: Timestamp| now.duration_since(since) < FRESH;
        let known = self.with_known(|known| {
            known.retain(|_, (since, _)| is_fresh(*since));
            known.get(namespace).copied()
        });
        if let Some((_, bytes)) = known {
            return Ok(bytes);
        }
        let counted = tokio::time::timeout(TAKES, self.count(namespace, enough)).await;
        let slow = || StoreError::Store(format!("listing took over {} s", TAKES.as_secs()));
        let bytes = counted.map_err(|_| slow())??;
        self.with_known(|known| known.insert(namespace.to_owned(), (now, bytes)));
        Ok(bytes)
    }

    async fn count(&self, namespace: &str, enough: u64) -> Result<u64, StoreError> {
        let mut objects = std::pin::pin!(self.store.objects(namespace));
        let mut sum = 0_u64;
        while let Some(object) = objects.try_next().await? {
            sum = sum.saturating_add(object.size);
            if sum > enough {
                break;
            }
        }
        Ok(sum)
    }

    fn with_known<T>(&self, act: impl FnOnce(&mut BTreeMap<String, (Timestamp, u64)>) -> T) -> T {
        act(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::testing::at;

    #[tokio::test]
    async fn a_namespaces_usage_is_read_once_a_minute() {
        let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
        for (key, size) in [("shop/a/1", 10), ("shop/b/2", 20), ("shop-2/a/1", 40)] {
            store.create(key, vec![0_u8; size]).await.unwrap();
        }
        let usage = StorageUsage::new(store.clone());
        let bytes = async |namespace, enough, second| {
            usage.bytes(namespace, enough, at(second)).await.unwrap()
        };
        assert_eq!(bytes("shop", 100, 0).await, 30);
        store.create("shop/c/3", vec![0_u8; 5]).await.unwrap();
        assert_eq!(bytes("shop", 100, 59).await, 30);
        assert_eq!(bytes("shop", 100, 60).await, 35);
        assert_eq!(bytes("blog", 100, 60).await, 0);
        // Counting stops as soon as the answer is clear.
        assert_eq!(bytes("shop-2", 0, 60).await, 40);
        assert_eq!(bytes("shop", 15, 120).await, 30);
    }
}
