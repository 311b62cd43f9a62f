//! The readers of a target's memory, on hostile memory, and of the relay's answers: `make fuzz`
//! runs them.
//!
//! Each module is one target: bytes in, no panic, no endless work. What they do not do: check
//! whether the result is true; random bytes have no true result. The seeds are from real memory,
//! and the tests compare them with the stacks from which they were recorded.

#![warn(clippy::match_bool)]

pub mod answer;
pub mod engine;
pub mod heap;
pub mod image;
pub mod maps;
pub mod stack;
