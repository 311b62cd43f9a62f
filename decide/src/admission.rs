//! What the API server's answer to the sampler's container means, for the patch of a pod or a dry
//! run of it.
//!
//! Invariant: no temporary answer is final, and a sampler that already exists is not an error.

use kube::core::Status;
use phpprof_crds::TargetReason;

use crate::mode::ReadMode;

/// Why a container was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The container is already in the pod.
    AlreadyThere,
    /// A webhook does not support dry runs, so only the patch itself can tell.
    Unknown,
    /// Not an answer, or not a final one.
    TryAgain(String),
    /// Another try would not help. Has the reason of the failed target, and the message of its
    /// status.
    Final(TargetReason, String),
}

/// The meaning of a refusal, for a container of this name and mode. `said` is the message of the
/// status, perhaps shortened.
pub fn not_added(status: &Status, said: String, name: &str, mode: ReadMode) -> NotAdded {
    let last = |reason, message: &str| NotAdded::Final(reason, message.to_owned());
    match status.code {
        422 if said.contains("may not be changed") => NotAdded::AlreadyThere,
        400 if said.contains("does not support dry run") => NotAdded::Unknown,
        403 if said.contains("violates PodSecurity") => pod_security(said, name, mode),
        404 if said.contains("could not find the requested resource") => last(
            TargetReason::InjectionRefused,
            "this cluster has no ephemeral containers; it needs Kubernetes 1.25",
        ),
        404 => last(
            TargetReason::PodDeleted,
            "the pod was deleted before its sampler was added",
        ),
        // The patch contains the uid of its pod, so the pod was replaced.
        422 if said.contains("metadata.uid") => last(
            TargetReason::PodDeleted,
            "the pod was replaced before its sampler was added",
        ),
        400 | 403 | 405 | 422 => NotAdded::Final(TargetReason::InjectionRefused, said),
        _ => NotAdded::TryAgain(said),
    }
}

/// Pod Security checks the whole pod, including what others have added to it.
fn pod_security(said: String, name: &str, mode: ReadMode) -> NotAdded {
    use TargetReason::{PodSecurityDenied, UserUnknown};
    let (reason, found) = match mode {
        _ if !said.contains(name) => (
            PodSecurityDenied,
            "admission refuses another container of the pod",
        ),
        ReadMode::Ptrace { user_known: false } => (
            UserUnknown,
            "admission refuses SYS_PTRACE, and the pod does not name its user",
        ),
        ReadMode::Ptrace { user_known: true } => (
            PodSecurityDenied,
            "PHP starts as root, so the sampler needs SYS_PTRACE",
        ),
        ReadMode::SameUser { .. } => return NotAdded::Final(PodSecurityDenied, said),
    };
    NotAdded::Final(reason, format!("{found}: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "phpprof-0b1c2d3e-0";
    const PTRACE: ReadMode = ReadMode::Ptrace { user_known: false };
    const SAME_USER: ReadMode = ReadMode::SameUser {
        uid: 1000,
        gid: 1000,
    };
    const VIOLATION: &str = r#"pods "web" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities (container "phpprof-0b1c2d3e-0" must not include "SYS_PTRACE" in securityContext.capabilities.add)"#;

    #[track_caller]
    fn check(mode: ReadMode, code: u16, message: &str, expected: &str) {
        let status = Status::failure(message, "").with_code(code);
        let actual = match not_added(&status, message.to_owned(), NAME, mode) {
            NotAdded::Final(reason, message) => format!("{reason}: {message}"),
            other => format!("{other:?}"),
        };
        assert!(actual.starts_with(expected), "{actual}");
    }

    #[test]
    fn admission_says_whose_user_is_missing() {
        check(
            PTRACE,
            403,
            VIOLATION,
            "UserUnknown: admission refuses SYS_PTRACE, and the pod does not name its user: pods",
        );
        check(
            ReadMode::Ptrace { user_known: true },
            403,
            VIOLATION,
            "PodSecurityDenied: PHP starts as root",
        );
    }

    #[test]
    fn admission_names_another_container_at_fault() {
        let other = VIOLATION.replace("phpprof-0b1c2d3e-0", "debugger-1");
        check(
            SAME_USER,
            403,
            &other,
            "PodSecurityDenied: admission refuses another container of the pod",
        );
    }

    #[test]
    fn a_sampler_that_is_there_already_is_adopted() {
        let message = r#"Pod "web" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers "phpprof-0b1c2d3e-0" may not be changed"#;
        check(SAME_USER, 422, message, "AlreadyThere");
    }

    #[test]
    fn a_webhook_without_dry_run_tells_nothing() {
        check(
            SAME_USER,
            400,
            r#"admission webhook "x.example.org" does not support dry run"#,
            "Unknown",
        );
    }

    #[test]
    fn admission_tries_faults_again() {
        check(
            SAME_USER,
            403,
            r#"admission webhook "x" denied the request: no"#,
            "InjectionRefused: admission webhook",
        );
        check(SAME_USER, 404, r#"pods "web" not found"#, "PodDeleted");
        let replaced =
            r#"The Pod "web" is invalid: metadata.uid: Invalid value: "1": field is immutable"#;
        check(SAME_USER, 422, replaced, "PodDeleted: the pod was replaced");
        check(SAME_USER, 500, "etcd", "TryAgain");
        check(SAME_USER, 429, "slow down", "TryAgain");
    }
}
