//! What the tests on a real cluster share: a namespace for each, phpprof installed by its chart, requests and
//! what becomes of them, the object store.
//!
//! It knows a cluster only by its kubeconfig, and reaches the store from a pod, as everyone else does; so it works on any
//! cluster whose nodes have the images. It does not make the cluster or the images.
//!
//! Invariant: what a test leaves behind, however it ends, the next run removes or puts right.

pub mod api_server;
pub mod application;
pub mod audit;
mod command;
pub mod cut;
mod fixture;
pub mod line;
pub mod masquerade;
pub mod older;
pub mod outage;
pub mod pods;
mod proxy;
pub mod release;
pub mod requests;
pub mod results;
pub mod samples;
mod sign;
pub mod store;
mod terminal;
mod turn;
pub mod users;
pub mod volume;
pub mod webhook;

pub use command::{kubectl, run};
pub use fixture::{
    ENABLED, Fixture, NOT_ENABLED, RESTRICTED, exclusive, exclusive_on, poll, shared, shared_early,
    shared_on,
};

use std::io::Write as _;
use std::time::Duration;

/// Whether the long form of the tests was asked for (`FULL=1`); else says what is left to it.
pub fn is_long_form(left: &str) -> bool {
    let is_long = std::env::var("FULL").is_ok_and(|value| value == "1");
    if !is_long {
        say(&format!("{left}: left to make test-full"));
    }
    is_long
}

/// Prints a line, also where the output of a test that passes is not shown.
pub fn say(line: &str) {
    // Nobody reads it: no harm.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A promised time. Tests print what it really took, and fail at three times the promise only: machines differ.
pub fn promised(what: &str, promise: Duration, took: Duration) -> anyhow::Result<()> {
    say(&format!("{what}: {took:.1?}, promised are {promise:?}"));
    anyhow::ensure!(
        took <= promise * 3,
        "{what} took {took:.1?}, and {promise:?} are promised"
    );
    Ok(())
}
