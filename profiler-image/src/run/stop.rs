//! Whether a run shall end before its time, as somebody outside of it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const GO_ON: u8 = 0;
const KEEP: u8 = 1;
const DROP: u8 = 2;

/// Whether to stop, and what becomes of what was sampled.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicU8>);

impl Stop {
    /// Whether the run shall end.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) != GO_ON
    }

    /// Whether nobody wants what was sampled.
    #[must_use]
    pub fn is_drop(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DROP
    }

    /// Takes the operator's word.
    pub fn request(&self, word: &str) {
        let told = if word.trim() == "drop" { DROP } else { KEEP };
        self.0.fetch_max(told, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_not_kept_again() {
        let stop = Stop::default();
        assert!(!stop.is_requested());
        stop.request("keep");
        assert!(stop.is_requested() && !stop.is_drop());
        stop.request("drop\n");
        stop.request("keep");
        assert!(stop.is_drop());
    }
}
