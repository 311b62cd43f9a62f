//! The sampler against real PHP on this machine: `make php` runs these tests, each in a process of
//! its own.
//!
//! They need Debian's PHP 8.2 (command line, php-fpm, opcache), and some of them root. A test that
//! judges a share or a time has the machine for itself (`.config/nextest.toml`).

mod access;
mod budget;
mod calls;
mod checkpoints;
mod clock;
mod commands;
mod discovery;
mod finding;
mod findings;
mod frames;
mod heap;
mod host;
mod matrix;
mod opcache;
mod output;
mod period;
mod phases;
#[path = "../programs/mod.rs"]
mod programs;
mod requests;
mod requests_server;
mod resets;
mod resident;
mod scans;
mod short_lived;
mod target;
