//! What the tests on a real cluster share: a namespace for each test, phpprof installed by its
//! chart, requests and their results, the object store.
//!
//! It knows a cluster only by its kubeconfig, and calls the store from a pod, as samplers do; so it
//! works on any cluster whose nodes have the images. It does not make the cluster or the images.
//!
//! Invariant: the next run removes or restores what a test leaves behind, however the test ends.

pub mod alerting;
pub mod api_server;
pub mod application;
pub mod audit;
mod calls;
mod command;
pub mod comparisons;
pub mod cut;
pub mod examples;
mod fixture;
mod hold;
pub mod line;
pub mod masquerade;
pub mod older;
pub mod operator;
pub mod outage;
pub mod pods;
mod proxy;
pub mod release;
pub mod requests;
pub mod results;
pub mod rollouts;
mod runner;
pub mod samples;
mod sign;
pub mod store;
mod terminal;
pub mod test_cluster;
pub mod toy;
pub mod users;
pub mod volume;
mod wait;
pub mod webhook;
mod workloads;

pub use command::{kubectl, run};
pub use fixture::{ENABLED, Fixture, NOT_ENABLED, RESTRICTED};
pub use runner::{exclusive, exclusive_on, prepare, shared, shared_on};
pub use wait::poll;

use std::io::Write as _;
use std::time::Duration;

/// Whether the long form of the tests was requested (`FULL=1`). If not, it prints what is left to
/// the long form.
pub fn is_long_form(left: &str) -> bool {
    let is_long = std::env::var("FULL").is_ok_and(|value| value == "1");
    if !is_long {
        say(&format!("{left}: left to make test-full"));
    }
    is_long
}

/// Prints a line. nextest shows those of tests that fail, and keeps all in its junit.xml.
pub fn say(line: &str) {
    // It does not matter if nobody reads the line.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Compares a time with the promised one. It prints the time, and fails only above three times the
/// promise, because machines differ.
pub fn promised(what: &str, promise: Duration, took: Duration) -> anyhow::Result<()> {
    say(&format!("{what}: {took:.1?}, promised are {promise:?}"));
    anyhow::ensure!(
        took <= promise * 3,
        "{what} took {took:.1?}, and {promise:?} are promised"
    );
    Ok(())
}
