//! A cluster without containers: a real control plane, and a toy in the kubelet's place. Pods are
//! said to run, samplers store a canned profile by their grants, and the operator is a process of
//! this machine.
//!
//! Invariant: no traffic leaves the machine, and all processes end with this one.

pub mod control_plane;
pub mod node;
mod operator;
pub mod release;
pub mod sampler;
mod secrets;

use std::path::PathBuf;

/// The variable that is set where the tests run on such a cluster: the folder of its logs.
const VARIABLE: &str = "PHPPROF_TOY";

/// Whether the tests run on such a cluster.
#[must_use]
pub fn is_used() -> bool {
    logs().is_some()
}

/// The folder of its logs, if the tests run on such a cluster.
#[must_use]
pub fn logs() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}
