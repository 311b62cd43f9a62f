//! Effects and jobs that `decide` requests, and their results, as values.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use phpprof_crds::{
    ProfileLink, ProfileRequestStatus, ProfileResult, RequestReason, TargetReason, TargetState,
    TargetStatus,
};

use phpprof_decide::pod::{SamplerDeadlines, SamplerKind};

use crate::lifecycle::status::is_terminal;
use crate::lifecycle::status::{ConditionReason, all_failed, completed, fail, progress, settle};
use crate::sampler::injection::{Injection, Task, bare_id};
use crate::sampler::receipt::{FullReceipt, UploadReceipt};

/// Something that the reconciliation of a request does at once. Each effect is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Add the sampler to a pod.
    Inject(Box<Injection>),
    /// Tell a pod's sampler to stop. Its samples so far are kept.
    Cancel(Cancellation),
    /// Delete the request, because its time to live is over.
    DeleteRequest,
}

/// Work on the store that runs outside of a request's reconciliation. Each job is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Compare the stored object with its receipt.
    Verify(ReportedUpload),
    /// Check whether the store has the receipt of a resident sampler's run.
    ReadReceipt(ReceiptKey),
    /// Look for objects that a sampler stored before it was gone.
    Recover(Recovery),
    /// Store the merged profile and the manifest.
    Merge,
    /// Store the manifest alone, because there is nothing to merge.
    List,
    /// Export the result to services outside the cluster.
    Export,
}

/// What a job works on. A request has at most one job of each key at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKey {
    /// The profile, or the receipt, of the pod with this uid.
    Target(String),
    /// The profiles of all pods together.
    Collection,
    /// The result.
    Export,
}

impl Job {
    /// What it works on.
    pub fn key(&self) -> JobKey {
        match self {
            Job::Verify(upload) => JobKey::Target(upload.pod_uid.clone()),
            Job::ReadReceipt(receipt) => JobKey::Target(receipt.pod_uid.clone()),
            Job::Recover(recovery) => JobKey::Target(recovery.pod_uid.clone()),
            Job::Merge | Job::List => JobKey::Collection,
            Job::Export => JobKey::Export,
        }
    }
}

/// A sampler that has to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancellation {
    pub pod_uid: String,
    /// The key of the sampler's object.
    pub key: String,
    /// The sampler does not ask any more after this time.
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
pub struct ReportedUpload {
    pub pod_uid: String,
    pub key: String,
    pub receipt: UploadReceipt,
    /// How long the profile should be, unless the request was cancelled.
    pub asked_seconds: Option<i32>,
}

/// The keys under which a sampler that is gone may have stored something, best first, and why it is
/// gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    pub pod_uid: String,
    pub keys: Vec<String>,
    pub duration_seconds: i32,
    pub reason: TargetReason,
    pub message: String,
}

/// The result of an effect or a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The sampler is in the pod; it may have been there before.
    Injected(Injected),
    /// The effect failed, but may succeed in a moment.
    TryAgain(String),
    /// The store did not answer a job.
    StoreAway(String),
    /// The store did not take a sampler's word to stop.
    NotStopped(String),
    /// The pod will have no profile.
    TargetFailed {
        pod_uid: String,
        reason: TargetReason,
        message: String,
    },
    /// The receipt of a run, as the store has it; `None` if there is none yet.
    ReceiptRead {
        pod_uid: String,
        message: Option<String>,
    },
    /// The pod's profile matches its receipt.
    Verified {
        pod_uid: String,
        receipt: UploadReceipt,
        full: Box<FullReceipt>,
        /// Why it ends before its time.
        cut_short: Option<String>,
    },
    /// This object of a sampler that is gone was found.
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
    /// The merged profile and the manifest are stored.
    Merged {
        profile: ProfileResult,
        /// A remark for the condition's message; usually empty.
        note: String,
        /// Pods that are not in the merged profile.
        changed: Vec<Changed>,
        links: Vec<ProfileLink>,
        /// Why the request ended early.
        cancelled: Option<String>,
    },
    /// The profiles cannot be merged.
    MergeFailed(String),
    /// The manifest of a request without a profile is stored, or it cannot be stored.
    Listed,
    /// The result was exported, or the operator gave up.
    Exported,
    Deleted,
}

/// A sampler that was added to a pod. The pod's watch may not show it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    pub pod_uid: String,
    /// The name of its container.
    pub name: String,
    pub kind: SamplerKind,
}

impl Injected {
    pub fn of(injection: &Injection) -> Self {
        let subject = &injection.subject;
        let kind = match &injection.task {
            Task::Once(run) => SamplerKind::Once(SamplerDeadlines {
                not_after: run.not_after,
                upload_until: run.upload_until,
            }),
            Task::Resident(_) => SamplerKind::Resident {
                container_id: bare_id(&subject.container_id).to_owned(),
            },
        };
        Injected {
            pod_uid: subject.pod_uid.clone(),
            name: injection.ephemeral_container_name.clone(),
            kind,
        }
    }
}

/// A pod whose verified profile has changed or is missing when the pods are merged: somebody has
/// changed the store.
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

/// Applies the changes to the targets.
pub fn changed_in<'a>(targets: impl Iterator<Item = &'a mut TargetStatus>, changed: &[Changed]) {
    for target in targets {
        let change = changed.iter().find(|it| it.pod_uid == target.pod_uid);
        if let Some(change) = change {
            fail(target, change.reason, &change.message);
        }
    }
}

/// Records results in the status. If they are lost, the effects and jobs are executed again, which
/// does no harm.
pub fn record(
    status: &mut ProfileRequestStatus,
    done: &[Done],
    generation: Option<i64>,
    now: Timestamp,
) {
    let mut verdict = None;
    for done in done {
        verdict = record_one(status, done, now).or(verdict);
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

/// Records one result. The verdict, if the request as a whole has a new one.
fn record_one(
    status: &mut ProfileRequestStatus,
    done: &Done,
    now: Timestamp,
) -> Option<ConditionReason> {
    match done {
        Done::Injected(_)
        | Done::TryAgain(_)
        | Done::StoreAway(_)
        | Done::NotStopped(_)
        | Done::ReceiptRead { .. }
        | Done::Stopped { .. }
        | Done::Deleted => None,
        Done::TargetFailed { .. } | Done::Verified { .. } | Done::Recovered { .. } => {
            record_target(status, done);
            None
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
            Some(merged(&status.targets, note, cancelled.as_deref()))
        }
        Done::Exported => {
            status.export_time = Some(Time(now));
            None
        }
        Done::Listed => Some(all_failed(&status.targets)),
        Done::MergeFailed(message) => Some(ConditionReason {
            reason: RequestReason::MergeFailed,
            message: message.clone(),
        }),
    }
}

/// Records what became of one target. `None` if it is settled.
fn record_target(status: &mut ProfileRequestStatus, done: &Done) -> Option<()> {
    match done {
        Done::TargetFailed {
            pod_uid,
            reason,
            message,
        } => {
            fail(open_target(status, pod_uid)?, *reason, message);
        }
        Done::Verified {
            pod_uid,
            receipt,
            full,
            cut_short,
        } => {
            let target = open_target(status, pod_uid)?;
            verified(target, receipt, full);
            if let Some(message) = cut_short {
                target.reason = Some(TargetReason::TargetExited);
                target.message = message.clone();
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
            let target = open_target(status, pod_uid)?;
            verified(target, receipt, full);
            target.object_key = key.clone();
            target.reason = Some(*reason);
            target.message = message.clone();
        }
        // Of no target: `record_one` has it.
        _ => {}
    }
    Some(())
}

fn merged(targets: &[TargetStatus], note: &str, cancelled: Option<&str>) -> ConditionReason {
    let mut verdict = completed(targets);
    if let Some(why) = cancelled {
        verdict.reason = RequestReason::Cancelled;
        verdict.message = format!("{why}; {}", verdict.message);
    }
    if !note.is_empty() {
        // The message may end with the remedy of a pod.
        let message = verdict.message.trim_end_matches('.');
        verdict.message = format!("{message}; {note}");
    }
    verdict
}

/// A settled target stays as it is, whatever arrives later.
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
    target.workers_not_sampled = Some(full.workers_not_sampled).filter(|workers| *workers > 0);
    target.samples = Some(receipt.samples);
    // A heap that was read once has no samples over time, so nothing of these is true of it.
    if full.in_heap.is_none() {
        target.missed = full
            .missed
            .clone()
            .filter(|missed| missed.processes > 0 || missed.cpu_milliseconds > 0);
        target.busy_percents = full.busy_percents.clone();
        target.effective_samples_per_second = full.effective_samples_per_second;
        target.quality = Some(full.quality.clone());
    }
    target.sampler_cpu_milliseconds = Some(full.sampler_cpu_milliseconds);
    target.sampler_peak_bytes = Some(full.sampler_peak_bytes);
    target.upload_mode = receipt.route;
    target.size_bytes = i64::try_from(receipt.size).ok();
    target.sha256 = receipt.sha256.clone();
}
