//! Long runs that are cut off: what their samplers had stored until then is the profile.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::release::ON_VOLUME;
use e2e::requests::{holds, only_target, status};
use e2e::store::sha256;
use e2e::{ENABLED, Scene, calm, calm_on, pods, poll, say};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use phpprof_crds::{ProfileRequest, Reason, TargetReason, TargetState, condition};
use phpprof_profile::{Limits, decode, total};
use serde_json::{Value, json};

const SECOND: &str = ".checkpoint-2.pb.gz";

fn spec(pod: &str, way: &str, duration_seconds: u32) -> Value {
    json!({"target": {"podName": pod}, "uploadMode": way, "durationSeconds": duration_seconds})
}

/// What the store has of a request.
async fn stored(scene: &Scene, on_volume: bool, request: &ProfileRequest) -> Result<Vec<String>> {
    let keys = match on_volume {
        true => scene.files().await?,
        false => scene.keys().await?,
    };
    let uid = request.uid().context("no uid")?;
    Ok(keys.into_iter().filter(|key| key.contains(&uid)).collect())
}

async fn has_second(scene: &Scene, on_volume: bool, request: &ProfileRequest) -> Result<()> {
    let limit = Duration::from_secs(60);
    poll("two checkpoints are stored", limit, async || {
        let keys = stored(scene, on_volume, request).await?;
        Ok(keys.iter().any(|key| key.ends_with(SECOND)).then_some(()))
    })
    .await
}

/// The request is complete with the first 20 of its 60 seconds, and says why.
async fn check_beginning(
    scene: &Scene,
    on_volume: bool,
    request: &ProfileRequest,
    reasons: &[TargetReason],
) -> Result<()> {
    let complete = holds(request, condition::COMPLETE)?;
    ensure!(
        complete.reason == Reason::Complete.to_string(),
        "{complete:?}"
    );
    let target = only_target(request)?;
    ensure!(
        target.state == TargetState::Uploaded && target.object_key.ends_with(SECOND),
        "{target:?}"
    );
    let reason = target.reason.context("no reason")?;
    ensure!(reasons.contains(&reason), "{target:?}");
    let said = "the profile has the first 20 s of 60";
    ensure!(
        target.message.starts_with(said) && complete.message.contains(said),
        "{complete:?}"
    );
    let links = scene.links(request).await?;
    let bytes = scene.get(&links["pod/web/fpm"]).await?.body;
    ensure!(sha256(&bytes) == target.sha256, "another profile");
    let profile = decode(&bytes, &Limits::default())?;
    let samples = total(&profile, "samples");
    ensure!(
        samples > 0 && target.samples == Some(samples),
        "{samples} samples: {target:?}"
    );
    let merged = status(request).profile.context("no merged profile")?;
    ensure!(merged.samples == samples, "{merged:?}");
    let line = format!("top {}", request.name_any());
    let top = scene.administrator()?.says(&line).await?.well()?;
    ensure!(top.contains("Demo\\"), "{top}");
    only_needed_is_left(scene, on_volume, request).await?;
    say(&format!(
        "{samples} samples of a run that was cut off: {}",
        target.message
    ));
    Ok(())
}

/// The pod's profile, the merged one and the manifest: no checkpoint beside them.
async fn only_needed_is_left(
    scene: &Scene,
    on_volume: bool,
    request: &ProfileRequest,
) -> Result<()> {
    let target = only_target(request)?;
    let limit = Duration::from_secs(20);
    poll("other checkpoints are deleted", limit, async || {
        let keys = stored(scene, on_volume, request).await?;
        ensure!(keys.contains(&target.object_key), "{keys:?}");
        Ok((keys.len() == 3).then_some(()))
    })
    .await
}

#[test]
fn a_deleted_pod_leaves_what_it_had_brought_over_the_relay_and_other_runs_no_checkpoint()
-> Result<()> {
    calm_on(ON_VOLUME, async |scene| {
        scene.start(&[pods::php("web"), pods::php("stays")]).await?;
        let cut = scene.apply(spec("web", "Auto", 60)).await?;
        let whole = scene.apply(spec("stays", "Auto", 25)).await?;
        let deleted = scene.apply(spec("stays", "Auto", 60)).await?;
        has_second(scene, true, &cut).await?;
        has_second(scene, true, &deleted).await?;
        let requests = scene.api::<ProfileRequest>();
        let name = deleted.name_any();
        requests.delete(&name, &DeleteParams::default()).await?;
        let pods = scene.api::<Pod>();
        pods.delete("web", &DeleteParams::default()).await?;
        let cut = scene.ended(&cut).await?;
        check_beginning(scene, true, &cut, &[TargetReason::PodDeleted]).await?;
        let whole = scene.ended(&whole).await?;
        let target = only_target(&whole)?;
        ensure!(
            target.state == TargetState::Uploaded && target.reason.is_none(),
            "{target:?}"
        );
        only_needed_is_left(scene, true, &whole).await?;
        let limit = Duration::from_secs(10);
        poll("a manifest alone is left", limit, async || {
            let keys = stored(scene, true, &deleted).await?;
            Ok((keys.len() == 1 && keys[0].ends_with("/manifest.json")).then_some(()))
        })
        .await?;
        scene.clear_files().await
    })
}

#[test]
fn a_container_that_ends_leaves_what_its_sampler_had_stored_directly() -> Result<()> {
    calm(ENABLED, async |scene| {
        scene.start(&[pods::php("web")]).await?;
        let request = scene.sampled(spec("web", "Direct", 60)).await?;
        has_second(scene, false, &request).await?;
        let sampler = scene.sampler(&only_target(&request)?).await?;
        let grants = sampler.variable("PHPPROF_CHECKPOINTS");
        say(&format!(
            "the grants of 5 checkpoints take {} bytes of the pod",
            grants.context("no checkpoints")?.len()
        ));
        // The end of PID 1 is the end of this command too.
        let _ = scene.exec("web", &["sh", "-c", "kill 1"], &[]).await;
        let request = scene.ended(&request).await?;
        let ended = [TargetReason::TargetExited, TargetReason::TargetRestarted];
        check_beginning(scene, false, &request, &ended).await
    })
}
