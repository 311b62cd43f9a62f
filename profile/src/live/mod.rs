//! The table of `top`: what PHP does now, by function, line, route and worker.
//!
//! Profiles of a second go in (a tick), and rows come out ([`Top`], pure); [`draw`] makes a picture of them, and [`screen`] has the terminal. The
//! host's `phpprof top` and the plugin's `top --live` both use it; the pod's image and the operator are built without it (feature `live`).
//!
//! Invariant: what is held is bounded, however long it runs: rows beyond a bound are one row, `(other)`, and of the sum that is saved `[other]`.

pub mod draw;
pub mod screen;
mod sums;
#[cfg(test)]
mod tests;
mod text;
mod top;

pub use sums::{MAX_ROWS, Tab};
pub use top::{Action, Clock, Column, Row, Top};
