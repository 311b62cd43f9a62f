//! Reads the bytes of a worker's stack by one call of the kernel, and the worker's CPU clock.

mod beside;
pub mod clocks;
pub mod compiler_watch;
pub mod cpu_shares;
pub mod departures;
pub mod globals;
pub mod heap;
pub mod lasting;
pub mod looks;
pub mod on_cpu;
pub mod own_cpu;
pub mod place;
pub mod punctuality;
pub mod quiescent;
pub mod reader;
pub mod request_watch;
pub mod wait_shares;
pub mod window;
mod words;
pub mod worker;
