//! Effects that `decide` requests and their results, as values.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use phpprof_crds::{
    Link, ProfileRequestStatus, ProfileResult, Reason, TargetReason, TargetState, TargetStatus,
};

use crate::decide::status::is_terminal;
use crate::decide::status::{Verdict, all_failed, completed, fail, progress, settle};
use crate::sampler::injection::Injection;
use crate::sampler::receipt::{FullReceipt, UploadReceipt};

/// Something to do outside; each is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Add the sampler to a pod.
    Inject(Box<Injection>),
    /// Hold what the store has against a receipt.
    Verify(Upload),
    /// Look whether the receipt of a resident sampler's run is there.
    ReadReceipt(ReceiptKey),
    /// Look for what a sampler that has gone had stored.
    Recover(Recovery),
    /// Store the merged profile and the manifest.
    Merge,
    /// Store the manifest alone: there is nothing to merge.
    List,
    /// Tell a pod's sampler to stop; what it has sampled is kept.
    Cancel(Cancellation),
    /// Tell services beyond the cluster of the result.
    Export,
    /// Delete the request, whose time is over.
    DeleteRequest,
}

/// A sampler that shall stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    pub pod_uid: String,
    /// The key of its object.
    pub key: String,
    /// It does not ask any more after that.
    pub until: Timestamp,
}

/// Where a resident sampler puts the receipt of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptKey {
    pub pod_uid: String,
    pub key: String,
}

/// An object that a sampler says it stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub pod_uid: String,
    pub key: String,
    pub receipt: UploadReceipt,
    /// How long it shall be, unless the request was cancelled.
    pub asked_seconds: Option<i32>,
}

/// Where a sampler that has gone may have stored something, best first, and why it has gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub pod_uid: String,
    pub keys: Vec<String>,
    pub duration_seconds: i32,
    pub reason: TargetReason,
    pub message: String,
}

/// What came of an effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The sampler is in the pod, or was there already.
    Injected,
    /// It is worth another try in a moment.
    TryAgain(String),
    /// The store did not answer.
    StoreAway(String),
    /// There will be no profile of this pod.
    TargetFailed {
        pod_uid: String,
        reason: TargetReason,
        message: String,
    },
    /// What the store has as the receipt of a run; nothing where there is none yet.
    ReceiptRead {
        pod_uid: String,
        message: Option<String>,
    },
    /// The pod's profile is what its receipt says.
    Verified {
        pod_uid: String,
        receipt: UploadReceipt,
        full: Box<FullReceipt>,
        /// Why it ends before its time.
        cut_short: Option<String>,
    },
    /// Of a sampler that has gone, this was found.
    Recovered {
        pod_uid: String,
        key: String,
        receipt: UploadReceipt,
        full: Box<FullReceipt>,
        reason: TargetReason,
        message: String,
    },
    Stopped {
        pod_uid: String,
    },
    /// Merged profile and manifest are stored.
    Merged {
        profile: ProfileResult,
        /// What is to be said of it; mostly nothing.
        note: String,
        /// Pods that are not in it.
        changed: Vec<Changed>,
        links: Vec<Link>,
        /// Why it ended early, in words.
        cancelled: Option<String>,
    },
    /// The profiles cannot be merged.
    MergeFailed(String),
    /// The manifest of a request without a profile is stored, or there is no way to store it.
    Listed,
    /// Whoever was to be told of the result was, or it was given up.
    Exported,
    Deleted,
}

/// A pod whose verified profile is another one, or none, when the pods are merged: somebody has changed the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub pod_uid: String,
    pub reason: TargetReason,
    pub message: String,
}

impl Changed {
    pub fn of(target: TargetStatus, reason: TargetReason, message: String) -> Self {
        let pod = target.pod_name;
        Changed {
            pod_uid: target.pod_uid,
            reason,
            message: format!(
                "the profile of pod {pod} has changed since it was verified: {message}"
            ),
        }
    }
}

/// Brings them into the targets.
pub fn changed_in<'a>(targets: impl Iterator<Item = &'a mut TargetStatus>, changed: &[Changed]) {
    for target in targets {
        let change = changed.iter().find(|it| it.pod_uid == target.pod_uid);
        if let Some(change) = change {
            fail(target, change.reason, &change.message);
        }
    }
}

/// Work on the store that is done beside the looks at a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// The profile of the pod with this uid, or the receipt of its run, is verified, or looked for.
    Target(String),
    /// The pods are merged, or listed.
    Collection,
    Export,
}

impl Effect {
    /// The work that the effect starts, if it is not done at once.
    pub fn job(&self) -> Option<Job> {
        match self {
            Effect::Verify(upload) => Some(Job::Target(upload.pod_uid.clone())),
            Effect::ReadReceipt(receipt) => Some(Job::Target(receipt.pod_uid.clone())),
            Effect::Recover(recovery) => Some(Job::Target(recovery.pod_uid.clone())),
            Effect::Merge | Effect::List => Some(Job::Collection),
            Effect::Export => Some(Job::Export),
            Effect::Inject(_) | Effect::Cancel(_) | Effect::DeleteRequest => None,
        }
    }
}

/// Brings what came of the effects into the status; losing it is no harm, the effects are then done again.
pub fn record(
    status: &mut ProfileRequestStatus,
    done: &[Done],
    generation: Option<i64>,
    now: Timestamp,
) {
    let mut verdict = None;
    for done in done {
        match done {
            Done::Injected
            | Done::TryAgain(_)
            | Done::StoreAway(_)
            | Done::ReceiptRead { .. }
            | Done::Stopped { .. }
            | Done::Deleted => {}
            Done::TargetFailed {
                pod_uid,
                reason,
                message,
            } => {
                if let Some(target) = open_target(status, pod_uid) {
                    fail(target, *reason, message);
                }
            }
            Done::Verified {
                pod_uid,
                receipt,
                full,
                cut_short,
            } => {
                if let Some(target) = open_target(status, pod_uid) {
                    verified(target, receipt, full);
                    if let Some(message) = cut_short {
                        target.reason = Some(TargetReason::TargetExited);
                        target.message = message.clone();
                    }
                }
            }
            Done::Recovered {
                pod_uid,
                key,
                receipt,
                full,
                reason,
                message,
            } => {
                if let Some(target) = open_target(status, pod_uid) {
                    verified(target, receipt, full);
                    target.object_key = key.clone();
                    target.reason = Some(*reason);
                    target.message = message.clone();
                }
            }
            Done::Merged {
                profile,
                note,
                changed,
                links,
                cancelled,
            } => {
                status.profile = Some(profile.clone());
                status.links = links.clone();
                changed_in(status.targets.iter_mut(), changed);
                verdict = Some(merged(&status.targets, note, cancelled.as_deref()));
            }
            Done::Exported => status.export_time = Some(Time(now)),
            Done::Listed => verdict = Some(all_failed(&status.targets)),
            Done::MergeFailed(message) => {
                verdict = Some(Verdict {
                    reason: Reason::MergeFailed,
                    message: message.clone(),
                });
            }
        }
    }
    let changes_targets = |done: &Done| {
        matches!(
            done,
            Done::TargetFailed { .. } | Done::Verified { .. } | Done::Recovered { .. }
        )
    };
    if verdict.is_none() && done.iter().any(changes_targets) {
        verdict = Some(progress(&status.targets));
    }
    if let Some(verdict) = verdict {
        settle(status, verdict, generation, now);
    }
}

fn merged(targets: &[TargetStatus], note: &str, cancelled: Option<&str>) -> Verdict {
    let mut verdict = completed(targets);
    if let Some(why) = cancelled {
        verdict.reason = Reason::Cancelled;
        verdict.message = format!("{why}; {}", verdict.message);
    }
    if !note.is_empty() {
        // It may end with the remedy of a pod.
        let message = verdict.message.trim_end_matches('.');
        verdict.message = format!("{message}; {note}");
    }
    verdict
}

/// A target that was settled once stays as it is, whatever comes late.
fn open_target<'a>(
    status: &'a mut ProfileRequestStatus,
    pod_uid: &str,
) -> Option<&'a mut TargetStatus> {
    let open = |target: &&mut TargetStatus| !is_terminal(target);
    status
        .targets
        .iter_mut()
        .filter(open)
        .find(|target| target.pod_uid == pod_uid)
}

fn verified(target: &mut TargetStatus, receipt: &UploadReceipt, full: &FullReceipt) {
    target.state = TargetState::Uploaded;
    target.php = Some(full.php.clone());
    target.workers = Some(full.workers);
    target.busy_percents = full.busy_percents.clone();
    target.samples = Some(receipt.samples);
    target.effective_samples_per_second = full.effective_samples_per_second;
    target.quality = Some(full.quality.clone());
    target.sampler_cpu_milliseconds = Some(full.sampler_cpu_milliseconds);
    target.sampler_peak_bytes = Some(full.sampler_peak_bytes);
    target.upload_mode = receipt.route;
    target.size_bytes = i64::try_from(receipt.size).ok();
    target.sha256 = receipt.sha256.clone();
}
