//! Why a run gives no profile, or how it gave one: one closed list, each with its exit code (`contract/README.md`).

use serde::Serialize;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $exit_code:literal,)*) => {
        /// How a run ended. Each reason that is a failure has its own exit code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them, in the order of their exit codes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The process's exit code.
            #[must_use]
            pub fn exit_code(self) -> u8 {
                match self {
                    $(Self::$name => $exit_code,)*
                }
            }
        }
    };
}

reasons! {
    Uploaded = 0,
    /// As `Uploaded`, over the operator.
    Relayed = 0,
    NotAfterPassed = 0,
    /// Of a resident sampler, whose time is over.
    LeaseEnded = 0,
    Internal = 1,
    Usage = 2,
    NoPhpFound = 10,
    UnsupportedVersion = 11,
    NoEngineSymbols = 12,
    LayoutMismatch = 13,
    PermissionDenied = 14,
    FileCapabilities = 15,
    NotDumpable = 16,
    UploadDeadlineExceeded = 20,
    UploadRefused = 21,
    CertificateUntrusted = 22,
    ProfileTooLarge = 23,
    SourceNotPod = 24,
    RelayUnreachable = 25,
    TargetExited = 30,
    Cancelled = 31,
    YamaRestricted = 40,
    SeccompRestricted = 41,
    OtherUserNamespace = 42,
    GVisor = 43,
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
