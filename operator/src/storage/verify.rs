//! Holds uploads against their receipts, and makes one profile and one manifest of them.
//!
//! Invariant: one upload is in memory at a time, and it is not trusted: its size is asked for before it is read,
//! and it is decoded within bounds.

mod recovery;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use phpprof_crds::{ProfileRequest, ProfileResult, TargetReason, TargetState, TargetStatus};
use phpprof_profile::{Limits as Bounds, MergeError, Merger, Profile, decode, encode_gzip, total};
use tokio::sync::Semaphore;

use crate::decide::effect::{Done, Upload};
use crate::decide::limits::Limits;
use crate::sampler::object_keys::{MANIFEST, MERGED, key};
use crate::sampler::receipt::{FullReceipt, UploadReceipt};
use crate::storage::manifest::manifest;
use crate::storage::store::{Created, Store, StoreError};

/// The name of the sample type that receipts count.
const SAMPLES: &str = "samples";

/// Verifies and merges, one at a time.
pub struct Collector {
    store: Store,
    bounds: Bounds,
    /// One upload is in memory at a time, and one merged profile beside it: that bounds the operator's memory,
    /// whatever is uploaded by however many pods.
    desk: Semaphore,
    merging: Semaphore,
}

/// Why an upload is not what its receipt says.
enum Fault {
    Target(TargetReason, String),
    Store(String),
}

fn fault<T>(reason: TargetReason, message: String) -> Result<T, Fault> {
    Err(Fault::Target(reason, message))
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error.to_string())
    }
}

impl Collector {
    pub fn new(store: Store) -> Self {
        Collector {
            store,
            bounds: Bounds::default(),
            desk: Semaphore::new(1),
            merging: Semaphore::new(1),
        }
    }

    /// Holds what the store has against the receipt.
    pub async fn verify(&self, upload: &Upload) -> Done {
        let pod_uid = upload.pod_uid.clone();
        match self.judge(&upload.key, &upload.receipt).await {
            Ok(full) => Done::Verified {
                pod_uid,
                receipt: upload.receipt.clone(),
                cut_short: cut_short(upload, &full),
                full: Box::new(full),
            },
            Err(Fault::Target(reason, message)) => Done::TargetFailed {
                pod_uid,
                reason,
                message,
            },
            Err(Fault::Store(message)) => Done::StoreAway(message),
        }
    }

    async fn judge(&self, key: &str, receipt: &UploadReceipt) -> Result<FullReceipt, Fault> {
        self.check_size(key, receipt).await?;
        let _turn = self.desk.acquire().await;
        let (_, full) = self.load(key, receipt).await?;
        Ok(full)
    }

    /// Before anything is read.
    async fn check_size(&self, key: &str, receipt: &UploadReceipt) -> Result<(), Fault> {
        let Some(size) = self.store.size(key).await? else {
            return fault(
                TargetReason::ProfileMissing,
                format!("the store has no object {key}"),
            );
        };
        self.check_limit(size)?;
        if size != receipt.size {
            return fault(
                TargetReason::SizeMismatch,
                format!(
                    "the object has {size} bytes, and the receipt says {}",
                    receipt.size
                ),
            );
        }
        Ok(())
    }

    fn check_limit(&self, size: u64) -> Result<(), Fault> {
        let limit = self.bounds.compressed_bytes as u64;
        match size > limit {
            true => fault(
                TargetReason::ProfileTooLarge,
                format!("the object has {size} bytes, and {limit} are allowed; it was not read"),
            ),
            false => Ok(()),
        }
    }

    /// Reads an upload whose size was checked; whoever calls it has its turn at the desk.
    async fn load(
        &self,
        key: &str,
        receipt: &UploadReceipt,
    ) -> Result<(Profile, FullReceipt), Fault> {
        let (profile, _) = self
            .decoded(key, receipt.size, Some(&receipt.sha256))
            .await?;
        let samples = total(&profile, SAMPLES);
        if samples != receipt.samples {
            return fault(
                TargetReason::InvalidProfile,
                format!(
                    "the profile has {samples} samples, and the receipt says {}",
                    receipt.samples
                ),
            );
        }
        let full = full_receipt(&profile)?;
        Ok((profile, full))
    }

    /// An object as a profile, and its SHA-256, which is looked at before anything else where it is known.
    async fn decoded(
        &self,
        key: &str,
        size: u64,
        expected: Option<&str>,
    ) -> Result<(Profile, String), Fault> {
        use TargetReason::{ChecksumMismatch, InvalidProfile};
        let bytes = self.store.read(key, size).await?;
        let sum = sha256(&bytes);
        if expected.is_some_and(|expected| expected != sum) {
            return fault(
                ChecksumMismatch,
                "the object's SHA-256 is not the receipt's".to_owned(),
            );
        }
        let bounds = self.bounds.clone();
        let decoded = tokio::task::spawn_blocking(move || decode(&bytes, &bounds)).await;
        match decoded {
            Ok(Ok(profile)) => Ok((profile, sum)),
            Ok(Err(error)) => fault(
                InvalidProfile,
                format!("not a profile within bounds: {error}"),
            ),
            Err(error) => fault(InvalidProfile, error.to_string()),
        }
    }

    /// Stores the merged profile, then the manifest; both are what an earlier life of the operator would have stored.
    pub async fn merge(&self, request: &ProfileRequest, limits: &Limits) -> Done {
        match self.try_merge(request, limits).await {
            Ok(profile) => Done::Merged {
                profile,
                links: Vec::new(),
                cancelled: request.spec.cancel,
            },
            Err(Fault::Store(message)) => Done::StoreAway(message),
            // The pods' own profiles are in the store: they are listed all the same.
            Err(Fault::Target(_, message)) => match self.list(request, limits).await {
                Done::Listed => Done::MergeFailed(message),
                away => away,
            },
        }
    }

    /// Stores the manifest of a request without a merged profile.
    pub async fn list(&self, request: &ProfileRequest, limits: &Limits) -> Done {
        let key = key(request, &limits.key_prefix, MANIFEST);
        match self.create(&key, manifest(request, None)).await {
            Ok(_) => Done::Listed,
            Err(Fault::Store(message) | Fault::Target(_, message)) => Done::StoreAway(message),
        }
    }

    /// The file of a request's merged profile.
    pub async fn merged(&self, request: &ProfileRequest, limits: &Limits) -> Result<Bytes, String> {
        let key = key(request, &limits.key_prefix, MERGED);
        let limit = self.bounds.compressed_bytes as u64;
        let read = self.store.read(&key, limit).await;
        read.map(Bytes::from).map_err(|error| error.to_string())
    }

    /// Looks at such a file in the turn of merging, so that one merged profile is in memory at a time.
    pub async fn look<T: Send + 'static>(
        &self,
        file: Bytes,
        work: impl FnOnce(&Profile) -> T + Send + 'static,
    ) -> Result<T, String> {
        let _alone = self.merging.acquire().await;
        let bounds = self.bounds.clone();
        let looked = move || decode(&file, &bounds).map(|profile| work(&profile));
        match tokio::task::spawn_blocking(looked).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn try_merge(
        &self,
        request: &ProfileRequest,
        limits: &Limits,
    ) -> Result<ProfileResult, Fault> {
        let targets = request
            .status
            .as_ref()
            .map(|status| status.targets.as_slice())
            .unwrap_or_default();
        let _alone = self.merging.acquire().await;
        let mut merger = Merger::default();
        for target in targets
            .iter()
            .filter(|target| target.state == TargetState::Uploaded)
        {
            let (key, receipt) = (&target.object_key, receipt_of(target));
            self.check_size(key, &receipt)
                .await
                .map_err(|fault| in_pod(fault, target))?;
            let _turn = self.desk.acquire().await;
            let loaded = self.load(key, &receipt).await;
            let (profile, _) = loaded.map_err(|fault| in_pod(fault, target))?;
            merger = beside(move || merger.add(&profile).map(|()| merger)).await?;
        }
        let (samples, bytes) = beside(move || {
            let merged = merger.finish()?;
            Ok((total(&merged, SAMPLES), encode_gzip(&merged)))
        })
        .await?;
        let merged_key = key(request, &limits.key_prefix, MERGED);
        let size = self.create(&merged_key, bytes).await?;
        let result = ProfileResult {
            url: self.store.uri(&merged_key),
            samples,
            size_bytes: i64::try_from(size).unwrap_or(i64::MAX),
            access_key: String::new(),
        };
        let manifest = manifest(request, Some((&merged_key, &result)));
        self.create(&key(request, &limits.key_prefix, MANIFEST), manifest)
            .await?;
        Ok(result)
    }

    /// Keeps what is there already: only this operator can have written it, since grants are for other keys.
    async fn create(&self, key: &str, bytes: Vec<u8>) -> Result<u64, Fault> {
        let size = bytes.len() as u64;
        match self.store.create(key, bytes).await? {
            Created::Now => Ok(size),
            Created::Before => {
                let missing = || Fault::Store(format!("object {key} is there and is not"));
                self.store.size(key).await?.ok_or_else(missing)
            }
        }
    }
}

/// What to say of a profile that ends before its time though nobody cancelled it: a signal reached its sampler, as it does when a pod is
/// stopped, or no PHP was left.
fn cut_short(upload: &Upload, full: &FullReceipt) -> Option<String> {
    let asked = i64::from(upload.asked_seconds?);
    // It is rounded.
    let is_whole = full.duration_seconds.saturating_add(1) >= asked;
    let why = "PHP ended, or its pod was stopped, before the time was over";
    (!is_whole).then(|| beginning(full.duration_seconds, asked, why))
}

fn beginning(seconds: i64, of: i64, why: &str) -> String {
    format!(
        "the profile has the first {} s of {of}: {why}",
        seconds.clamp(0, of)
    )
}

fn full_receipt(profile: &Profile) -> Result<FullReceipt, Fault> {
    match FullReceipt::of(profile) {
        Some(full) => Ok(full),
        None => fault(
            TargetReason::InvalidProfile,
            "the profile does not start with a receipt".to_owned(),
        ),
    }
}

fn receipt_of(target: &TargetStatus) -> UploadReceipt {
    UploadReceipt {
        route: target.upload_mode,
        samples: target.samples.unwrap_or_default(),
        size: target
            .size_bytes
            .and_then(|size| u64::try_from(size).ok())
            .unwrap_or_default(),
        sha256: target.sha256.clone(),
    }
}

/// A profile that was verified a moment ago is not bad: if it is now, someone changed the store.
fn in_pod(fault: Fault, target: &TargetStatus) -> Fault {
    match fault {
        Fault::Target(reason, message) => {
            let message = format!(
                "the verified profile of pod {} has changed: {message}",
                target.pod_name
            );
            Fault::Target(reason, message)
        }
        store => store,
    }
}

/// Work that takes long goes beside the threads that answer; what fails says where the pods' profiles are.
async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MergeError> + Send + 'static,
) -> Result<T, Fault> {
    let failed = |error: &dyn std::error::Error| {
        let message = format!("{error}; the pods' own profiles are in the store");
        Fault::Target(TargetReason::InvalidProfile, message)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

fn sha256(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, bytes))
}

#[cfg(test)]
mod tests;
