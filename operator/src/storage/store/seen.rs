//! What the calls to a store have shown: errors for the metrics, and its health for people.

use jiff::Timestamp;

use super::health::{Health, Pulse, WriteGuard};
use super::{Operation, StoreError, StoreErrors, Trouble};

/// Shared by all clones of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreHealth {
    errors: StoreErrors,
    pulse: Pulse,
}

impl StoreHealth {
    /// Counts errors there from now on.
    pub(super) fn counted(self, errors: StoreErrors) -> Self {
        StoreHealth { errors, ..self }
    }

    pub(super) fn health(&self) -> Health {
        self.pulse.health()
    }

    pub(super) fn writes(&self) -> WriteGuard {
        self.pulse.writes()
    }

    pub(super) fn found(&self, writes: WriteGuard) {
        self.pulse.found(writes, Timestamp::now());
    }

    pub(super) fn succeeded(&self) {
        self.pulse.succeeded(Timestamp::now());
    }

    pub(super) fn failed(&self, operation: Operation, trouble: Trouble, error: &StoreError) {
        self.errors.count(operation, trouble);
        // A read finds out whether an object exists.
        if operation != Operation::Get || trouble != Trouble::NotFound {
            self.pulse
                .failed(operation, &error.to_string(), Timestamp::now());
        }
    }
}
