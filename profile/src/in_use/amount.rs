//! How much of something there is: a number, and bytes.
//!
//! Invariant: sums saturate.

use serde::Serialize;

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InUseAmount {
    /// Objects, arrays and strings.
    pub count: i64,
    /// Of their own blocks.
    pub bytes: i64,
}

impl InUseAmount {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// By how much it is more than before.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}
