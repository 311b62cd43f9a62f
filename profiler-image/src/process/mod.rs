//! The target as the kernel shows it: its memory, and its files under `/proc`.
//!
//! Invariant: nothing here stops, signals or writes to a target.

pub mod maps;
mod memory;
pub mod stat;

pub use memory::ProcessMemory;
