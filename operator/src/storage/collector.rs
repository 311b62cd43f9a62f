//! Reads profiles from the store, a limited number at a time.
//!
//! Invariant: an upload is not trusted: its size is checked before it is read, and it is decoded
//! within bounds. Besides the merged profile in use, at most [`AT_ONCE`] profiles are in memory,
//! however many pods upload and however many users have pages drawn.

use std::sync::Arc;

use axum::body::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use phpprof_crds::{ProfileRequest, TargetReason};
use phpprof_decide::limits::AdminLimits;
use phpprof_profile::in_use::is_in_use;
use phpprof_profile::{DecodeLimits as Bounds, IN_USE, MergeLimits, Packed, SampleSource, total};
use tokio::sync::Semaphore;

use crate::lifecycle::effect::{Done, ReceiptKey};
use crate::sampler::contract;
use crate::sampler::object_keys::{MERGED, key};
use crate::sampler::receipt::FullReceipt;
use crate::storage::ours;
use crate::storage::store::{Created, ProfileStore, StoreError};

/// The most uploads in memory at the same time.
pub const AT_ONCE: usize = 2;
/// Larger merged profiles are not exported.
pub const LARGEST_TOLD: usize = 16 << 20;
/// With the newline.
const LONGEST_RECEIPT: u64 = 128;
/// What a receipt counts: the samples, or else how much is in heaps.
pub(super) fn counted(profile: &impl SampleSource) -> i64 {
    let [(objects, _), _] = IN_USE;
    let is_of_heaps = is_in_use(profile.head());
    total(profile, if is_of_heaps { objects } else { "samples" })
}

/// Verifies, merges and lists.
pub struct Collector {
    pub(super) store: ProfileStore,
    pub(super) bounds: Bounds,
    pub(super) desk: Arc<Semaphore>,
    /// One merged profile is in memory at a time.
    pub(super) merging: Semaphore,
}

/// Why an upload does not match its receipt.
pub(super) enum Fault {
    Target(TargetReason, String),
    Store(String),
}

pub(super) fn fault<T>(reason: TargetReason, message: String) -> Result<T, Fault> {
    Err(Fault::Target(reason, message))
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error.to_string())
    }
}

/// A valid profile of phpprof. Its samples are still packed.
pub(super) struct PackedUpload {
    pub profile: Packed<Vec<u8>>,
    pub receipt: FullReceipt,
    /// The SHA-256 of the file.
    pub sha256: String,
}

/// The bounds of a merged profile that is read again, which are those of the merger.
pub fn merged_bounds() -> Bounds {
    Bounds {
        decompressed_bytes: 256 << 20,
        memory_bytes: MergeLimits::default().bytes,
        samples: MergeLimits::default().rows,
        ..Bounds::default()
    }
}

/// The bounds of an upload.
pub fn bounds() -> Bounds {
    Bounds {
        memory_bytes: 24 << 20,
        ..Bounds::default()
    }
}

impl Collector {
    /// A collector for this store.
    pub fn new(store: ProfileStore) -> Self {
        Collector {
            store,
            bounds: bounds(),
            desk: Arc::new(Semaphore::new(AT_ONCE)),
            merging: Semaphore::new(1),
        }
    }

    /// The semaphore that lets [`AT_ONCE`] profiles be opened at a time.
    pub fn desk(&self) -> Arc<Semaphore> {
        self.desk.clone()
    }

    pub(super) fn check_limit(&self, size: u64) -> Result<(), Fault> {
        let limit = self.bounds.compressed_bytes as u64;
        if size > limit {
            fault(
                TargetReason::ProfileTooLarge,
                format!(
                    "the object has {size} bytes, but at most {limit} are allowed; it was not read"
                ),
            )
        } else {
            Ok(())
        }
    }

    /// Reads an upload whose size was checked. The caller holds a permit of the desk. The SHA-256,
    /// if known, is checked first.
    pub(super) async fn load(
        &self,
        key: &str,
        size: u64,
        expected: Option<&str>,
    ) -> Result<PackedUpload, Fault> {
        use TargetReason::{ChecksumMismatch, InvalidProfile, Usage};
        let file = self.store.read(key, size).await?;
        let sha256 = sha256(&file);
        if expected.is_some_and(|expected| expected != sha256) {
            return fault(
                ChecksumMismatch,
                "the object does not have the receipt's SHA-256".to_owned(),
            );
        }
        let bounds = self.bounds.clone();
        let opened = beside(move || open(file, &bounds)).await;
        match opened {
            Ok(Ok((profile, receipt))) => match contract::spoken(receipt.contract) {
                Ok(_) => Ok(PackedUpload {
                    profile,
                    receipt,
                    sha256,
                }),
                Err(message) => fault(Usage, message),
            },
            Ok(Err(message)) | Err(message) => fault(InvalidProfile, message),
        }
    }

    /// The stored receipt of a resident sampler's run. An object that is too long for a receipt
    /// counts as an invalid one.
    pub async fn receipt(&self, receipt: &ReceiptKey) -> Done {
        let message = match self.store.read(&receipt.key, LONGEST_RECEIPT).await {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(StoreError::Missing(_)) => None,
            Err(StoreError::TooLarge { .. }) => Some(String::new()),
            Err(error) => return Done::StoreAway(error.to_string()),
        };
        Done::ReceiptRead {
            pod_uid: receipt.pod_uid.clone(),
            message,
        }
    }

    /// Keeps an existing object. Only this operator can have written it, because grants are for
    /// other keys.
    pub(super) async fn create(&self, key: &str, bytes: Vec<u8>) -> Result<u64, Fault> {
        let size = bytes.len() as u64;
        match self.store.create(key, bytes).await? {
            Created::Now => Ok(size),
            Created::Before => {
                let missing = || Fault::Store(format!("object {key} both exists and does not"));
                self.store.size(key).await?.ok_or_else(missing)
            }
        }
    }

    /// The file of a request's merged profile, up to [`LARGEST_TOLD`].
    pub async fn merged(
        &self,
        request: &ProfileRequest,
        limits: &AdminLimits,
    ) -> Result<Bytes, String> {
        let key = key(request, &limits.key_prefix, MERGED);
        let read = self.store.read(&key, LARGEST_TOLD as u64).await;
        read.map(Bytes::from).map_err(|error| error.to_string())
    }

    /// The size of that file, or the largest one if the store does not say it.
    pub async fn merged_size(&self, request: &ProfileRequest, limits: &AdminLimits) -> usize {
        let key = key(request, &limits.key_prefix, MERGED);
        let size = self.store.size(&key).await.ok().flatten();
        let size = size.and_then(|size| usize::try_from(size).ok());
        size.unwrap_or(LARGEST_TOLD).min(LARGEST_TOLD)
    }

    /// Reads such a file. It takes the permit for merging, so that only one merged profile is in
    /// memory at a time.
    pub async fn look<T: Send + 'static>(
        &self,
        file: Bytes,
        work: impl FnOnce(&Packed<Bytes>) -> T + Send + 'static,
    ) -> Result<T, String> {
        let _alone = self.merging.acquire().await;
        let looked = beside(move || Packed::open(file, &merged_bounds()).map(|it| work(&it)));
        looked.await?.map_err(|error| error.to_string())
    }
}

fn open(file: Vec<u8>, bounds: &Bounds) -> Result<(Packed<Vec<u8>>, FullReceipt), String> {
    let packed = Packed::open(file, bounds)
        .map_err(|error| format!("not a profile within bounds: {error}"))?;
    ours::check(&packed).map_err(|why| format!("not a profile of phpprof: {why}"))?;
    match FullReceipt::of(&packed) {
        Some(receipt) => Ok((packed, receipt)),
        None => Err("the profile does not start with a receipt".to_owned()),
    }
}

/// Runs long work on a thread outside of the async runtime's.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes))
}
