//! The sampler against real PHP on this machine: `make php` runs these tests, each in a process of
//! its own.
//!
//! They need Debian's PHP 8.2 (command line, php-fpm, opcache), and some of them root. A test that
//! judges a share or a time has the machine for itself (`.config/nextest.toml`).
//!
//! Modules named `long` run with `FULL=1` only (the profile `php-full`): what they show is shown by
//! a shorter test beside them, by a test with a fake clock (`src/run/tests.rs`), or by the replay
//! of a recorded scene (`tests/scenes`).

mod access;
mod budget;
mod calls;
mod checkpoints;
mod clock;
mod commands;
mod depth;
mod discovery;
mod fibers;
mod finding;
mod findings;
mod frames;
mod heap;
mod host;
mod loops;
mod matrix;
mod opcache;
mod options;
mod output;
mod period;
mod phases;
#[path = "../programs/mod.rs"]
mod programs;
mod recursion;
mod requests;
mod requests_server;
mod resets;
mod resident;
mod scans;
mod scenes;
mod short_lived;
#[path = "../standing/mod.rs"]
mod standing;
