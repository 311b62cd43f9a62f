//! What to do next for a request: pure functions of what was observed, the time and the limits.
//!
//! Invariant: nothing here waits, reads or writes.

pub(crate) mod admission;
pub(crate) mod checkpoints;
pub mod decision;
pub mod deletion;
pub mod effect;
pub mod observed;
pub mod pace;
pub mod queue;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod status;
pub(crate) mod target;

pub use phpprof_decide::{limits, mode, namespace, resident, select};
