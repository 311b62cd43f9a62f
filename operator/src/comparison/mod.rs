//! What a ProfileComparison does next, and what its status says: pure functions of its spec, its
//! requests, its result and the time. `reconcile/comparisons.rs` acts on them.
//!
//! Invariant: nothing here reads or writes.

pub mod decision;
pub mod requests;
pub mod runs;
pub mod status;
pub(crate) mod verdict;

#[cfg(test)]
mod tests;
