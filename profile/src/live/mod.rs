//! The table of `top`: what PHP does now, by function, line, route and worker.
//!
//! Its input is profiles of one second (a tick), and its output is rows ([`LiveTop`], pure).
//! [`draw`] draws them, and [`screen`] handles the terminal. The host's `phpprof top` and the
//! plugin's `top --live` both use it. The pod's image and the operator are built without it
//! (feature `live`).
//!
//! Invariant: memory is bounded for any running time. Further rows are added up in one row:
//! `(other)` in the table, and `[other]` in the saved profile.

pub mod draw;
pub mod screen;
mod sums;
#[cfg(test)]
mod tests;
mod text;
mod top;

pub use sums::{MAX_ROWS, ShareTrend, Tab};
pub use top::{Action, LiveRow, LiveTop, ShownTime, SortColumn};
