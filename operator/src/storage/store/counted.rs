//! What the store did not do, by what was asked of it and why.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Operation, Trouble};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct ByTrouble {
    operation: &'static str,
    kind: &'static str,
}

/// Counts; a copy counts the same.
#[derive(Clone, Debug, Default)]
pub struct StoreErrors(pub(crate) Family<ByTrouble, Counter>);

impl StoreErrors {
    pub(crate) fn count(&self, operation: Operation, trouble: Trouble) {
        let (operation, kind) = (operation.word(), trouble.word());
        self.0.get_or_create(&ByTrouble { operation, kind }).inc();
    }

    /// Every series begins at 0: an alert sees the first error then.
    pub(crate) fn list(&self) {
        for operation in Operation::ALL {
            for trouble in Trouble::ALL {
                let (operation, kind) = (operation.word(), trouble.word());
                let _ = self.0.get_or_create(&ByTrouble { operation, kind });
            }
        }
    }
}
