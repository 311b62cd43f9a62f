//! Runs that are cut off: the last checkpoints of their samplers become the profile.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::release::ON_VOLUME;
use e2e::requests::{holds, only_target, status};
use e2e::store::sha256;
use e2e::{ENABLED, Fixture, pods, poll, say, shared, shared_on};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use phpprof_crds::{ProfileRequest, RequestReason, TargetReason, TargetState, condition};
use phpprof_profile::{DecodeLimits, decode, total};
use serde_json::{Value, json};

/// The third is due after 20 s: those before it after 5 and 10.
const THIRD: &str = ".checkpoint-3.pb.gz";

fn spec(pod: &str, way: &str, duration_seconds: u32) -> Value {
    json!({"target": {"podName": pod}, "uploadMode": way, "durationSeconds": duration_seconds})
}

/// The keys of a request in the store.
async fn stored(
    fixture: &Fixture,
    on_volume: bool,
    request: &ProfileRequest,
) -> Result<Vec<String>> {
    let keys = if on_volume {
        fixture.files().await?
    } else {
        fixture.keys().await?
    };
    let uid = request.uid().context("no uid")?;
    Ok(keys.into_iter().filter(|key| key.contains(&uid)).collect())
}

/// Waits for a checkpoint.
async fn has(
    fixture: &Fixture,
    on_volume: bool,
    request: &ProfileRequest,
    checkpoint: &str,
) -> Result<()> {
    let limit = Duration::from_secs(60);
    poll("a checkpoint is stored", limit, async || {
        let keys = stored(fixture, on_volume, request).await?;
        let is_there = keys.iter().any(|key| key.ends_with(checkpoint));
        Ok(is_there.then_some(()))
    })
    .await
}

async fn wait_for_third(
    fixture: &Fixture,
    on_volume: bool,
    request: &ProfileRequest,
) -> Result<()> {
    has(fixture, on_volume, request, THIRD).await
}

/// Checks that the request is complete with the first 20 of its 60 seconds, and that its message
/// gives the cause.
async fn check_beginning(
    fixture: &Fixture,
    on_volume: bool,
    request: &ProfileRequest,
    reasons: &[TargetReason],
) -> Result<()> {
    let complete = holds(request, condition::COMPLETE)?;
    ensure!(
        complete.reason == RequestReason::Complete.to_string(),
        "{complete:?}"
    );
    let target = only_target(request)?;
    ensure!(
        target.state == TargetState::Uploaded && target.object_key.ends_with(THIRD),
        "{target:?}"
    );
    let reason = target.reason.context("no reason")?;
    ensure!(reasons.contains(&reason), "{target:?}");
    let said = "the profile has the first 20 s of 60";
    ensure!(
        target.message.starts_with(said) && complete.message.contains(said),
        "{complete:?}"
    );
    let links = fixture.links(request).await?;
    let bytes = fixture.get(&links["pod/web/fpm"]).await?.body;
    ensure!(sha256(&bytes) == target.sha256, "another profile");
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let samples = total(&profile, "samples");
    ensure!(
        samples > 0 && target.samples == Some(samples),
        "{samples} samples: {target:?}"
    );
    let merged = status(request).profile.context("no merged profile")?;
    ensure!(merged.samples == samples, "{merged:?}");
    let line = format!("top {}", request.name_any());
    let top = fixture.administrator()?.run(&line).await?.well()?;
    ensure!(top.contains("Demo\\"), "{top}");
    only_needed_is_left(fixture, on_volume, request).await?;
    say(&format!(
        "{samples} samples of a run that was cut off: {}",
        target.message
    ));
    Ok(())
}

/// Checks that only the pod's profile, the merged one and the manifest are left, and no checkpoint.
async fn only_needed_is_left(
    fixture: &Fixture,
    on_volume: bool,
    request: &ProfileRequest,
) -> Result<()> {
    only_needed_is_left_within(Duration::from_secs(20), fixture, on_volume, request).await
}

async fn only_needed_is_left_within(
    limit: Duration,
    fixture: &Fixture,
    on_volume: bool,
    request: &ProfileRequest,
) -> Result<()> {
    let target = only_target(request)?;
    poll("other checkpoints are deleted", limit, async || {
        let keys = stored(fixture, on_volume, request).await?;
        ensure!(keys.contains(&target.object_key), "{keys:?}");
        Ok((keys.len() == 3).then_some(()))
    })
    .await
}

/// Deletes a pod whose sampler then has a moment to store what it has, after the operator has
/// looked for it. The pod's grace is 0, so the API server forgets it at once, and the kubelet ends
/// its containers afterwards.
async fn outlived(fixture: &Fixture, on_volume: bool, way: &str) -> Result<ProfileRequest> {
    fixture.start(&[pods::stubborn_php("web")]).await?;
    let request = fixture.apply(spec("web", way, 60)).await?;
    has(fixture, on_volume, &request, ".checkpoint-1.pb.gz").await?;
    let pods = fixture.api::<Pod>();
    pods.delete("web", &DeleteParams::default()).await?;
    let request = fixture.ended(&request).await?;
    holds(&request, condition::COMPLETE)?;
    // The kubelet kills after two seconds.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let keys = stored(fixture, on_volume, &request).await?;
    say(&format!("{way}, six seconds later: {} objects", keys.len()));
    Ok(request)
}

#[test]
fn an_outliving_samplers_direct_objects_are_deleted() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let request = outlived(fixture, false, "Direct").await?;
        only_needed_is_left_within(Duration::from_secs(90), fixture, false, &request).await
    })
}

#[test]
fn an_ended_container_leaves_its_direct_checkpoints() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let request = fixture.sampled(spec("web", "Direct", 60)).await?;
        wait_for_third(fixture, false, &request).await?;
        let sampler = fixture.sampler(&only_target(&request)?).await?;
        let grants = sampler.variable("PHPPROF_CHECKPOINTS");
        say(&format!(
            "the grants of 6 checkpoints take {} bytes of the pod",
            grants.context("no checkpoints")?.len()
        ));
        // The command ends with PID 1, too.
        let _ = fixture.exec("web", &["sh", "-c", "kill 1"], &[]).await;
        let request = fixture.ended(&request).await?;
        let ended = [TargetReason::TargetExited, TargetReason::TargetRestarted];
        check_beginning(fixture, false, &request, &ended).await
    })
}

/// A job of some seconds, in a run of the default length.
#[test]
fn a_short_job_leaves_its_first_seconds() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let request = fixture.sampled(spec("web", "Direct", 30)).await?;
        has(fixture, false, &request, ".checkpoint-1.pb.gz").await?;
        let _ = fixture.exec("web", &["sh", "-c", "kill 1"], &[]).await;
        let request = fixture.ended(&request).await?;
        let target = only_target(&request)?;
        let is_early = target.object_key.contains(".checkpoint-");
        ensure!(
            target.state == TargetState::Uploaded && is_early,
            "{target:?}"
        );
        let complete = holds(&request, condition::COMPLETE)?;
        ensure!(
            complete.reason == RequestReason::Complete.to_string()
                && complete.message.contains("the profile has the first "),
            "{complete:?}"
        );
        Ok(())
    })
}

/// On a release that stores on a volume.
mod on_volume {
    use super::*;

    #[test]
    fn a_deleted_pod_leaves_its_relayed_checkpoints() -> Result<()> {
        shared_on(ON_VOLUME, async |fixture| {
            fixture
                .start(&[pods::php("web"), pods::php("stays")])
                .await?;
            let cut = fixture.apply(spec("web", "Auto", 60)).await?;
            let whole = fixture.apply(spec("stays", "Auto", 25)).await?;
            let deleted = fixture.apply(spec("stays", "Auto", 60)).await?;
            wait_for_third(fixture, true, &cut).await?;
            wait_for_third(fixture, true, &deleted).await?;
            let requests = fixture.api::<ProfileRequest>();
            let name = deleted.name_any();
            requests.delete(&name, &DeleteParams::default()).await?;
            let pods = fixture.api::<Pod>();
            pods.delete("web", &DeleteParams::default()).await?;
            let cut = fixture.ended(&cut).await?;
            check_beginning(fixture, true, &cut, &[TargetReason::PodDeleted]).await?;
            let whole = fixture.ended(&whole).await?;
            let target = only_target(&whole)?;
            ensure!(
                target.state == TargetState::Uploaded && target.reason.is_none(),
                "{target:?}"
            );
            only_needed_is_left(fixture, true, &whole).await?;
            let limit = Duration::from_secs(10);
            poll("a manifest alone is left", limit, async || {
                let keys = stored(fixture, true, &deleted).await?;
                Ok((keys.len() == 1 && keys[0].ends_with("/manifest.json")).then_some(()))
            })
            .await?;
            fixture.clear_files().await
        })
    }

    #[test]
    fn an_outliving_sampler_relays_nothing_more() -> Result<()> {
        shared_on(ON_VOLUME, async |fixture| {
            let request = outlived(fixture, true, "Relay").await?;
            // Sooner than the second clean-up.
            only_needed_is_left(fixture, true, &request).await?;
            fixture.clear_files().await
        })
    }
}
