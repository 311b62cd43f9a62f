//! Counts errors of the store by operation and cause.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Operation, Trouble};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct ByTrouble {
    operation: &'static str,
    kind: &'static str,
}

/// The counters. A clone counts into the same ones.
#[derive(Clone, Debug, Default)]
pub struct StoreErrors(pub(crate) Family<ByTrouble, Counter>);

impl StoreErrors {
    pub(crate) fn count(&self, operation: Operation, trouble: Trouble) {
        let (operation, kind) = (operation.word(), trouble.word());
        self.0.get_or_create(&ByTrouble { operation, kind }).inc();
    }

    /// Makes every series begin at 0, so that an alert sees the first error.
    pub(crate) fn list(&self) {
        for operation in Operation::ALL {
            for trouble in Trouble::ALL {
                let (operation, kind) = (operation.word(), trouble.word());
                let _ = self.0.get_or_create(&ByTrouble { operation, kind });
            }
        }
    }
}
