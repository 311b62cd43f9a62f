//! Which pods a request profiles, in which container, and in which mode: pure functions of the
//! cluster's state.
//!
//! The operator decides with them, and the plugin's `doctor` predicts the operator's decisions with
//! the same functions.
//!
//! Invariant: nothing here waits, reads or writes. A request's life cycle is in
//! `operator/src/lifecycle`.

#![warn(clippy::match_bool)]

pub mod admission;
pub mod container;
pub mod limits;
pub mod mode;
pub mod names;
pub mod namespace;
pub mod pod;
pub mod resident;
pub mod select;

use phpprof_crds::RequestReason;

/// Why a request is refused, for its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// The reason of the request's conditions.
    pub reason: RequestReason,
    /// The message for the user: what was found, and on which object.
    pub message: String,
}

#[cfg(any(test, feature = "testing"))]
pub mod testing;
