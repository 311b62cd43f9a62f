//! How the store is: whether it keeps create-only writes, when it last answered well, and its last
//! error.
//!
//! Invariant: only a probe that got a 412 makes [`WriteGuard::CreateOnly`]; an error of the network
//! changes nothing of what is known.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use super::Operation;

/// The same error is logged again after this time.
const SAID_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Whether the store refuses to overwrite an object if a write says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteGuard {
    /// No probe has told yet.
    #[default]
    Unknown,
    /// It does.
    CreateOnly,
    /// It overwrites, and says nothing.
    Overwrites,
    /// It refuses such writes (HTTP 501).
    NotImplemented,
}

impl WriteGuard {
    /// Whether the store is known to have no create-only writes.
    pub fn is_unsafe(self) -> bool {
        matches!(self, WriteGuard::Overwrites | WriteGuard::NotImplemented)
    }

    /// Found by two writes of one new key.
    pub(super) fn words(self) -> &'static str {
        match self {
            WriteGuard::Unknown => "no probe has told yet whether the store overwrites objects",
            WriteGuard::CreateOnly => "the store refuses to overwrite an object (HTTP 412)",
            WriteGuard::Overwrites => {
                "the store overwrites objects: it ignores If-None-Match, so it has no create-only writes"
            }
            WriteGuard::NotImplemented => {
                "the store refuses writes with If-None-Match (HTTP 501), so it has no create-only writes"
            }
        }
    }
}

/// The newest error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// By the operator's clock.
    pub at: Timestamp,
    /// The call, and the cause in words.
    pub message: String,
}

/// What is known of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What the probe has found.
    pub writes: WriteGuard,
    /// When the probe last found it.
    pub probed_at: Option<Timestamp>,
    /// The last call that succeeded.
    pub last_success: Option<Timestamp>,
    /// The last call that failed.
    pub last_error: Option<LastError>,
}

impl Health {
    /// What the probe found, in words.
    pub fn words(&self) -> &'static str {
        self.writes.words()
    }
}

impl Health {
    /// Whether the last call failed.
    pub fn is_failing(&self) -> bool {
        self.last_error.as_ref().map(|error| error.at) > self.last_success
    }
}

/// Shared by all clones of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulse(Arc<Mutex<Beat>>);

#[derive(Debug, Default)]
struct Beat {
    health: Health,
    /// The error that was logged last, and when.
    said: Option<LastError>,
}

impl Pulse {
    fn held(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn health(&self) -> Health {
        self.held().health.clone()
    }

    pub(super) fn writes(&self) -> WriteGuard {
        self.held().health.writes
    }

    pub(super) fn found(&self, writes: WriteGuard, at: Timestamp) {
        let health = &mut self.held().health;
        if health.writes != writes {
            if writes.is_unsafe() {
                tracing::warn!("{}", writes.words())
            } else {
                tracing::info!("{}", writes.words())
            }
        }
        health.writes = writes;
        health.probed_at = Some(at);
    }

    pub(super) fn succeeded(&self, at: Timestamp) {
        self.held().health.last_success = Some(at);
    }

    /// Keeps an error. Returns whether it was logged: the same error is not logged again at once.
    pub(super) fn failed(&self, operation: Operation, cause: &str, at: Timestamp) -> bool {
        let error = LastError {
            at,
            message: format!("{}: {cause}", operation.word()),
        };
        let mut beat = self.held();
        let is_said = beat.said.as_ref().is_some_and(|said| {
            said.message == error.message && at.duration_since(said.at) < SAID_AGAIN
        });
        if !is_said {
            tracing::warn!(operation = operation.word(), cause, "the store failed");
            beat.said = Some(error.clone());
        }
        beat.health.last_error = Some(error);
        !is_said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn failed_logs_the_same_error_once_a_minute() {
        let pulse = Pulse::default();
        let failed = |cause, second| pulse.failed(Operation::Put, cause, at(second));
        assert!(failed("no", 0));
        assert!(!failed("no", 59));
        assert!(failed("no", 60));
        assert!(failed("why", 61));
        let last = pulse.health().last_error.unwrap();
        assert_eq!((last.at, last.message.as_str()), (at(61), "put: why"));
    }

    #[test]
    fn is_failing_until_a_call_succeeds() {
        let pulse = Pulse::default();
        assert!(!pulse.health().is_failing());
        pulse.failed(Operation::Put, "no", at(0));
        assert!(pulse.health().is_failing());
        pulse.succeeded(at(1));
        assert!(!pulse.health().is_failing());
        pulse.failed(Operation::Put, "no", at(2));
        assert!(pulse.health().is_failing());
    }
}
