//! What the operator reads from the store for one target, and what happens to the target if the
//! store does not answer.

use jiff::Timestamp;
use phpprof_crds::{TargetReason, TargetState, TargetStatus};
use phpprof_decide::limits::Deadlines;

use super::Round;
use crate::lifecycle::checkpoints;
use crate::lifecycle::effect::{Job, ReceiptKey, Recovery, ReportedUpload};
use crate::lifecycle::status::fail;
use crate::sampler::object_keys::receipt_key;
use crate::sampler::receipt::UploadReceipt;

impl Round<'_> {
    /// Asks the store. If the store failed a moment ago, waits until the next try. Gives up when
    /// there is no time left.
    pub(super) fn verify(
        &self,
        target: &mut TargetStatus,
        receipt: UploadReceipt,
        deadlines: &Deadlines,
    ) -> Result<Job, Timestamp> {
        match &self.observed.store_trouble {
            Some(trouble) if self.now > deadlines.give_up => {
                fail(target, TargetReason::StoreUnavailable, &trouble.message);
                Err(self.now)
            }
            Some(trouble) if self.now < trouble.retry_at => Err(trouble.retry_at),
            _ => Ok(Job::Verify(ReportedUpload {
                pod_uid: target.pod_uid.clone(),
                key: target.object_key.clone(),
                receipt,
                asked_seconds: (!self.ends_early()
                    && !self.observed.stopped.contains(&target.pod_uid))
                .then_some(self.request.spec.duration_seconds),
            })),
        }
    }

    /// Asks the store, as [`Round::verify`] does, for what the sampler of a long run stored before
    /// it was gone. If there can be nothing, the target has failed.
    pub(super) fn recover(
        &self,
        target: &mut TargetStatus,
        reason: TargetReason,
        message: String,
        deadlines: &Deadlines,
    ) -> Option<Result<Job, Timestamp>> {
        let duration_seconds = self.request.spec.duration_seconds;
        let keys = checkpoints::candidates(target, duration_seconds, deadlines.accepted, self.now);
        let has_checkpoints = target.checkpoint_seconds.is_some();
        if keys.is_empty() || !checkpoints::may_follow(reason, has_checkpoints) {
            fail(target, reason, &message);
            return None;
        }
        target.state = TargetState::Verifying;
        match &self.observed.store_trouble {
            Some(trouble) if self.now > deadlines.give_up => {
                let message = format!(
                    "{message}; the store did not answer about the beginning of its profile: {}",
                    trouble.message
                );
                fail(target, reason, &message);
                None
            }
            Some(trouble) if self.now < trouble.retry_at => Some(Err(trouble.retry_at)),
            _ => Some(Ok(Job::Recover(Recovery {
                pod_uid: target.pod_uid.clone(),
                keys,
                duration_seconds,
                reason,
                message,
            }))),
        }
    }

    /// Asks the store for the receipt of a run, as [`Round::verify`] does for its profile, unless
    /// such a call is under way.
    pub(super) fn read_receipt(
        &self,
        target: &mut TargetStatus,
        deadlines: &Deadlines,
    ) -> Option<Result<Job, Timestamp>> {
        match &self.observed.store_trouble {
            _ if self.is_under_way(target) => None,
            Some(trouble) if self.now > deadlines.give_up => {
                fail(target, TargetReason::StoreUnavailable, &trouble.message);
                None
            }
            Some(trouble) if self.now < trouble.retry_at => Some(Err(trouble.retry_at)),
            _ => Some(Ok(Job::ReadReceipt(ReceiptKey {
                pod_uid: target.pod_uid.clone(),
                key: receipt_key(&target.object_key),
            }))),
        }
    }
}
