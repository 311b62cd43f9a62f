//! Which `make` target runs a command of the documents: `make test`, `make test-full`, or none, and
//! why.
//!
//! It describes the tests and runs nothing. Its own test checks the promise: `make test` runs a
//! third, and `make test-full` runs all except those named here.

use std::path::Path;

use crate::{Command, Setup};

/// The guide to the first profile.
pub const FIRST: &str = "docs/guides/first-profile.md";
/// The tutorial: from a slow shop to a fast one.
pub const TUTORIAL: &str = "docs/tutorial.md";
/// The pages whose commands for a cluster run in `make test`.
pub const IN_TEST: [&str; 5] = [
    FIRST,
    TUTORIAL,
    "docs/guides/access.md",
    "docs/guides/install.md",
    "docs/guides/memory.md",
];
/// The page whose commands run on a host.
pub const OF_HOST: &str = "docs/guides/profile-a-host.md";

/// What runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandRunner {
    /// `make test`, and so `make test-full`.
    Test,
    /// `make test-full` only.
    Full,
    /// No test, for this reason.
    No(&'static str),
}

/// The form of the benchmark that `make test` runs.
const SHORT: &str = "BENCH=smoke";
/// Targets of `make` that `make test` runs itself.
const STEPS: [&[&str]; 8] = [
    &["make", "agents"],
    &["make", "api"],
    &["make", "browser"],
    &["make", "cluster-up"],
    &["make", "connections"],
    &["make", "e2e"],
    &["make", "otlp"],
    &["make", "unit"],
];
/// Commands that no test runs, by their first words, and why. The promise is that there are no
/// others.
const NOT_RUN: [(&[&str], &str); 6] = [
    (
        &["make", "bench"],
        "measures for up to two hours; make test runs the short form, BENCH=smoke",
    ),
    (
        &["profiler-image/bench/bench.sh"],
        "measures for up to half an hour; make test runs the short form, BENCH=smoke",
    ),
    (&["make", "slowdown"], "measures for up to two hours"),
    (
        &["make", "demo", "KUBECONFIG_CONTEXT=name"],
        "needs a cluster and a registry of your own; make test-full runs make demo without them",
    ),
    (
        &["skopeo", "copy"],
        "needs two registries; make release-check pulls by the same digests",
    ),
    (
        &["kubectl", "krew", "install"],
        "downloads a release; make browser installs the same manifest from an archive on disk",
    ),
];

/// What runs this command of a page's block.
pub fn runs(page: &Path, setup: Setup, command: &Command) -> CommandRunner {
    let is_step = STEPS.iter().any(|words| {
        command
            .arguments_of(words)
            .is_some_and(|rest| rest.is_empty())
    });
    if is_step || command.variables.iter().any(|set| set == SHORT) {
        return CommandRunner::Test;
    }
    let not = NOT_RUN
        .iter()
        .find(|(words, _)| command.arguments_of(words).is_some());
    if let Some((_, why)) = not {
        return CommandRunner::No(why);
    }
    let is_one_of = |pages: &[&str]| pages.iter().any(|other| page == Path::new(other));
    match setup {
        Setup::Host => CommandRunner::Test,
        Setup::Terminal if is_one_of(&[OF_HOST]) => CommandRunner::Test,
        Setup::Cluster | Setup::Example | Setup::Terminal if is_one_of(&IN_TEST) => {
            CommandRunner::Test
        }
        Setup::Cluster
        | Setup::Example
        | Setup::Terminal
        | Setup::Release
        | Setup::Cloud
        | Setup::Published
        | Setup::Demo
        | Setup::Build => CommandRunner::Full,
    }
}
