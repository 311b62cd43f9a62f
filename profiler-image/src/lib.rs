//! The sampler: finds PHP processes, reads their stacks many times a second without stopping them,
//! and makes one pprof of it.
//!
//! `target` chooses what is sampled, `stack` holds what is known of functions, calls and call
//! paths, `read` gets a stack's bytes by one call, `request` decides which data of a request may be
//! shown, `sample` makes one sample, `run` is the loop and the sums, `deliver` stores the profile,
//! `resident` makes other processes do runs. Each uses only those before it.
//! Invariant: the sampler writes nothing but the output file or the upload, and the receipt.

#![warn(clippy::match_bool)]

pub mod contract;
pub mod deliver;
pub mod failure;
pub mod heap;
pub mod now;
mod raw;
pub mod read;
mod reason;
pub mod request;
pub mod resident;
pub mod run;
pub mod sample;
pub mod stack;
pub mod target;
