//! What tests on real programs share. No program depends on it.

pub mod address;
pub mod fpm;
pub mod process;
pub mod shares;
pub mod wait;

pub use address::{free_address, wait_for_listener, wait_for_socket};
pub use process::{Running, RunningGroup};
pub use wait::{wait_for, wait_until, wait_within};
