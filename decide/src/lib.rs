//! Which pods a request profiles, in which container, and how the sampler gets in: pure functions of what the cluster says.
//!
//! The operator decides by them, and the plugin's `doctor` foretells by the same what the operator will decide.
//!
//! Invariant: nothing here waits, reads or writes, and nothing knows of a request's life: that is `operator/src/decide`.

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
