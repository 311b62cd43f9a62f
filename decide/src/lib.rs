//! Which pods a request profiles, in which container, and in which mode: pure functions of the cluster's state.
//!
//! The operator decides with them, and the plugin's `doctor` uses the same to predict the operator's decisions.
//!
//! Invariant: nothing here waits, reads or writes. A request's life cycle is in `operator/src/decide`.

pub mod admission;
pub mod limits;
pub mod mode;
pub mod namespace;
pub mod pod;
pub mod resident;
pub mod select;

use phpprof_crds::Reason;

/// Why a request is refused, in the words of its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason of the request's conditions.
    pub reason: Reason,
    /// For the user: what was found, on which object.
    pub message: String,
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
