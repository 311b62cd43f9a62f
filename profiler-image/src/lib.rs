//! The sampler: finds PHP processes, reads their stacks many times a second without stopping them, and makes one pprof
//! of it.
//!
//! `target` says who is sampled, `read` gets a stack's bytes by one call, `stack` holds what is known of functions, calls and
//! call paths, `request` says what of a request may be told, `sample` makes one sample, `run` is the loop and the sum, `deliver` brings the profile to its place,
//! `resident` has runs done by further processes. Each uses only those before it.
//! Invariant: nothing is written but the output file or the upload, and the receipt.

pub mod contract;
pub mod deliver;
pub mod failure;
pub mod now;
pub mod read;
pub mod request;
pub mod resident;
pub mod run;
pub mod sample;
pub mod stack;
pub mod target;
