//! Compares uploads with their receipts.
//!
//! Invariant: a verified object is a profile of phpprof with the size, the SHA-256 and the number
//! of samples of its receipt.

use phpprof_crds::TargetReason;

use super::collector::{self, Collector, Fault, counted, fault};
use crate::lifecycle::effect::{Done, ReportedUpload};
use crate::sampler::receipt::{FullReceipt, UploadReceipt};

impl Collector {
    /// Compares the stored object with the receipt.
    pub async fn verify(&self, upload: &ReportedUpload) -> Done {
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
        let _turn = self.desk.acquire().await;
        Ok(self.upload(key, receipt).await?.receipt)
    }

    /// The stored object, if it matches its receipt. The caller holds a permit of the desk.
    pub(super) async fn upload(
        &self,
        key: &str,
        receipt: &UploadReceipt,
    ) -> Result<collector::PackedUpload, Fault> {
        self.check_size(key, receipt).await?;
        let upload = self.load(key, receipt.size, Some(&receipt.sha256)).await?;
        let samples = counted(&upload.profile);
        if samples == receipt.samples {
            Ok(upload)
        } else {
            fault(
                TargetReason::InvalidProfile,
                format!(
                    "the profile has {samples} samples, but the receipt says {}",
                    receipt.samples
                ),
            )
        }
    }

    /// Checks the size before anything is read.
    async fn check_size(&self, key: &str, receipt: &UploadReceipt) -> Result<(), Fault> {
        let Some(size) = self.store.size(key).await? else {
            return fault(
                TargetReason::ProfileMissing,
                format!("the store has no object {key}"),
            );
        };
        self.check_limit(size)?;
        if size == receipt.size {
            Ok(())
        } else {
            fault(
                TargetReason::SizeMismatch,
                format!(
                    "the object has {size} bytes, but the receipt says {}",
                    receipt.size
                ),
            )
        }
    }
}

/// The remark for a profile that ends early although nobody cancelled it: a signal reached its
/// sampler, as when a pod is stopped, or no PHP process was left.
fn cut_short(upload: &ReportedUpload, full: &FullReceipt) -> Option<String> {
    let asked = i64::from(upload.asked_seconds?);
    let why = "PHP ended, or its pod was stopped, before the time was over";
    (!is_whole(full, asked)).then(|| beginning(full.duration_seconds, asked, why))
}

/// Whether this many seconds were sampled.
pub(super) fn is_whole(full: &FullReceipt, asked: i64) -> bool {
    // The duration was rounded.
    full.duration_seconds.saturating_add(1) >= asked
}

pub(super) fn beginning(seconds: i64, of: i64, why: &str) -> String {
    format!(
        "the profile has the first {} s of {of}: {why}",
        seconds.clamp(0, of)
    )
}

#[cfg(test)]
pub(super) mod tests;
