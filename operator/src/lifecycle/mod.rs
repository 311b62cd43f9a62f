//! What to do next for a request: pure functions of the observed state, the time and the limits.
//!
//! Invariant: nothing here waits, reads or writes.

pub(crate) mod acceptance;
pub(crate) mod checkpoints;
pub(crate) mod decision;
pub(crate) mod deletion;
pub(crate) mod effect;
pub(crate) mod observed;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod silence;
pub(crate) mod status;
pub(crate) mod target;
