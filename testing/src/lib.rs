//! What tests on real programs share. No program depends on it.

pub mod fpm;
pub mod process;
pub mod shares;
pub mod wait;

pub use process::Running;
pub use wait::{wait_for, wait_until};
