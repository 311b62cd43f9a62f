//! The store goes away during a run, for a while or for good, or is not who it says it is.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{failed_with, holds, only_target, status};
use e2e::store::sha256;
use e2e::{Scene, alone, outage, pods, poll, release};
use k8s_openapi::api::core::v1::ConfigMap;
use phpprof_crds::{ProfileRequest, TargetReason, condition};
use serde_json::json;

/// Applies a request and stops the store while it is sampled.
async fn sampled_without_store(scene: &Scene, duration_seconds: u32) -> Result<ProfileRequest> {
    scene.start(&[pods::php("web")]).await?;
    let spec = json!({"target": {"podName": "web"}, "durationSeconds": duration_seconds});
    let request = scene.sampled(spec).await?;
    outage::stop().await?;
    Ok(request)
}

#[test]
fn a_profile_arrives_once_a_store_that_was_stopped_is_back() -> Result<()> {
    alone(async |scene| {
        let request = sampled_without_store(scene, 4).await?;
        scene.has_retried(&only_target(&request)?).await?;
        outage::start().await?;
        let request = scene.ended(&request).await?;
        holds(&request, condition::COMPLETE)?;
        let target = only_target(&request)?;
        ensure!(
            sha256(&scene.read(&target.object_key).await?) == target.sha256,
            "another object"
        );
        let keys = scene.keys().await?;
        ensure!(keys.len() == 3, "{keys:?}");
        Ok(())
    })
}

#[test]
fn a_store_that_stays_away_fails_the_request_with_a_reason_and_no_profile_is_claimed() -> Result<()>
{
    alone(async |scene| {
        let request = sampled_without_store(scene, 4).await?;
        let request = scene.ended(&request).await?;
        let target = failed_with(&request, TargetReason::UploadDeadlineExceeded)?;
        ensure!(
            target.message.contains("could not be stored in time"),
            "{target:?}"
        );
        let sampler = scene.sampler(&target).await?;
        let until: i64 = sampler.flag("--upload-until").context("no end")?.parse()?;
        let ended = status(&request).completion_time.context("not over")?;
        ensure!(
            ended.0.as_second() <= until + 5,
            "over {} s after the deadline",
            ended.0.as_second() - until
        );
        outage::start().await?;
        let keys = scene.keys().await?;
        ensure!(keys.is_empty(), "{keys:?}");
        Ok(())
    })
}

#[test]
fn a_store_whose_certificate_the_authority_did_not_sign_is_refused_with_that_reason() -> Result<()>
{
    alone(async |scene| {
        scene.start(&[pods::php("web")]).await?;
        // An authority of the cluster, but not the store's.
        let maps = scene.api::<ConfigMap>();
        let map = poll(
            "the namespace has its authority",
            Duration::from_secs(30),
            async || Ok(maps.get_opt("kube-root-ca.crt").await?),
        );
        let other = map
            .await?
            .data
            .and_then(|mut data| data.remove("ca.crt"))
            .context("no ca.crt")?;
        release::install(&[&format!("store.caBundle={other}")]).await?;
        let request = scene
            .apply(
                json!({"target": {"podName": "web"}, "durationSeconds": 1, "uploadMode": "Direct"}),
            )
            .await?;
        let target = failed_with(
            &scene.ended(&request).await?,
            TargetReason::CertificateUntrusted,
        )?;
        ensure!(
            target.message.contains("Set store.caBundle in the chart"),
            "{target:?}"
        );
        let keys = scene.keys().await?;
        ensure!(keys.is_empty(), "{keys:?}");
        Ok(())
    })
}
