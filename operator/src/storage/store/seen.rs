//! What the calls to a store have shown: errors for the metrics, and its health for people.

use jiff::Timestamp;

use super::health::{Health, Pulse, Writes};
use super::{Operation, StoreError, StoreErrors, Trouble};

/// Shared by all clones of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    errors: StoreErrors,
    pulse: Pulse,
}

impl Seen {
    /// Counts errors there from now on.
    pub(super) fn counted(self, errors: StoreErrors) -> Self {
        Seen { errors, ..self }
    }

    pub(super) fn health(&self) -> Health {
        self.pulse.health()
    }

    pub(super) fn writes(&self) -> Writes {
        self.pulse.writes()
    }

    pub(super) fn found(&self, writes: Writes) {
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
