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
    /// The profile is stored.
    Uploaded = 0,
    /// As `Uploaded`, over the operator.
    Relayed = 0,
    /// It was started later than `--not-after` allows, and did nothing.
    NotAfterPassed = 0,
    /// Of a resident sampler, whose time is over.
    LeaseEnded = 0,
    /// A fault of the sampler itself.
    Internal = 1,
    /// Bad flags, environment or grants.
    Usage = 2,
    /// No process of the target container maps a PHP engine.
    NoPhpFound = 10,
    /// No layout row has this version of PHP.
    UnsupportedVersion = 11,
    /// It is PHP without dynamic symbols.
    NoEngineSymbols = 12,
    /// The engine's memory is not laid out as its version says.
    LayoutMismatch = 13,
    /// The kernel refuses to read the target: it is another user's, or by a security module.
    PermissionDenied = 14,
    /// The PHP process has capabilities of its own.
    FileCapabilities = 15,
    /// The PHP process is not dumpable.
    NotDumpable = 16,
    /// Nobody stored the profile in time.
    UploadDeadlineExceeded = 20,
    /// Store or relay refuse the grant.
    UploadRefused = 21,
    /// No trusted authority vouches for the store, or the relay has another key.
    CertificateUntrusted = 22,
    /// The operator would refuse it unread.
    ProfileTooLarge = 23,
    /// The relay sees another address than the pod's.
    SourceNotPod = 24,
    /// A resident sampler has never got an answer.
    RelayUnreachable = 25,
    /// PHP, or the container, ended before there was a sample.
    TargetExited = 30,
    /// The request was cancelled or deleted before there was a sample, or is not wanted any more.
    Cancelled = 31,
    /// Yama's `ptrace_scope` forbids it.
    YamaRestricted = 40,
    /// A seccomp filter refuses both ways to the target's memory.
    SeccompRestricted = 41,
    /// The target lives in a user namespace in which the sampler has no say.
    OtherUserNamespace = 42,
    /// gVisor's kernel has no way to another process's memory.
    GVisor = 43,
}

/// A failure, for the receipt and for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its exit code, and the first word of the receipt.
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
