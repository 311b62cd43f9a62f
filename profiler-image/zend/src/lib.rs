//! Reads a PHP stack from a view of memory.
//!
//! Everything here is pure: it reads through the [`Memory`] trait (a live process, a recorded
//! fixture, a fake), never blocks, never panics on any bytes and bounds every length and loop. What
//! it deliberately does not do: open anything, cache anything across samples, or depend on the
//! time.
//!
//! The words are Zend's own (`execute_data`, `op_array`, `opline`), so that they can be searched in
//! php-src.

#![warn(clippy::match_bool)]

pub mod check;
pub mod closure;
pub mod collector;
pub mod declared;
pub mod elf;
pub mod enclosing;
pub mod engine;
pub mod error_handler;
pub mod extensions;
pub mod function;
pub mod hash;
pub mod heap;
pub mod jit;
pub mod layouts;
pub mod memory;
pub mod op;
pub mod opcache;
pub mod phase;
pub mod read_set;
mod refusal;
mod relocated;
pub mod request;
pub mod short;
pub mod shown;
pub mod site;
pub mod string_hash;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod tsrm;
pub mod unwind;
pub mod zval;

pub use layouts::Layout;
pub use memory::{Memory, MemoryFault, Piece};
