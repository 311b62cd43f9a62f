//! Why a run gives no profile, for its receipt and for users.

pub use crate::reason::Reason;

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
