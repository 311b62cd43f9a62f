//! Why a run gives no profile, or how it delivered one: a closed list, each with its exit code.
//!
//! Generated from contract/reasons.yaml by `make generate`; do not edit.

use serde::Serialize;

/// How a run ended. Each reason that is a failure has its own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Reason {
    /// The profile is stored.
    Uploaded,
    /// The profile is stored through the operator's relay.
    Relayed,
    /// Started later than `--not-after` allows; nothing was done.
    NotAfterPassed,
    /// A resident sampler's time is over.
    LeaseEnded,
    /// A fault of the sampler itself.
    Internal,
    /// Bad flags, environment or grants.
    Usage,
    /// No process of the target container maps a PHP engine.
    NoPhpFound,
    /// A PHP engine whose version has no layout row; `detail` is the version.
    UnsupportedVersion,
    /// A PHP engine without the symbols in `.dynsym`.
    NoEngineSymbols,
    /// The version is known, but live structures do not hold together.
    LayoutMismatch,
    /// The kernel refused to read the target's memory: another user's, or a security module;
    /// `detail` says which.
    PermissionDenied,
    /// An ordinary user's target has capabilities of its own, which hide it from that user.
    FileCapabilities,
    /// The target is not dumpable, which hides it from its own user.
    NotDumpable,
    /// Not stored before `upload-until`; `detail` is the last error.
    UploadDeadlineExceeded,
    /// The store gave a final refusal; `detail` is the HTTP status.
    UploadRefused,
    /// The store's certificate is not signed by a trusted CA.
    CertificateUntrusted,
    /// The profile is over 32 MiB.
    ProfileTooLarge,
    /// The relay saw another address than the pod's; `detail` has both.
    SourceNotPod,
    /// The relay did not answer a resident sampler in time; `detail` is the last error.
    RelayUnreachable,
    /// SIGTERM, or all workers gone, before the first sample.
    TargetExited,
    /// The request was cancelled before the first sample, or deleted.
    Cancelled,
    /// kernel.yama.ptrace_scope forbids to read the target; `detail` has its value.
    YamaRestricted,
    /// The sampler's seccomp filter refuses both ways to the target's memory.
    SeccompRestricted,
    /// The target is in a user namespace in which the sampler has no rights.
    OtherUserNamespace,
    /// The sandbox's kernel is gVisor's, and does not let the target be read; `detail` has its
    /// errors.
    GVisor,
}

impl Reason {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Uploaded,
        Self::Relayed,
        Self::NotAfterPassed,
        Self::LeaseEnded,
        Self::Internal,
        Self::Usage,
        Self::NoPhpFound,
        Self::UnsupportedVersion,
        Self::NoEngineSymbols,
        Self::LayoutMismatch,
        Self::PermissionDenied,
        Self::FileCapabilities,
        Self::NotDumpable,
        Self::UploadDeadlineExceeded,
        Self::UploadRefused,
        Self::CertificateUntrusted,
        Self::ProfileTooLarge,
        Self::SourceNotPod,
        Self::RelayUnreachable,
        Self::TargetExited,
        Self::Cancelled,
        Self::YamaRestricted,
        Self::SeccompRestricted,
        Self::OtherUserNamespace,
        Self::GVisor,
    ];

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Uploaded => 0,
            Self::Relayed => 0,
            Self::NotAfterPassed => 0,
            Self::LeaseEnded => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::NoPhpFound => 10,
            Self::UnsupportedVersion => 11,
            Self::NoEngineSymbols => 12,
            Self::LayoutMismatch => 13,
            Self::PermissionDenied => 14,
            Self::FileCapabilities => 15,
            Self::NotDumpable => 16,
            Self::UploadDeadlineExceeded => 20,
            Self::UploadRefused => 21,
            Self::CertificateUntrusted => 22,
            Self::ProfileTooLarge => 23,
            Self::SourceNotPod => 24,
            Self::RelayUnreachable => 25,
            Self::TargetExited => 30,
            Self::Cancelled => 31,
            Self::YamaRestricted => 40,
            Self::SeccompRestricted => 41,
            Self::OtherUserNamespace => 42,
            Self::GVisor => 43,
        }
    }
}
