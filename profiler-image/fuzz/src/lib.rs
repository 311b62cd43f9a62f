//! The readers of a target's memory, on memory that is hostile, and of what the relay answers: what `make fuzz` runs.
//!
//! Each module is one target: bytes in, no panic, no endless work. What they do not do: judge whether what was read is
//! true; of bytes that nobody vouches for, nothing is. The seeds are from real memory, and the tests hold them against
//! the stacks that they were recorded from.

pub mod answer;
pub mod engine;
pub mod image;
pub mod maps;
pub mod stack;
