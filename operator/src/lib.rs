//! The operator: turns a ProfileRequest into samplers and their uploads into one profile.
//!
//! `observe` reads the cluster, `decide` is a pure function of what was read, `act` does what was decided.
//!
//! Invariant: a request's status names each pod before its sampler is injected; a result is in the status only
//! once the store has it.

pub mod act;
mod admit;
mod checkpoints;
mod collect;
pub mod controller;
pub mod decide;
mod deliver;
mod departed;
pub mod effect;
mod events;
mod grafana;
pub mod health;
mod inject;
pub mod keyring;
mod keys;
pub mod limits;
pub mod links;
mod manifest;
mod memory;
mod mode;
mod observe;
pub mod outlets;
pub mod pinned;
mod receipt;
pub mod relay;
pub mod requests;
mod resolve;
mod results;
mod select;
mod series;
mod status;
pub mod stops;
pub mod store;
mod sweep;
mod target;
mod view;
mod watches;
pub mod world;

pub use inject::SamplerConfig;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod toy_cluster;
