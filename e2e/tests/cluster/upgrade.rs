//! Upgrades an older release while it works, and goes back to it.

use anyhow::{Result, ensure};
use e2e::requests::{holds, only_target, status};
use e2e::store::sha256;
use e2e::{Fixture, exclusive, older, pods, release};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{ProfileRequest, condition};
use serde_json::{Value, json};

/// Longer than the upgrade takes, but within the limit of the tests' release.
const OUTLASTS: u32 = 40;

fn spec(pod: &str, seconds: u32, mode: &str) -> Value {
    json!({"target": {"podName": pod}, "durationSeconds": seconds, "uploadMode": mode})
}

/// The Secret with the operator's keys.
async fn keys(fixture: &Fixture) -> Result<Secret> {
    let secrets: Api<Secret> = Api::namespaced(fixture.client.clone(), release::NAMESPACE);
    Ok(secrets.get(&format!("{}-keys", release::SERVICE)).await?)
}

/// Checks that the request has one profile, of one sampler, in the bucket as its status says, and
/// that its access key opens it.
async fn check_profile(fixture: &Fixture, request: &ProfileRequest) -> Result<()> {
    holds(request, condition::COMPLETE)?;
    let target = only_target(request)?;
    ensure!(
        sha256(&fixture.read(&target.object_key).await?) == target.sha256,
        "another object"
    );
    let links = fixture.links(request).await?;
    for name in ["profile", "flame", "manifest"] {
        let reply = fixture.get(&links[name]).await?;
        ensure!(
            reply.status == 200,
            "{name}: {} {}",
            reply.status,
            reply.text()
        );
    }
    let pod: Pod = fixture.api().get(&target.pod_name).await?;
    let name = format!("phpprof-{}-", &request.uid().unwrap_or_default()[..8]);
    let containers = pod
        .spec
        .and_then(|spec| spec.ephemeral_containers)
        .unwrap_or_default();
    let ours = containers
        .iter()
        .filter(|container| container.name.starts_with(&name));
    ensure!(
        ours.count() == 1,
        "not one sampler of {}",
        request.name_any()
    );
    Ok(())
}

/// Rolls back while a run lasts. The older operator ends that run, though perhaps without its
/// profile (docs/guides/upgrading.md), profiles as before, and opens what it had stored.
async fn goes_back(fixture: &Fixture, stored: &ProfileRequest, keys_before: &Secret) -> Result<()> {
    let lasting = fixture.sampled(spec("web-a", OUTLASTS, "Relay")).await?;
    release::roll_back().await?;
    fixture.ended(&lasting).await?;
    let next = fixture.completed(spec("web-b", 1, "Auto")).await?;
    for request in [stored, &next] {
        check_profile(fixture, request).await?;
    }
    ensure!(keys(fixture).await?.data == keys_before.data, "other keys");
    Ok(())
}

/// A request that the older operator accepted is stored outside the folder of the namespace's uid.
/// No archive has it, but its request opens it.
async fn found_in_the_archive(
    fixture: &Fixture,
    older: &ProfileRequest,
    newer: &ProfileRequest,
) -> Result<()> {
    let folder = format!("{}/{}-", fixture.namespace, older.name_any());
    ensure!(
        only_target(older)?.object_key.contains(&folder),
        "the older release stores as the newer one"
    );
    let administrator = fixture.administrator()?;
    let listed = administrator.run("list --stored -o name").await?.well()?;
    let named = format!("{}@", newer.name_any());
    ensure!(
        listed.starts_with(&named) && listed.lines().count() == 1,
        "{listed}"
    );
    let top = format!("top {}", older.name_any());
    let top = administrator.run(&top).await?.well()?;
    ensure!(top.contains("Demo\\"), "{top}");
    Ok(())
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn an_upgrade_keeps_runs_profiles_and_keys() -> Result<()> {
        exclusive(async |fixture| {
            older::install().await?;
            fixture
                .start(&[pods::php("web-a"), pods::php("web-b")])
                .await?;
            let stored = fixture.completed(spec("web-a", 1, "Auto")).await?;
            let before = keys(fixture).await?;
            ensure!(
                before.data.as_ref().is_some_and(|data| !data.is_empty()),
                "no keys"
            );
            let mut held = spec("web-b", 1, "Auto");
            held["suspend"] = json!(true);
            let held = fixture.apply(held).await?;
            // Two requests end after the upgrade, and one ends during it.
            let direct = fixture.sampled(spec("web-a", OUTLASTS, "Direct")).await?;
            let relayed = fixture.sampled(spec("web-b", OUTLASTS, "Relay")).await?;
            let short = fixture.sampled(spec("web-b", 3, "Relay")).await?;

            release::replace_older().await?;
            for lasting in [&direct, &relayed] {
                let now = fixture.until(lasting, "is there", |_| true).await?;
                ensure!(
                    status(&now).completion_time.is_none(),
                    "over before the upgrade was"
                );
            }
            fixture.change(&held, json!({"suspend": false})).await?;
            let mut all = vec![stored.clone()];
            for request in [&short, &held, &direct, &relayed] {
                all.push(fixture.ended(request).await?);
            }
            for request in &all {
                check_profile(fixture, request).await?;
            }
            let after = keys(fixture).await?;
            ensure!(after.data == before.data, "other keys");
            ensure!(after.uid() == before.uid(), "another Secret");
            found_in_the_archive(fixture, &stored, &all[2]).await?;
            goes_back(fixture, &stored, &before).await
        })
    }
}
