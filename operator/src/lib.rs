//! The operator: turns a ProfileRequest into samplers and their uploads into one profile.
//!
//! `reconcile::observe` reads the cluster, `lifecycle::decision::decide` is a pure function of what
//! was read, `reconcile::execute` does what was decided.
//!
//! Invariant: a request's status names each pod before its sampler is injected; a result is in the
//! status only once the store has it.

#![warn(clippy::match_bool)]

mod backoff;
pub mod comparison;
pub mod export;
pub mod http;
pub mod lease;
pub mod lifecycle;
pub mod memory;
pub mod metrics;
pub mod reconcile;
pub mod sampler;
pub mod storage;
pub mod trigger;

#[cfg(test)]
mod testing;
