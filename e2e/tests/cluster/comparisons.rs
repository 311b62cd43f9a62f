//! Verdicts on real runs: the same release twice, and a release with a planted cost.

use anyhow::{Context as _, Result, ensure};
use e2e::comparisons::{reason_of, verdict_of};
use e2e::requests::status;
use e2e::{ENABLED, Fixture, kubectl, pods, shared};
use kube::ResourceExt as _;
use phpprof_crds::{ComparisonVerdict, ProfileRequest};
use serde_json::{Value, json};

/// A request of the demo takes about 20 ms, so this gives ten samples of each.
const RATE: i32 = 499;
const SECONDS: i32 = 15;

fn deployment() -> Value {
    json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "containerName": "fpm"})
}

/// A pod of the demo before or after its upgrade (demo/app/src/Upgrade).
fn upgraded(name: &str, side: &str) -> Result<Value> {
    let mut pod = pods::busy_php(name);
    let containers = pod["spec"]["containers"].as_array_mut();
    let fpm = containers.and_then(|all| all.first_mut());
    fpm.context("no container")?["env"] = json!([{"name": "UPGRADE", "value": side}]);
    Ok(pod)
}

async fn run(fixture: &Fixture) -> Result<ProfileRequest> {
    fixture
        .completed(json!({
            "target": deployment(), "durationSeconds": SECONDS, "samplesPerSecond": RATE, "labels": ["Route"],
        }))
        .await
}

#[test]
fn the_same_release_is_not_worse() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.deploy("web", 2, pods::busy_php("web")).await?;
        let (before, after) = (run(fixture).await?, run(fixture).await?);
        let spec = json!({
            "before": {"request": before.name_any()}, "after": {"request": after.name_any()},
            // Two pods with one busy worker each do not show less.
            "maxIncreasePercent": 5.0,
        });
        let comparison = fixture.compare("same", &spec).await?;
        let ended = fixture.verdict(&comparison).await?;
        let status = verdict_of(&ended);
        ensure!(
            status.verdict != Some(ComparisonVerdict::Worse),
            "{status:?}"
        );
        ensure!(
            status.before.http_requests > 10 && status.time.is_some(),
            "{status:?}"
        );
        ensure!(status.before.request_uid == before.uid().unwrap_or_default());
        let shown = ["--namespace", &fixture.namespace, "get", "pcmp", "same"];
        let shown = kubectl(&shown).await?;
        for column in ["VERDICT", "BEFORE", "AFTER", "CHANGE", &after.name_any()] {
            ensure!(shown.contains(column), "{shown}");
        }
        // A comparison does not change the requests that it names.
        let request: ProfileRequest = fixture.api().get(&after.name_any()).await?;
        ensure!(
            request.metadata.generation == after.metadata.generation,
            "changed"
        );
        Ok(())
    })
}

#[test]
fn a_planted_cost_is_worse_and_named() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let pods = [upgraded("stable", "before")?, upgraded("canary", "after")?];
        fixture.start(&pods).await?;
        let pod = |name: &str| json!({"target": {"podName": name, "containerName": "fpm"}});
        // Other tests use the node's CPUs too, so wall time varies much.
        let spec = json!({
            "before": pod("stable"), "after": pod("canary"), "measure": "CPU",
            "durationSeconds": 3 * SECONDS, "samplesPerSecond": RATE,
        });
        let comparison = fixture.compare("upgrade", &spec).await?;
        let ended = fixture.verdict(&comparison).await?;
        let verdict = verdict_of(&ended);
        ensure!(
            verdict.verdict == Some(ComparisonVerdict::Worse),
            "{verdict:?}"
        );
        let reasons = ["TimeChanged", "FunctionsChanged"];
        ensure!(reasons.contains(&&*reason_of(&ended)), "{verdict:?}");
        ensure!(
            verdict.conditions[1].status == "True",
            "{:?}",
            verdict.conditions
        );
        let names: Vec<&str> = verdict.functions.iter().map(|it| &*it.function).collect();
        let is_planted = |name: &&str| name.contains("Upgrade\\");
        ensure!(names.iter().any(is_planted), "{names:?}");
        ensure!(verdict.change.starts_with('+'), "{}", verdict.change);
        let mut starts = Vec::new();
        for name in ["upgrade-before", "upgrade-after"] {
            let request: ProfileRequest = fixture.api().get(name).await?;
            let owners = request.owner_references();
            ensure!(
                owners
                    .iter()
                    .any(|it| Some(&it.uid) == ended.metadata.uid.as_ref())
            );
            starts.push(status(&request).start_time.context("no start")?.0);
        }
        let apart = starts[1].duration_since(starts[0]).abs();
        ensure!(apart.as_secs() < 5, "the runs began {apart} apart");
        let events = [
            "--namespace",
            &fixture.namespace,
            "get",
            "events.events.k8s.io",
        ];
        let events = kubectl(&events).await?;
        ensure!(
            events.contains("RequestsCreated") && events.contains("Decided"),
            "{events}"
        );
        Ok(())
    })
}

#[test]
fn one_side_without_pods_cancels_the_other() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        fixture.use_rights_of_comparisons().await
    })
}
