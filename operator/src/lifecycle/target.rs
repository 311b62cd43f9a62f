//! What happens to one chosen pod, from its choice to its profile or its failure.

use jiff::{SignedDuration, Timestamp};
use phpprof_crds::{TargetReason, TargetState, TargetStatus};
use phpprof_decide::limits::{Deadlines, later};

use crate::lifecycle::observed::{
    PodView, ReceiptRead, SamplerDeadlines, SamplerKind, SamplerState, SamplerView,
};
use crate::lifecycle::status::is_terminal;
use crate::sampler::injection::bare_id;
use crate::sampler::receipt::{ShortReceipt, UploadReceipt, printable};
use crate::sampler::store_answer::StoreAnswer;

/// What to do next for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetStep {
    /// It is uploaded or failed. There is nothing to do.
    Settled,
    /// Wait until something changes, or until this time.
    Wait {
        state: TargetState,
        until: Timestamp,
    },
    /// Add the sampler.
    Inject,
    /// Ask the store for the receipt of a resident sampler's run.
    ReadReceipt(TargetState),
    /// Check in the store what the sampler says that it stored.
    Verify(UploadReceipt),
    Fail(TargetReason, String),
}

/// The kubelet reports the end of two containers one after the other. This delay keeps a sampler
/// that died with its target from being reported as killed.
const SEEN_LATE: SignedDuration = SignedDuration::from_secs(2);
/// How often the operator asks the store for the receipt of a resident sampler's run: first while
/// only a failure can be there, then afterwards.
const READ_EARLY: SignedDuration = SignedDuration::from_secs(10);
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(3);
/// A snapshot takes only a moment, and a user waits for it.
const A_MOMENT: SignedDuration = SignedDuration::from_secs(2);
const READ_AT_ONCE: SignedDuration = SignedDuration::from_millis(500);
/// The API server shows a receipt from a sampler's last moment after at most this time.
const RECEIPT_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// The next step of one pod. The checks come in the order of a target's life.
pub fn step(
    now: Timestamp,
    target: &TargetStatus,
    pod: Option<&PodView>,
    read: Option<&ReceiptRead>,
    deadlines: &Deadlines,
) -> TargetStep {
    if is_terminal(target) {
        return TargetStep::Settled;
    }
    // An object in the store stays valid when the pod is gone.
    if let Some(receipt) = read.and_then(|read| read.message.as_deref()) {
        return receipt_of_run(target, receipt);
    }
    let Some(pod) = pod else {
        return fail(
            TargetReason::PodDeleted,
            "the pod was deleted before its profile was stored",
        );
    };
    let Some(sampler) = pod.samplers.get(&target.ephemeral_container_name) else {
        return without_sampler(now, target, pod, deadlines);
    };
    match &sampler.state {
        SamplerState::Waiting { reason, message } => {
            waiting(now, target, pod, sampler, deadlines, reason, message)
        }
        SamplerState::Running => running(now, target, sampler, read, deadlines),
        SamplerState::Ended { at: Some(at), .. } if target.resident && is_to_be_read(*at, read) => {
            read_receipt(now, target.state, read, deadlines)
        }
        SamplerState::Ended {
            exit_code,
            message,
            at,
        } => ended(now, target, pod, *exit_code, message, *at),
    }
}

fn fail(reason: TargetReason, message: &str) -> TargetStep {
    TargetStep::Fail(reason, message.to_owned())
}

fn without_sampler(
    now: Timestamp,
    target: &TargetStatus,
    pod: &PodView,
    deadlines: &Deadlines,
) -> TargetStep {
    if let Some(failure) = target_gone(target, pod) {
        return failure;
    }
    if now > deadlines.inject_until {
        let message =
            "the sampler could not be added to the pod in time; the request's events say why";
        return fail(TargetReason::StartDeadlineExceeded, message);
    }
    TargetStep::Inject
}

/// The pod or its chosen container will not continue to run.
fn target_gone(target: &TargetStatus, pod: &PodView) -> Option<TargetStep> {
    if pod.deleting {
        return Some(fail(TargetReason::PodDeleted, "the pod is being deleted"));
    }
    let container = pod.container(&target.container_name);
    let name = &target.container_name;
    match container {
        Some(container) if container.running && container.id == target.container_id => None,
        Some(container) if container.running || container.id != target.container_id => {
            let message = format!("container {name} was restarted during the run");
            Some(TargetStep::Fail(TargetReason::TargetRestarted, message))
        }
        _ => {
            let message = if pod.shares_processes {
                format!(
                    "container {name} ended during the run, and the sampler before it had stored the rest"
                )
            } else {
                format!(
                    "container {name} ended during the run, and the kernel killed the sampler with it"
                )
            };
            Some(TargetStep::Fail(TargetReason::TargetExited, message))
        }
    }
}

fn waiting(
    now: Timestamp,
    target: &TargetStatus,
    pod: &PodView,
    sampler: &SamplerView,
    deadlines: &Deadlines,
    reason: &str,
    message: &str,
) -> TargetStep {
    let Some(begins_until) = own(target, sampler, deadlines).map(|own| own.not_after) else {
        return not_ours(target);
    };
    let start_until = deadlines.inject_until;
    if let Some(failure) = target_gone(target, pod) {
        return failure;
    }
    let said = printable(message, 512);
    match reason {
        // The kubelet keeps trying to pull the image until the deadline.
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" if now <= start_until => {
            TargetStep::Wait {
                state: TargetState::Pending,
                until: just_past(start_until),
            }
        }
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable" => {
            let message = format!("{reason}: {said}; node {} cannot pull the image", pod.node);
            TargetStep::Fail(TargetReason::ImagePullFailed, message)
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            TargetStep::Fail(
                TargetReason::ContainerCreateFailed,
                format!("{reason}: {said}"),
            )
        }
        _ if now > begins_until => {
            let message = format!("node {} did not start the sampler in time", pod.node);
            TargetStep::Fail(TargetReason::StartDeadlineExceeded, message)
        }
        _ => TargetStep::Wait {
            state: TargetState::Pending,
            until: just_past(begins_until),
        },
    }
}

/// The deadlines of the target's sampler, or `None` if a container of this name is not the target's
/// sampler.
fn own(
    target: &TargetStatus,
    sampler: &SamplerView,
    deadlines: &Deadlines,
) -> Option<SamplerDeadlines> {
    match (&sampler.kind, target.resident) {
        (SamplerKind::Once(own), false) => Some(*own),
        (SamplerKind::Resident { container_id }, true)
            if container_id == bare_id(&target.container_id) =>
        {
            Some(SamplerDeadlines {
                not_after: deadlines.not_after,
                upload_until: deadlines.last_upload,
            })
        }
        _ => None,
    }
}

fn not_ours(target: &TargetStatus) -> TargetStep {
    let message = format!(
        "the pod already has a container {} that is not the operator's",
        target.ephemeral_container_name
    );
    TargetStep::Fail(TargetReason::InjectionRefused, message)
}

fn running(
    now: Timestamp,
    target: &TargetStatus,
    sampler: &SamplerView,
    read: Option<&ReceiptRead>,
    deadlines: &Deadlines,
) -> TargetStep {
    let Some(own) = own(target, sampler, deadlines) else {
        return not_ours(target);
    };
    let last = later(own.upload_until, RECEIPT_DELAY);
    if now > last {
        return fail(
            TargetReason::UploadDeadlineExceeded,
            "the sampler gave no receipt in time; its grant has expired",
        );
    }
    let wait = |until| TargetStep::Wait {
        state: TargetState::Sampling,
        until,
    };
    if target.resident {
        read_receipt(now, TargetState::Sampling, read, deadlines)
    } else {
        wait(just_past(last))
    }
}

/// Asks the store now. If it was asked a moment ago, waits first.
fn read_receipt(
    now: Timestamp,
    state: TargetState,
    read: Option<&ReceiptRead>,
    deadlines: &Deadlines,
) -> TargetStep {
    let Deadlines {
        accepted,
        ends_from,
        ..
    } = *deadlines;
    let again = if ends_from.duration_since(accepted) <= A_MOMENT {
        READ_AT_ONCE
    } else {
        READ_AGAIN
    };
    let next = |read: &ReceiptRead| {
        if read.at < ends_from {
            later(read.at, READ_EARLY).min(ends_from)
        } else {
            later(read.at, again)
        }
    };
    match read.map(next) {
        Some(until) if now < until => TargetStep::Wait { state, until },
        _ => TargetStep::ReadReceipt(state),
    }
}

/// A sampler may have stored the receipt of a run in its last moment.
fn is_to_be_read(ended: Timestamp, read: Option<&ReceiptRead>) -> bool {
    let complete = later(ended, RECEIPT_DELAY);
    read.is_none_or(|read| read.at < complete)
}

/// The step that follows from a run's receipt. It is not trusted: anyone with the pod's grants can
/// have written it.
fn receipt_of_run(target: &TargetStatus, message: &str) -> TargetStep {
    match ShortReceipt::parse(message) {
        Some(receipt) => said(receipt, target),
        None => fail(
            TargetReason::InvalidProfile,
            "the object stored as the run's receipt is not a receipt",
        ),
    }
}

fn said(receipt: ShortReceipt, target: &TargetStatus) -> TargetStep {
    match receipt {
        ShortReceipt::Uploaded(receipt) => TargetStep::Verify(receipt),
        ShortReceipt::NotAfterPassed => {
            let message = format!("node {} started the sampler too late", target.node_name);
            TargetStep::Fail(TargetReason::StartDeadlineExceeded, message)
        }
        ShortReceipt::LeaseEnded => fail(
            TargetReason::SamplerKilled,
            "the resident sampler ended before the run did: the operator did not answer, or profiling was stopped in the pod",
        ),
        ShortReceipt::Failed { reason, detail } => {
            TargetStep::Fail(reason, told(reason, &detail, &target.container_name))
        }
    }
}

fn ended(
    now: Timestamp,
    target: &TargetStatus,
    pod: &PodView,
    exit_code: i32,
    message: &str,
    at: Option<Timestamp>,
) -> TargetStep {
    match ShortReceipt::parse(message) {
        Some(receipt) => said(receipt, target),
        None => {
            if let Some(failure) = target_gone(target, pod) {
                return failure;
            }
            let certain = at.map_or(now, |at| later(at, SEEN_LATE));
            if now < certain {
                return TargetStep::Wait {
                    state: TargetState::Sampling,
                    until: certain,
                };
            }
            let message =
                format!("the sampler ended with exit code {exit_code} and without a receipt");
            TargetStep::Fail(TargetReason::SamplerKilled, message)
        }
    }
}

/// A sampler's reason as a sentence.
fn told(reason: TargetReason, detail: &str, container: &str) -> String {
    use TargetReason::*;
    let words = match reason {
        NoPhpFound => format!("no process of container {container} runs PHP"),
        UnsupportedVersion => "the sampler does not know this PHP version".to_owned(),
        NoEngineSymbols => "this PHP has no engine symbols; static binaries have none".to_owned(),
        LayoutMismatch => "the structures in this PHP's memory do not match its version".to_owned(),
        PermissionDenied => {
            format!("the kernel did not let the sampler read PHP's memory in container {container}")
        }
        FileCapabilities => format!(
            "PHP in container {container} has capabilities of its own, which hide it from its own user"
        ),
        NotDumpable => format!(
            "PHP in container {container} is not dumpable, which hides it from its own user"
        ),
        YamaRestricted => {
            "the node's kernel.yama.ptrace_scope does not let the sampler read PHP's memory"
                .to_owned()
        }
        SeccompRestricted => {
            "the seccomp profile refuses both process_vm_readv and /proc/PID/mem".to_owned()
        }
        OtherUserNamespace => {
            format!("PHP in container {container} is in another user namespace than the sampler")
        }
        GVisor => "the pod runs on gVisor, whose kernel does not let the sampler read PHP's memory"
            .to_owned(),
        TargetExited => {
            "the container ended, or its pod was stopped, before the first sample".to_owned()
        }
        Cancelled => "the request was cancelled before the first sample".to_owned(),
        UploadDeadlineExceeded if let Some(answer) = StoreAnswer::said(detail) => {
            return format!(
                "the profile could not be stored in time: {}",
                answer.words()
            );
        }
        UploadDeadlineExceeded => "the profile could not be stored in time".to_owned(),
        // The sampler has the status and the code only: its receipt is short.
        UploadRefused if let Some(answer) = StoreAnswer::said(detail) => {
            return format!("the profile was refused: {}", answer.words());
        }
        UploadRefused => "the profile was refused".to_owned(),
        SourceNotPod => {
            "the upload came to the relay from an address that is not the pod's".to_owned()
        }
        RelayUnreachable => "the resident sampler cannot reach the relay".to_owned(),
        CertificateUntrusted => "the store's certificate is not trusted".to_owned(),
        ProfileTooLarge => "the profile is over 32 MiB".to_owned(),
        Usage => "the sampler's image does not fit this operator".to_owned(),
        _ => "the sampler gave up".to_owned(),
    };
    if detail.is_empty() {
        words
    } else {
        format!("{words}: {detail}")
    }
}

/// The first instant after a deadline.
fn just_past(deadline: Timestamp) -> Timestamp {
    later(deadline, SignedDuration::from_millis(1))
}

#[cfg(test)]
mod tests;
