//! The sampler: finds PHP processes, reads their stacks many times a second without stopping them, and makes one pprof
//! of it.
//!
//! `target` says who is sampled, `read` gets a stack's bytes by one call, `stack` holds what is known of functions, calls and
//! call paths, `sample` makes one sample, `run` is the loop and the sum, `deliver` brings the profile to its place. Each uses
//! only those before it.
//! Invariant: nothing is written but the output file or the upload, and the receipt.

pub mod deliver;
pub mod failure;
pub mod read;
pub mod run;
pub mod sample;
pub mod stack;
pub mod target;
