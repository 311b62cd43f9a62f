//! Shared by the programs of this crate: workloads, and targets that run them under load.

#![warn(clippy::match_bool)]

pub mod cells;
pub mod edges;
pub mod load;
pub mod peers;
pub mod refused;
pub mod small;
pub mod target;
pub mod workload;
