//! One pod, from its choice to its end: which step follows at which instant.

use phpprof_decide::limits::AdminLimits;

use super::*;
use crate::testing::{at, pod, sampler};

const NAME: &str = "phpprof-0b1c2d3e-0";

fn target() -> TargetStatus {
    TargetStatus {
        pod_name: "web".into(),
        pod_uid: "uid-of-web".into(),
        container_name: "fpm".into(),
        container_id: "containerd://4f9c".into(),
        ephemeral_container_name: NAME.into(),
        ..TargetStatus::default()
    }
}

fn with(state: SamplerState) -> PodView {
    let mut pod = pod("web");
    pod.samplers.insert(NAME.into(), sampler(state));
    pod
}

fn restarted(mut pod: PodView) -> PodView {
    pod.containers[0].id = "containerd://other".into();
    pod
}

fn exited(mut pod: PodView) -> PodView {
    pod.containers[0].running = false;
    pod
}

fn waiting(reason: &str) -> SamplerState {
    SamplerState::Waiting {
        reason: reason.into(),
        message: "no such image".into(),
    }
}

fn ended(exit_code: i32, message: &str) -> SamplerState {
    SamplerState::Ended {
        exit_code,
        message: message.into(),
        at: Some(at(40)),
    }
}

/// `expected` is the step in short: what to do, until when, or why it failed.
#[track_caller]
fn check(second: i64, pod: Option<PodView>, expected: &str) {
    let deadlines = Deadlines::new(at(0), 30, &AdminLimits::default());
    let actual = match step(at(second), &target(), pod.as_ref(), None, &deadlines) {
        TargetStep::Settled => "settled".to_owned(),
        TargetStep::Wait { state, until } => {
            format!("{state:?} until {}", until.as_second() - at(0).as_second())
        }
        TargetStep::ReadReceipt(state) => format!("{state:?}, read the receipt"),
        TargetStep::Inject => "inject".to_owned(),
        TargetStep::Verify(receipt) => format!("verify {}", receipt.size),
        TargetStep::Fail(reason, message) => format!("{reason}: {message}"),
    };
    assert!(actual.starts_with(expected), "{actual}");
}

#[test]
fn a_pod_without_its_sampler_gets_it() {
    check(1, Some(pod("web")), "inject");
}

#[test]
fn a_pod_that_is_deleted_fails() {
    check(1, None, "PodDeleted");
    check(
        1,
        Some(PodView {
            deleting: true,
            ..pod("web")
        }),
        "PodDeleted",
    );
}

#[test]
fn a_sampler_is_given_up_after_the_deadline() {
    check(60, Some(pod("web")), "inject");
    check(61, Some(pod("web")), "StartDeadlineExceeded");
}

#[test]
fn a_present_sampler_has_until_its_own_deadline() {
    check(1, Some(with(waiting(""))), "Pending until 90");
    check(
        90,
        Some(with(waiting("ContainerCreating"))),
        "Pending until 90",
    );
    check(
        91,
        Some(with(waiting("ContainerCreating"))),
        "StartDeadlineExceeded",
    );
}

#[test]
fn an_image_is_pulled_again_while_time_remains() {
    for reason in ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"] {
        check(2, Some(with(waiting(reason))), "Pending until 60");
        let said =
            format!("ImagePullFailed: {reason}: no such image; node node cannot pull the image");
        check(61, Some(with(waiting(reason))), &said);
    }
    for reason in ["InvalidImageName", "ErrImageNeverPull"] {
        check(2, Some(with(waiting(reason))), "ImagePullFailed");
    }
    check(
        2,
        Some(with(waiting("CreateContainerConfigError"))),
        "ContainerCreateFailed",
    );
}

#[test]
fn a_running_sampler_has_until_its_grant_ends() {
    check(2, Some(with(SamplerState::Running)), "Sampling until 695");
    check(
        696,
        Some(with(SamplerState::Running)),
        "UploadDeadlineExceeded",
    );
}

#[test]
fn an_uploads_receipt_is_verified_whatever_came_after() {
    let receipt = r#"{"reason":"Uploaded","samples":1,"size":12345,"sha256":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}"#;
    check(41, Some(with(ended(0, receipt))), "verify 12345");
    check(41, Some(restarted(with(ended(0, receipt)))), "verify 12345");
}

#[test]
fn a_receipt_of_a_failure_is_the_reason() {
    check(
        41,
        Some(with(ended(
            11,
            r#"{"reason":"UnsupportedVersion","detail":"9.2.29"}"#,
        ))),
        "UnsupportedVersion: the sampler does not know this PHP version: 9.2.29",
    );
    check(
        41,
        Some(with(ended(
            40,
            r#"{"reason":"YamaRestricted","detail":"kernel.yama.ptrace_scope=1"}"#,
        ))),
        "YamaRestricted: the node's kernel.yama.ptrace_scope does not let the sampler read PHP's memory: kernel.yama.ptrace_scope=1",
    );
    check(
        41,
        Some(with(ended(0, r#"{"reason":"NotAfterPassed"}"#))),
        "StartDeadlineExceeded",
    );
}

#[test]
fn every_failure_of_the_contract_has_a_remedy() {
    for line in include_str!("../../../../contract/receipts.jsonl").lines() {
        let step = step(
            at(41),
            &target(),
            Some(&with(ended(14, line))),
            None,
            &Deadlines::new(at(0), 30, &AdminLimits::default()),
        );
        if let TargetStep::Fail(reason, message) = step {
            assert!(
                !message.starts_with("the sampler gave up"),
                "{reason}: {message}"
            );
        }
    }
}

#[test]
fn a_refused_upload_is_told_with_its_cause() {
    let refused = |detail: &str| {
        let line = format!(r#"{{"reason":"UploadRefused","detail":"{detail}"}}"#);
        let deadlines = Deadlines::new(at(0), 30, &AdminLimits::default());
        match step(
            at(41),
            &target(),
            Some(&with(ended(21, &line))),
            None,
            &deadlines,
        ) {
            TargetStep::Fail(TargetReason::UploadRefused, message) => message,
            other => format!("{other:?}"),
        }
    };
    let expired = "the session token of the operator's credentials has expired";
    assert_eq!(
        refused("HTTP 403 ExpiredToken"),
        format!("the profile was refused: {expired} (HTTP 403 ExpiredToken)")
    );
    assert_eq!(refused("HTTP 409"), "the profile was refused: HTTP 409");
}

#[test]
fn only_a_living_targets_sampler_is_called_killed() {
    check(41, Some(with(ended(137, ""))), "Sampling until 42");
    check(
        42,
        Some(with(ended(137, ""))),
        "SamplerKilled: the sampler ended with exit code 137",
    );
    check(41, Some(restarted(with(ended(137, "")))), "TargetRestarted");
    let killed =
        "TargetExited: container fpm ended during the run, and the kernel killed the sampler";
    check(41, Some(exited(with(ended(137, "")))), killed);
    // The kernel kills only what is in the PID namespace of the container.
    let mut pod = exited(with(ended(137, "")));
    pod.shares_processes = true;
    let late =
        "TargetExited: container fpm ended during the run, and the sampler before it had stored";
    check(41, Some(pod), late);
}

#[test]
fn a_restart_before_the_sampler_fails_the_target() {
    check(1, Some(restarted(pod("web"))), "TargetRestarted");
    check(1, Some(restarted(with(waiting("")))), "TargetRestarted");
    check(1, Some(exited(with(waiting("")))), "TargetExited");
}

#[test]
fn a_container_with_other_arguments_is_not_ours() {
    let mut foreign = with(SamplerState::Running);
    foreign.samplers.insert(
        NAME.into(),
        SamplerView {
            kind: SamplerKind::Foreign,
            state: SamplerState::Running,
        },
    );
    check(1, Some(foreign), "InjectionRefused");
}

/// As [`check`], for a pod with a resident sampler. `read` is the receipt in the store and when it
/// was read.
#[track_caller]
fn check_resident(second: i64, state: SamplerState, read: Option<(i64, &str)>, expected: &str) {
    let mut pod = pod("web");
    let kind = SamplerKind::Resident {
        container_id: "4f9c".into(),
    };
    let name = "phpprof-resident-0";
    pod.samplers
        .insert(name.into(), SamplerView { kind, state });
    let target = TargetStatus {
        ephemeral_container_name: name.into(),
        resident: true,
        ..target()
    };
    let read = read.map(|(second, message)| ReceiptRead {
        message: (!message.is_empty()).then(|| message.to_owned()),
        at: at(second),
    });
    let deadlines = Deadlines::new(at(0), 30, &AdminLimits::default());
    let actual = match step(at(second), &target, Some(&pod), read.as_ref(), &deadlines) {
        TargetStep::Wait { state, until } => {
            format!("{state:?} until {}", until.as_second() - at(0).as_second())
        }
        TargetStep::Fail(reason, _) => reason.to_string(),
        TargetStep::Verify(receipt) => format!("verify {}", receipt.samples),
        other => format!("{other:?}"),
    };
    assert_eq!(actual, expected);
}

const STORED: &str = r#"{"reason":"Uploaded","samples":7,"size":5,"sha256":"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}"#;

#[test]
fn resident_receipts_are_sought_in_the_store() {
    let running = || SamplerState::Running;
    check_resident(1, running(), None, "ReadReceipt(Sampling)");
    check_resident(2, running(), Some((1, "")), "Sampling until 11");
    check_resident(29, running(), Some((25, "")), "Sampling until 30");
    check_resident(30, running(), Some((29, "")), "ReadReceipt(Sampling)");
    check_resident(31, running(), Some((30, "")), "Sampling until 33");
    check_resident(33, running(), Some((32, STORED)), "verify 7");
    let no_php = r#"{"reason":"NoPhpFound"}"#;
    check_resident(5, running(), Some((4, no_php)), "NoPhpFound");
    check_resident(5, running(), Some((4, "whatever")), "InvalidProfile");
    check_resident(755, running(), Some((754, "")), "Sampling until 757");
    check_resident(756, running(), Some((755, "")), "UploadDeadlineExceeded");
}

/// A user waits for it.
#[test]
fn short_runs_seek_receipts_twice_a_second() {
    let deadlines = Deadlines::new(at(0), 1, &AdminLimits::default());
    let asked = |read: Timestamp, now: Timestamp| {
        let read = ReceiptRead {
            message: None,
            at: read,
        };
        read_receipt(now, TargetState::Sampling, Some(&read), &deadlines)
    };
    let half = later(at(1), SignedDuration::from_millis(500));
    let wait = |until| TargetStep::Wait {
        state: TargetState::Sampling,
        until,
    };
    assert_eq!(asked(at(0), at(0)), wait(at(1)));
    assert_eq!(asked(at(1), at(1)), wait(half));
    assert_eq!(
        asked(at(1), half),
        TargetStep::ReadReceipt(TargetState::Sampling)
    );
}

#[test]
fn an_ended_residents_receipt_may_be_stored() {
    let leased = r#"{"reason":"LeaseEnded"}"#;
    check_resident(41, ended(0, leased), Some((39, "")), "Pending until 42");
    check_resident(42, ended(0, leased), Some((39, "")), "ReadReceipt(Pending)");
    check_resident(46, ended(0, leased), Some((45, "")), "SamplerKilled");
    check_resident(46, ended(0, leased), Some((45, STORED)), "verify 7");
    let cut_off = r#"{"reason":"RelayUnreachable","detail":"refused"}"#;
    check_resident(46, ended(25, cut_off), Some((45, "")), "RelayUnreachable");
    check_resident(46, ended(137, ""), Some((45, "")), "SamplerKilled");
}

#[test]
fn a_sampler_of_one_run_is_no_resident() {
    let mut pod = pod("web");
    pod.samplers
        .insert(NAME.into(), sampler(SamplerState::Running));
    let target = TargetStatus {
        resident: true,
        ..target()
    };
    let deadlines = Deadlines::new(at(0), 30, &AdminLimits::default());
    let step = step(at(1), &target, Some(&pod), None, &deadlines);
    assert!(matches!(
        step,
        TargetStep::Fail(TargetReason::InjectionRefused, _)
    ));
}
