//! Compares the shares of time of generated programs with the truth.
//!
//! The truth is stops of the process at random times; the program's own clocks must agree.

mod clocks;
mod draw;
mod draws;
mod internals;
mod plan;
mod profile;
mod program;
mod stops;
mod text;
pub mod write;
