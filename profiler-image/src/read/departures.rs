//! How often a thread has left its CPU.

/// How often a thread left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departures {
    /// To sleep.
    pub voluntary: u64,
    /// While it could run on.
    pub involuntary: u64,
}

impl Departures {
    /// Both.
    #[must_use]
    pub fn all(self) -> u64 {
        self.voluntary.saturating_add(self.involuntary)
    }
}
