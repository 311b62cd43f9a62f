//! Schedules from the chart's values and from the plugin: what a CronJob creates, what remains of
//! it, and what its service account may do.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{self, image, restricted};
use e2e::{Fixture, RESTRICTED, kubectl, poll, release, run, shared};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::ListParams;
use phpprof_crds::ProfileRequest;

const RELEASE: &str = "phpprof";
const CRONJOB: &str = "phpprof-web";
const MANUAL: [&str; 3] = ["by-hand-1", "by-hand-2", "by-hand-3"];
/// Rights as kubectl lists them.
const PROFILE: &str = "profilerequests.phpprof.dev [] [] [create profile]";
const COMPARE: &str = "profilecomparisons.phpprof.dev [] [] [create]";
const TRIGGER: &str = "profiletriggers.phpprof.dev [] [] [create]";
/// The time until the next full minute, and for a pod and a request on a busy machine.
const A_MINUTE: Duration = Duration::from_secs(110);

/// Installs only the chart's schedules, in the test's own namespace, so that the installed release
/// does not change.
async fn schedule(fixture: &Fixture) -> Result<()> {
    let chart = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/phpprof");
    let (chart, namespace) = (chart.display().to_string(), &fixture.namespace);
    let values = serde_json::json!({
        "images": {"plugin": image("kubectl-phpprof")},
        "schedules": [{
            "name": "web", "namespace": namespace, "schedule": "* * * * *", "labels": {"team": "checkout"},
            "request": {"target": {"podName": "web"}, "durationSeconds": 1, "ttlSecondsAfterFinished": 3},
        }],
    });
    let arguments = [
        "template",
        RELEASE,
        &chart,
        "--namespace",
        namespace,
        release::KUBE_VERSION,
        "--show-only=templates/schedules.yaml",
        "--values=-",
    ];
    let objects = run("helm", &arguments, values.to_string().as_bytes()).await?;
    run("kubectl", &["apply", "--filename=-"], &objects).await?;
    Ok(())
}

/// The rights of a service account in a namespace, as kubectl lists them, without the blanks that
/// align columns.
async fn rights(of: &str, account: &str, namespace: &str) -> Result<BTreeSet<String>> {
    let user = format!("--as=system:serviceaccount:{of}:{account}");
    let listed = kubectl(&["auth", "can-i", "--list", &user, "--namespace", namespace]).await?;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(listed.lines().map(words).collect())
}

/// Checks that the schedules' account has these rights in its namespace, and none elsewhere.
async fn check_rights(fixture: &Fixture, expected: &[&str]) -> Result<()> {
    let here = fixture.namespace.as_str();
    for (place, expected) in [(here, expected), ("default", &[]), ("kube-system", &[])] {
        let (ours, anybodys) = tokio::try_join!(
            rights(here, "phpprof-schedules", place),
            rights(here, "default", place)
        )?;
        let more: Vec<&str> = ours.difference(&anybodys).map(String::as_str).collect();
        ensure!(more == expected, "in {place}: {more:?}");
    }
    Ok(())
}

async fn jobs(fixture: &Fixture) -> Result<Vec<Job>> {
    Ok(fixture
        .api::<Job>()
        .list(&ListParams::default())
        .await?
        .items)
}

fn succeeded(job: &&Job) -> bool {
    let status = job.status.as_ref();
    status.and_then(|status| status.succeeded).unwrap_or(0) > 0
}

/// The schedule's requests that exist now.
async fn requests(fixture: &Fixture) -> Result<Vec<ProfileRequest>> {
    let ours = ListParams::default().labels("phpprof.dev/schedule=web,team=checkout");
    Ok(fixture.api().list(&ours).await?.items)
}

#[test]
fn a_schedule_makes_requests_with_bounded_history() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        fixture
            .start(&[restricted(pods::without_php("web"))])
            .await?;
        schedule(fixture).await?;
        check_rights(fixture, &[PROFILE]).await?;
        // Three jobs by hand replace three minutes of the schedule.
        let from = format!("--from=cronjob/{CRONJOB}");
        for name in MANUAL {
            kubectl(&[
                "--namespace",
                &fixture.namespace,
                "create",
                "job",
                name,
                &from,
            ])
            .await?;
        }
        let mut seen = BTreeSet::new();
        poll(
            "requests of three jobs and of the clock's",
            A_MINUTE,
            async || {
                for request in requests(fixture).await? {
                    let name = request.name_any();
                    ensure!(name.starts_with("web-"), "{name}");
                    ensure!(request.spec.target.pod_name.as_deref() == Some("web"));
                    seen.insert(name);
                }
                let jobs = jobs(fixture).await?;
                let clocks = jobs
                    .iter()
                    .filter(|job| job.name_any().starts_with(CRONJOB));
                let made = clocks.filter(succeeded).count();
                Ok((made > 0 && seen.len() > MANUAL.len()).then_some(()))
            },
        )
        .await?;
        let bounded = async || {
            let (jobs, requests) = tokio::try_join!(jobs(fixture), requests(fixture))?;
            let few = jobs.iter().filter(succeeded).count() <= 1 && requests.len() <= 1;
            Ok(few.then_some(()))
        };
        poll("one job and one request at most", A_MINUTE / 2, bounded)
            .await
            .context("history is not bounded")
    })
}

/// The requests of the plugin's schedule.
async fn of_plugin(fixture: &Fixture) -> Result<Vec<ProfileRequest>> {
    let ours = ListParams::default().labels("phpprof.dev/schedule=web");
    Ok(fixture.api().list(&ours).await?.items)
}

#[test]
fn a_namespace_admin_can_make_schedules() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        fixture
            .start(&[restricted(pods::without_php("web"))])
            .await?;
        let create = format!(
            "schedule create web pod/web --schedule @yearly -d 1s --image {}",
            image("kubectl-phpprof")
        );
        // A user with the role edit may profile, but may not bind a role.
        let refused = fixture.developer().await?.run(&create).await?;
        ensure!(
            refused.code == 4 && refused.err.contains("create rolebindings"),
            "{refused:?}"
        );
        let admin = fixture.namespace_admin().await?;
        admin
            .run(&format!("{create} --dry-run=server"))
            .await?
            .well()?;
        admin.run(&create).await?.well()?;
        // It is bound to the role for all who may profile: they may compare and write triggers,
        // too.
        check_rights(fixture, &[COMPARE, PROFILE, TRIGGER]).await?;
        let again = admin.run(&create).await?;
        ensure!(
            again.code == 1 && again.err.contains("there is a schedule web"),
            "{again:?}"
        );
        admin.run("schedule suspend web").await?.well()?;
        let listed = admin.run("schedule list").await?.well()?;
        ensure!(
            listed.contains("web    @yearly") && listed.contains("yes"),
            "{listed}"
        );
        admin.run("schedule resume web").await?.well()?;
        admin.run("schedule run web").await?.well()?;
        poll("a request of the schedule", A_MINUTE, async || {
            Ok(of_plugin(fixture).await?.pop())
        })
        .await?;
        let deleted = admin.run("schedule delete web").await?.well()?;
        ensure!(deleted.lines().count() == 4, "{deleted}");
        let left = admin.run("schedule list -o name").await?.well()?;
        ensure!(left.is_empty(), "{left}");
        let requests = of_plugin(fixture).await?;
        ensure!(!requests.is_empty(), "requests outlive their schedule");
        for request in requests {
            admin
                .run(&format!("delete {}", request.name_any()))
                .await?
                .well()?;
        }
        ensure!(
            of_plugin(fixture).await?.is_empty(),
            "deleted requests are there"
        );
        Ok(())
    })
}
