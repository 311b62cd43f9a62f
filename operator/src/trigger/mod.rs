//! What a ProfileTrigger does when alerts arrive: pure functions of its spec, its status, the
//! alerts and the time. `reconcile/triggers.rs` acts on them.
//!
//! Invariant: nothing here reads or writes.

pub mod alerts;
pub mod decision;
pub mod report;
pub mod requests;

#[cfg(test)]
mod tests;
