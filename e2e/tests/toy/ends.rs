//! Requests that wait, or are deleted while no operator runs, and profiles that expire.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{folder, holds, only_target, status};
use e2e::{ENABLED, Fixture, exclusive, pods, poll, release, shared};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use phpprof_crds::{ProfileRequest, RequestReason, TargetStatus, condition};
use serde_json::{Value, json};

/// The upload modes, each of which has its own way to stop a sampler.
const WAYS: [&str; 2] = ["Direct", "Relay"];

/// One request for each upload mode, whose samplers have run for a moment.
async fn sampled_on_each_way(fixture: &Fixture) -> Result<Vec<ProfileRequest>> {
    fixture.start(&[pods::php("web")]).await?;
    let mut requests = Vec::new();
    for way in WAYS {
        let spec = json!({"target": {"podName": "web"}, "durationSeconds": 60, "uploadMode": way});
        requests.push(fixture.sampled(spec).await?);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(requests)
}

/// Waits until a sampler has ended, and returns its receipt.
async fn receipt(fixture: &Fixture, target: &TargetStatus) -> Result<String> {
    let limit = Duration::from_secs(30);
    poll("the sampler has ended", limit, async || {
        Ok(fixture.sampler(target).await?.receipt().ok())
    })
    .await
}

/// Checks that the sampler's objects are deleted. If it stored a checkpoint just before the stop,
/// the manifest names that, and it is deleted too.
async fn no_profile_is_left(fixture: &Fixture) -> Result<()> {
    let keys = fixture.keys().await?;
    let is_left = |key: &String| key.ends_with(".pb.gz") && !key.contains(".checkpoint-");
    ensure!(!keys.iter().any(is_left), "{keys:?}");
    Ok(())
}

#[test]
fn a_suspended_request_adds_no_sampler() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let request = fixture
            .apply(json!({"target": {"podName": "web"}, "durationSeconds": 1, "suspend": true}))
            .await?;
        let suspended = |now: &ProfileRequest| {
            let conditions = status(now).conditions;
            conditions
                .iter()
                .any(|condition| condition.reason == RequestReason::Suspended.to_string())
        };
        fixture.until(&request, "is suspended", suspended).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pod: Pod = fixture.api().get("web").await?;
        ensure!(pods::ephemeral_containers(&pod) == 0, "a sampler was added");
        fixture.change(&request, json!({"suspend": false})).await?;
        let request = fixture.ended(&request).await?;
        holds(&request, condition::COMPLETE).map(drop)
    })
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    fn the_next_operator_handles_a_deleted_request() -> Result<()> {
        exclusive(async |fixture| {
            let requests = sampled_on_each_way(fixture).await?;
            release::scale(0).await?;
            let limit = Duration::from_secs(30);
            poll("the operator has stopped", limit, async || {
                let operator = release::operator(&fixture.client).await?;
                Ok(operator.is_none().then_some(()))
            })
            .await?;
            for request in &requests {
                let api = fixture.api::<ProfileRequest>();
                api.delete(&request.name_any(), &DeleteParams::default())
                    .await?;
            }
            release::scale(1).await?;
            for request in &requests {
                let receipt = receipt(fixture, &only_target(request)?).await?;
                ensure!(receipt.contains("Cancelled"), "{receipt}");
            }
            poll(
                "both requests are listed, and have no record",
                limit,
                async || {
                    let keys = fixture.keys().await?;
                    let manifests = keys.iter().filter(|key| key.ends_with("/manifest.json"));
                    let records = keys.iter().filter(|key| key.ends_with("/accepted.json"));
                    Ok((manifests.count() == WAYS.len() && records.count() == 0).then_some(()))
                },
            )
            .await?;
            no_profile_is_left(fixture).await
        })
    }

    #[test]
    fn an_expired_manifest_deletes_its_objects_only() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            let spec = json!({"target": {"podName": "web"}, "durationSeconds": 1});
            let (over, stays) = (
                fixture.completed(spec.clone()).await?,
                fixture.completed(spec).await?,
            );
            let folder = format!("{}/{}", release::PREFIX, folder(&over)?);
            let manifest_key = format!("{folder}/manifest.json");
            let mut manifest: Value = serde_json::from_slice(&fixture.read(&manifest_key).await?)?;
            let past = Timestamp::now().checked_sub(SignedDuration::from_secs(1))?;
            manifest["expiresAt"] = json!(past);
            // An object that the manifest names in another folder is not the request's own.
            let foreign = only_target(&stays)?.object_key;
            let mut named = manifest["targets"][0].clone();
            named["objectKey"] = json!(foreign);
            let targets = manifest["targets"].as_array_mut().context("no targets")?;
            targets.push(named);
            let unnamed = format!("{folder}/unnamed");
            fixture.write(&unnamed, b"x", 1).await?;
            let manifest = manifest.to_string();
            fixture.write(&manifest_key, manifest.as_bytes(), 1).await?;
            // The sweep runs every hour, and when an operator starts.
            release::renew().await?;
            let limit = Duration::from_secs(30);
            poll("the manifest is gone", limit, async || {
                Ok((!fixture.keys().await?.contains(&manifest_key)).then_some(()))
            })
            .await?;
            let keys = fixture.keys().await?;
            let (gone, kept): (Vec<String>, Vec<String>) =
                keys.into_iter().partition(|key| key.starts_with(&folder));
            ensure!(gone == [unnamed], "{gone:?}");
            ensure!(kept.len() == 3 && kept.contains(&foreign), "{kept:?}");
            Ok(())
        })
    }
}
