//! Why a run gives no profile, or how it gave one: one closed list, each with its exit code (`contract/README.md`).

use serde::Serialize;

/// How a run ended. Each reason has its own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Reason {
    Uploaded,
    /// As `Uploaded`, over the operator.
    Relayed,
    NotAfterPassed,
    Internal,
    Usage,
    NoPhpFound,
    UnsupportedVersion,
    NoEngineSymbols,
    LayoutMismatch,
    PermissionDenied,
    FileCapabilities,
    NotDumpable,
    UploadDeadlineExceeded,
    UploadRefused,
    CertificateUntrusted,
    ProfileTooLarge,
    TargetExited,
    Cancelled,
    YamaRestricted,
    SeccompRestricted,
    OtherUserNamespace,
    GVisor,
}

impl Reason {
    /// The process's exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Uploaded | Self::Relayed | Self::NotAfterPassed => 0,
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
            Self::TargetExited => 30,
            Self::Cancelled => 31,
            Self::YamaRestricted => 40,
            Self::SeccompRestricted => 41,
            Self::OtherUserNamespace => 42,
            Self::GVisor => 43,
        }
    }
}

/// A failure, for the receipt and for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub reason: Reason,
    /// Short, for the receipt.
    pub detail: String,
    /// What failed, on what, and what to do next.
    pub message: String,
}

impl Failure {
    /// A failure.
    pub fn new(reason: Reason, detail: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            message: message.into(),
        }
    }
}
