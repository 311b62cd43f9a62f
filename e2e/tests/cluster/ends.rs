//! Requests that end early, start late, upload over the relay instead of directly, or are deleted
//! when they expire.

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use e2e::requests::{failed_with, holds, only_target};
use e2e::{ENABLED, Fixture, pods, poll, promised, shared};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use phpprof_crds::{
    ProfileRequest, RequestReason, TargetReason, TargetStatus, UploadRoute, condition,
};
use serde_json::json;

const HEARD: Duration = Duration::from_secs(5);
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

fn since(begin: SystemTime) -> Result<Duration> {
    Ok(SystemTime::now().duration_since(begin)?)
}

#[test]
fn cancel_completes_within_5_seconds_with_the_samples() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let requests = sampled_on_each_way(fixture).await?;
        for (request, way) in requests.iter().zip(WAYS) {
            let begin = SystemTime::now();
            fixture.change(request, json!({"cancel": true})).await?;
            let request = fixture.ended(request).await?;
            promised(&format!("cancelling over {way}"), HEARD, since(begin)?)?;
            let complete = holds(&request, condition::COMPLETE)?;
            ensure!(
                complete.reason == RequestReason::Cancelled.to_string(),
                "{complete:?}"
            );
            let target = only_target(&request)?;
            ensure!(target.samples > Some(0), "{target:?}");
            let profile = fixture.profile(&target.object_key).await?;
            let sampled = Duration::from_nanos(u64::try_from(profile.duration_nanos)?);
            ensure!(
                sampled > Duration::from_secs(1) && sampled < Duration::from_secs(30),
                "{sampled:?} of 60 s are in the profile"
            );
        }
        Ok(())
    })
}

/// Waits until a sampler has ended, and returns its receipt.
async fn receipt(fixture: &Fixture, target: &TargetStatus) -> Result<String> {
    let limit = Duration::from_secs(30);
    poll("the sampler has ended", limit, async || {
        Ok(fixture.sampler(target).await?.receipt().ok())
    })
    .await
}

#[test]
fn delete_stops_samplers_within_5_seconds() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let requests = sampled_on_each_way(fixture).await?;
        for (request, way) in requests.iter().zip(WAYS) {
            let begin = SystemTime::now();
            let api = fixture.api::<ProfileRequest>();
            let name = request.name_any();
            api.delete(&name, &DeleteParams::default()).await?;
            ensure!(api.get_opt(&name).await?.is_none(), "{name} is still there");
            let receipt = receipt(fixture, &only_target(request)?).await?;
            promised(&format!("deleting over {way}"), HEARD, since(begin)?)?;
            ensure!(receipt.contains("Cancelled"), "{receipt}");
        }
        let limit = Duration::from_secs(10);
        poll("both requests are listed", limit, async || {
            let keys = fixture.keys().await?;
            let manifests = keys.iter().filter(|key| key.ends_with("/manifest.json"));
            Ok((manifests.count() == WAYS.len()).then_some(()))
        })
        .await?;
        no_profile_is_left(fixture).await
    })
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
fn a_signalled_sampler_stores_what_it_has() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let spec = json!({"target": {"podName": "web"}, "durationSeconds": 60});
        let request = fixture.sampled(spec).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        // The kubelet sends the same signal when it stops the pod.
        let end = r#"for comm in /proc/[0-9]*/comm; do read name <$comm; [ "$name" != phpprof ] || kill -TERM $(echo $comm | tr -dc 0-9); done"#;
        fixture.exec("web", &["sh", "-c", end], &[]).await?;
        let request = fixture.ended(&request).await?;
        let complete = holds(&request, condition::COMPLETE)?;
        let target = only_target(&request)?;
        ensure!(
            target.reason == Some(TargetReason::TargetExited) && target.samples > Some(0),
            "{target:?}"
        );
        ensure!(
            target.message.contains("s of 60: ") && complete.message.contains(&target.message),
            "{complete:?}"
        );
        Ok(())
    })
}

#[test]
fn a_pod_without_the_store_uses_the_relay() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let store = e2e::outage::addresses().await?;
        fixture
            .start(&[pods::cut_off_from(pods::php("web"), &store)])
            .await?;
        let request = fixture
            .completed(json!({"target": {"podName": "web"}, "durationSeconds": 1}))
            .await?;
        let target = only_target(&request)?;
        ensure!(target.upload_mode == Some(UploadRoute::Relay), "{target:?}");
        let receipt = fixture.sampler(&target).await?.receipt()?;
        ensure!(receipt.contains("Relayed"), "{receipt}");
        let bytes = fixture.read(&target.object_key).await?;
        ensure!(
            e2e::store::sha256(&bytes) == target.sha256,
            "another object"
        );
        // A request with direct upload only fails, which proves that the pod could not reach the
        // store.
        let spec =
            json!({"target": {"podName": "web"}, "durationSeconds": 1, "uploadMode": "Direct"});
        let request = fixture.ended(&fixture.apply(spec).await?).await?;
        failed_with(&request, TargetReason::UploadDeadlineExceeded).map(drop)
    })
}
