//! PHP in other runtimes than php-fpm, one pod for each: phpprof finds the process that runs PHP,
//! whatever its name, and no other process.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::only_target;
use e2e::samples::{labels, samples_by, samples_of};
use e2e::{ENABLED, Fixture, RESTRICTED, application, pods, say, shared};
use phpprof_crds::{TargetState, TargetStatus};
use phpprof_profile::{Profile, total};
use serde_json::{Value, json};

const ROADRUNNER: &str = include_str!("../../../demo/runtimes/roadrunner/calls.txt");
const FRANKENPHP: &str = include_str!("../../../demo/runtimes/frankenphp/calls.txt");
/// What a worker that keeps PHP's state runs for each request.
const REQUEST: &str = "include /srv/app/index.php";

#[test]
fn frankenphp_worker_mode_shows_all_8_threads() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        // More connections than threads, so that each thread has one at any time; all of them
        // together use less than one CPU.
        let load = ["http://127.0.0.1:9000", "300", "10", "0"];
        let mut pod = pods::restricted(pods::runtime("web", "demo-frankenphp", &load));
        pod["spec"]["containers"][0]["resources"]["limits"] = json!({"cpu": "800m"});
        let (profile, target) = profiled(fixture, pod, "frankenphp").await?;
        check_application(&profile, FRANKENPHP)?;
        let threads = samples_by(&profile, "thread", REQUEST)?;
        say(&format!("samples of FrankenPHP's threads: {threads:?}"));
        ensure!(threads.len() == 8, "{threads:?}");
        // A request takes equally long in each of them.
        let samples = total(&profile, "samples");
        ensure!(
            threads.values().all(|of_thread| of_thread * 24 > samples),
            "{threads:?}"
        );
        ensure!(
            samples_by(&profile, "pid", REQUEST)?.len() == 1,
            "FrankenPHP is one process"
        );
        ensure!(
            target.php.unwrap_or_default().thread_safe,
            "it is thread-safe"
        );
        Ok(())
    })
}

#[test]
fn roadrunner_shows_its_4_workers_only() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        let load = ["http://127.0.0.1:9000", "300", "2", "40"];
        let pod = pods::restricted(pods::runtime("web", "demo-roadrunner", &load));
        let (profile, target) = profiled(fixture, pod, "cli").await?;
        check_application(&profile, ROADRUNNER)?;
        let workers = samples_by(&profile, "pid", REQUEST)?;
        say(&format!("samples of RoadRunner's workers: {workers:?}"));
        ensure!(workers.len() == 4, "{workers:?}");
        ensure!(target.workers == Some(4), "{target:?}");
        ensure!(!workers.contains_key(&1), "rr itself is process 1");
        Ok(())
    })
}

#[test]
fn mod_php_of_debian_is_profiled() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let load = ["http://127.0.0.1:9000", "300", "2", "40"];
        let pod = pods::runtime("web", "demo-mod_php", &load);
        let (profile, _) = profiled(fixture, pod, "apache2handler").await?;
        check_application(&profile, "")?;
        let workers = samples_by(&profile, "pid", application::ROOT)?;
        ensure!(
            workers.len() > 1 && !workers.contains_key(&1),
            "{workers:?}"
        );
        Ok(())
    })
}

#[test]
fn restricted_musl_php_fpm_without_symbols_is_profiled() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        let load = ["127.0.0.1:9000", "300", "2", "40"];
        let pod = pods::restricted(pods::runtime("web", "demo-musl", &load));
        let (profile, _) = profiled(fixture, pod, "fpm-fcgi").await?;
        check_application(&profile, "")?;
        let workers = samples_by(&profile, "pid", application::ROOT)?;
        ensure!(
            workers.len() > 1 && !workers.contains_key(&1),
            "{workers:?}"
        );
        Ok(())
    })
}

/// Starts the pod and profiles it for three seconds. Checks that the profile is the one in the
/// store, and that its labels are right.
async fn profiled(fixture: &Fixture, pod: Value, sapi: &str) -> Result<(Profile, TargetStatus)> {
    fixture.start(&[pod]).await?;
    let request = fixture
        .completed(
            json!({"target": {"podName": "web", "containerName": "php"}, "durationSeconds": 3}),
        )
        .await?;
    let target = only_target(&request)?;
    ensure!(target.state == TargetState::Uploaded, "{target:?}");
    let claimed = request.status.and_then(|status| status.profile);
    let claimed = claimed.context("no merged profile")?;
    let profile = fixture.profile(fixture.store.key_of(&claimed.url)?).await?;
    ensure!(total(&profile, "samples") == claimed.samples, "{claimed:?}");
    let php = target.php.clone().unwrap_or_default();
    ensure!(php.version.starts_with("8.2."), "{php:?}");
    for (label, value) in [
        ("php", php.version.as_str()),
        ("sapi", sapi),
        ("container", "php"),
    ] {
        let found = labels(&profile, label)?;
        ensure!(
            found == BTreeSet::from([value.to_owned()]),
            "{label}: {found:?}"
        );
    }
    Ok((profile, target))
}

/// Checks that the application's stacks are below the runtime's own frames, and that its largest
/// call path has about its known share.
fn check_application(profile: &Profile, own_calls: &str) -> Result<()> {
    application::check_stacks(profile, own_calls)?;
    let requests = match samples_of(profile, REQUEST) {
        0 => total(profile, "samples"),
        of_requests => of_requests,
    };
    let (checkout, unstable) = (
        samples_of(profile, application::LARGEST),
        samples_of(profile, application::UNSTABLE),
    );
    say(&format!(
        "{unstable} of {requests} samples are unstable, {checkout} are of the path of 60 %"
    ));
    ensure!(
        checkout * 3 > requests && checkout * 4 < requests * 3,
        "the path of 60 % has {checkout} of {requests} samples"
    );
    Ok(())
}
