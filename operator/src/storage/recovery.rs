//! Finds, checks and cleans up what the sampler of a long run had stored before it was gone.
//!
//! Invariant: it reads one object for a target, the best one, within the bounds of every upload.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use phpprof_crds::TargetReason;

use super::collector::{Collector, Fault, counted, fault};
use super::verify::{beginning, is_whole};
use crate::lifecycle::effect::{Done, Recovery};
use crate::sampler::receipt::{FullReceipt, UploadReceipt};
use crate::storage::store::StoreError;

const DELETED_AT_ONCE: usize = 8;

/// The object of a sampler that is gone.
struct FoundObject {
    key: String,
    /// The receipt that the sampler would have sent.
    receipt: UploadReceipt,
    full: FullReceipt,
}

impl Collector {
    /// Looks for objects of a sampler that is gone, and checks the best one. There is no receipt
    /// that gives its size and SHA-256.
    pub async fn recover(&self, recovery: &Recovery) -> Done {
        let failed = |message: String| Done::TargetFailed {
            pod_uid: recovery.pod_uid.clone(),
            reason: recovery.reason,
            message,
        };
        let Recovery {
            pod_uid,
            reason,
            message,
            ..
        } = recovery;
        match self.try_recover(recovery).await {
            Ok(None) => failed(message.clone()),
            // The profile is complete, and only its receipt was lost.
            Ok(Some(found)) if is_whole(&found.full, recovery.duration_seconds.into()) => {
                Done::Verified {
                    pod_uid: pod_uid.clone(),
                    receipt: found.receipt,
                    full: Box::new(found.full),
                    cut_short: None,
                }
            }
            Ok(Some(found)) => Done::Recovered {
                pod_uid: pod_uid.clone(),
                key: found.key,
                receipt: found.receipt,
                reason: *reason,
                message: beginning(
                    found.full.duration_seconds,
                    recovery.duration_seconds.into(),
                    message,
                ),
                full: Box::new(found.full),
            },
            Err(Fault::Target(_, why)) => {
                failed(format!("{message}; its checkpoints cannot be used: {why}"))
            }
            Err(Fault::Store(message)) => Done::StoreAway(message),
        }
    }

    async fn try_recover(&self, recovery: &Recovery) -> Result<Option<FoundObject>, Fault> {
        let Some((key, size)) = self.first_of(&recovery.keys).await? else {
            return Ok(None);
        };
        self.check_limit(size)?;
        let _turn = self.desk.acquire().await;
        let upload = self.load(key, size, None).await?;
        let (full, said) = (upload.receipt, counted(&upload.profile));
        let samples = full.samples;
        if samples != said {
            let message =
                format!("the profile has {said} samples, but its own receipt says {samples}");
            return fault(TargetReason::InvalidProfile, message);
        }
        let receipt = UploadReceipt {
            route: None,
            samples,
            size,
            sha256: upload.sha256,
        };
        Ok(Some(FoundObject {
            key: key.clone(),
            receipt,
            full,
        }))
    }

    /// The first of the keys that has an object, and the object's size.
    async fn first_of<'a>(&self, keys: &'a [String]) -> Result<Option<(&'a String, u64)>, Fault> {
        for key in keys {
            match self.store.size(key).await {
                Ok(Some(size)) => return Ok(Some((key, size))),
                // If the operator may not list, S3 answers "denied" for a missing object.
                Ok(None) | Err(StoreError::Denied(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Deletes the remaining checkpoints. The manifest names them too, so a checkpoint that is
    /// missed here is deleted with it.
    pub async fn clear(&self, keys: Vec<String>) {
        let deleted = stream::iter(keys)
            .map(|key| async move { self.store.delete(&key).await })
            .buffer_unordered(DELETED_AT_ONCE)
            .try_collect::<()>()
            .await;
        if let Err(error) = deleted {
            tracing::info!(%error, "deleting checkpoints failed; they are deleted later with their manifest");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use phpprof_crds::{ProfileRequestStatus, TargetState, TargetStatus};
    use serde_json::json;

    use super::*;
    use crate::lifecycle::checkpoints::leftovers;
    use crate::lifecycle::effect::record;
    use crate::storage::store::ProfileStore;
    use crate::testing::{at, profile, request};

    /// The number of samples in the receipt of the contract's comment.
    const SAMPLES: i64 = 2970;
    const KEYS: [&str; 3] = ["w.pb.gz", "w.checkpoint-2.pb.gz", "w.checkpoint-1.pb.gz"];

    async fn recovered(objects: &[(&str, Vec<u8>)]) -> Done {
        let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
        for (key, bytes) in objects {
            store.create(key, bytes.clone()).await.unwrap();
        }
        let recovery = Recovery {
            pod_uid: "u".into(),
            keys: KEYS.map(str::to_owned).into(),
            duration_seconds: 180,
            reason: TargetReason::TargetExited,
            message: "it ended".into(),
        };
        Collector::new(store).recover(&recovery).await
    }

    /// `expected` is the key of the recovered object, or why there is none.
    async fn check(objects: &[(&str, Vec<u8>)], expected: &str) {
        let actual = match recovered(objects).await {
            Done::Recovered { key, .. } => key,
            Done::TargetFailed {
                reason, message, ..
            } => format!("{reason}: {message}"),
            other => format!("{other:?}"),
        };
        assert_eq!(actual, expected);
    }

    #[tokio::test]
    async fn the_best_that_is_there_is_taken() {
        let good = || profile(SAMPLES);
        let [whole, second, first] = KEYS;
        check(&[], "TargetExited: it ended").await;
        check(&[(first, good())], first).await;
        check(&[(first, good()), (second, good())], second).await;
        check(&[(first, good()), (whole, good())], whole).await;
    }

    #[tokio::test]
    async fn a_foreign_profile_is_not_recovered() {
        let [_, second, first] = KEYS;
        let refused = "TargetExited: it ended; its checkpoints cannot be used: ";
        let check = async |bytes: Vec<u8>, why: &str| {
            let done = recovered(&[(second, bytes), (first, profile(SAMPLES))]).await;
            let Done::TargetFailed { message, .. } = &done else {
                panic!("{done:?}");
            };
            let expected = format!("{}{why}", refused.trim_start_matches("TargetExited: "));
            assert!(message.starts_with(&expected), "{message}");
        };
        check(b"not a profile".to_vec(), "not a profile within bounds").await;
        check(vec![0; 33 << 20], "the object has 34603008 bytes").await;
        check(
            profile(7),
            "the profile has 7 samples, but its own receipt says 2970",
        )
        .await;
    }

    #[tokio::test]
    async fn a_target_with_a_partial_profile_says_so() {
        let done = recovered(&[(KEYS[1], profile(SAMPLES))]).await;
        let mut status = ProfileRequestStatus {
            targets: vec![TargetStatus {
                pod_name: "web".into(),
                pod_uid: "u".into(),
                object_key: KEYS[0].into(),
                ..TargetStatus::default()
            }],
            ..ProfileRequestStatus::default()
        };
        record(&mut status, &[done], Some(1), at(0));
        let target = &status.targets[0];
        assert_eq!(target.state, TargetState::Uploaded);
        assert_eq!(target.reason, Some(TargetReason::TargetExited));
        assert_eq!(target.object_key, KEYS[1]);
        assert_eq!(target.samples, Some(SAMPLES));
        assert_eq!(target.upload_mode, None);
        let message = "the profile has the first 30 s of 180: it ended";
        assert_eq!(target.message, message);
        let complete = crate::lifecycle::status::completed(&status.targets).message;
        assert_eq!(
            complete,
            format!("profiled 1 pod; pod web: TargetExited: {message}")
        );
    }

    #[tokio::test]
    async fn checkpoints_are_deleted_except_the_used_one() {
        let store = ProfileStore::in_memory(Arc::new(InMemory::new()));
        for key in KEYS {
            store.create(key, vec![1]).await.unwrap();
        }
        let mut request = request(json!({"target": {"podName": "web"}, "durationSeconds": 11}));
        request.status = Some(ProfileRequestStatus {
            targets: vec![TargetStatus {
                object_key: KEYS[1].into(),
                checkpoint_seconds: Some(60),
                ..TargetStatus::default()
            }],
            ..ProfileRequestStatus::default()
        });
        let manifest = crate::storage::manifest::manifest(&request, None, None);
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["checkpointKeys"], json!([KEYS[2], KEYS[0]]));
        let keys = leftovers(&request);
        Collector::new(store.clone()).clear(keys).await;
        let mut left = Vec::new();
        for key in KEYS {
            left.push(store.size(key).await.unwrap().is_some());
        }
        assert_eq!(left, [false, true, false]);
    }
}
