//! Why a run gives no profile, or how it delivered one: a closed list, each with its exit code (`contract/README.md`).

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
    /// The profile is stored directly.
    Uploaded = 0,
    /// The profile is stored through the operator's relay.
    Relayed = 0,
    /// It was started later than `--not-after` allows, and did nothing.
    NotAfterPassed = 0,
    /// The lease of a resident sampler has ended.
    LeaseEnded = 0,
    /// A fault of the sampler itself.
    Internal = 1,
    /// Bad flags, environment or grants.
    Usage = 2,
    /// No process of the target container maps a PHP engine.
    NoPhpFound = 10,
    /// No layout row has this version of PHP.
    UnsupportedVersion = 11,
    /// It is a PHP without dynamic symbols.
    NoEngineSymbols = 12,
    /// The engine's memory does not have the layout of its version.
    LayoutMismatch = 13,
    /// The kernel refuses to read the target: it belongs to another user, or a security module forbids it.
    PermissionDenied = 14,
    /// The PHP process has capabilities of its own.
    FileCapabilities = 15,
    /// The PHP process is not dumpable.
    NotDumpable = 16,
    /// The profile was not stored in time.
    UploadDeadlineExceeded = 20,
    /// The store or the relay refuses the grant.
    UploadRefused = 21,
    /// The store's certificate is not of a trusted CA, or the relay has another key.
    CertificateUntrusted = 22,
    /// The profile is larger than the operator accepts.
    ProfileTooLarge = 23,
    /// The relay sees another address than the pod's.
    SourceNotPod = 24,
    /// A resident sampler has never received an answer.
    RelayUnreachable = 25,
    /// PHP, or the container, ended before there was a sample.
    TargetExited = 30,
    /// The request was cancelled or deleted before there was a sample, or is not wanted any more.
    Cancelled = 31,
    /// Yama's `ptrace_scope` forbids it.
    YamaRestricted = 40,
    /// A seccomp filter refuses both ways to the target's memory.
    SeccompRestricted = 41,
    /// The target is in a user namespace in which the sampler has no rights.
    OtherUserNamespace = 42,
    /// gVisor's kernel cannot read another process's memory.
    GVisor = 43,
}

/// A failure, for the receipt and for users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SamplerFailure {
    /// Its exit code, and the first word of the receipt.
    pub reason: Reason,
    /// Short, for the receipt.
    pub detail: String,
    /// What failed, on what, and what to do next.
    pub message: String,
}

impl SamplerFailure {
    /// A failure.
    pub fn new(reason: Reason, detail: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            message: message.into(),
        }
    }
}
