//! From requests to correct profiles, in common kinds of pods.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{Sampler, folder, only_target, status};
use e2e::samples::{labels, samples_of};
use e2e::store::sha256;
use e2e::{ENABLED, Fixture, RESTRICTED, application, pods, promised, release, say, shared};
use kube::ResourceExt as _;
use phpprof_crds::{ProfileRequest, TargetState, TargetStatus, condition};
use phpprof_profile::{Profile, total};
use serde_json::{Value, json};

#[test]
fn default_php_fpm_is_profiled_without_fields() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::busy_php("web")]).await?;
        let request = fixture
            .completed(json!({"target": {"podName": "web"}, "durationSeconds": 3}))
            .await?;
        let sampler = check_profiles(fixture, &request, &["web"]).await?;
        let context = context(&sampler);
        ensure!(context["runAsUser"] == 0, "{context}");
        ensure!(
            context["capabilities"] == json!({"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
            "{context}"
        );
        check_manifest(fixture, &request).await
    })
}

#[test]
fn restricted_php_fpm_is_profiled_without_capabilities() -> Result<()> {
    shared(RESTRICTED, async |fixture| {
        fixture
            .start(&[pods::restricted(pods::busy_php("web"))])
            .await?;
        let request = fixture
            .completed(json!({"target": {"podName": "web"}, "durationSeconds": 3}))
            .await?;
        let sampler = check_profiles(fixture, &request, &["web"]).await?;
        let context = context(&sampler);
        ensure!(
            context["runAsUser"] == 1000 && context["runAsGroup"] == 1000,
            "{context}"
        );
        ensure!(
            context["capabilities"] == json!({"drop": ["ALL"]}),
            "{context}"
        );
        Ok(())
    })
}

#[test]
fn pods_are_merged_and_told_apart() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.deploy("web", 3, pods::busy_php("web")).await?;
        let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
        let target = json!({"workloadRef": workload, "containerName": "fpm", "maxPods": 2});
        let request = fixture
            .completed(json!({"target": target, "durationSeconds": 3}))
            .await?;
        let status = status(&request);
        ensure!(
            (status.matched, status.selected, status.succeeded) == (3, 2, 2),
            "{status:?}"
        );
        let names: Vec<&str> = status
            .targets
            .iter()
            .map(|target| target.pod_name.as_str())
            .collect();
        check_profiles(fixture, &request, &names).await?;
        Ok(())
    })
}

#[test]
fn ttl_deletes_the_request_and_keeps_its_profile() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::busy_php("web")]).await?;
        let request = fixture
            .completed(json!({
                "target": {"podName": "web"}, "durationSeconds": 1, "ttlSecondsAfterFinished": 2,
            }))
            .await?;
        let completed = status(&request)
            .completion_time
            .context("no completion time")?;
        let requests = fixture.api::<ProfileRequest>();
        e2e::poll(
            "the request is deleted",
            Duration::from_secs(30),
            async || {
                Ok(requests
                    .get_opt(&request.name_any())
                    .await?
                    .is_none()
                    .then_some(()))
            },
        )
        .await?;
        let took = Duration::try_from(jiff::Timestamp::now().duration_since(completed.0))?;
        ensure!(
            took >= Duration::from_secs(2),
            "deleted {took:?} after its end"
        );
        promised(
            "deletion after a time to live of 2 s",
            Duration::from_secs(4),
            took,
        )?;
        let keys = fixture.keys().await?;
        ensure!(
            keys.iter().any(|key| key.ends_with("/merged.pb.gz")),
            "{keys:?}"
        );
        Ok(())
    })
}

fn context(sampler: &Sampler) -> Value {
    serde_json::to_value(&sampler.container.security_context).unwrap_or_default()
}

/// Compares a complete request's status with its samplers' receipts and the store. Returns the last
/// sampler.
async fn check_profiles(
    fixture: &Fixture,
    request: &ProfileRequest,
    pods: &[&str],
) -> Result<Sampler> {
    let status = status(request);
    e2e::requests::holds(request, condition::COMPLETE)?;
    ensure!(status.targets.len() == pods.len(), "{:?}", status.targets);
    let mut samples = 0;
    let mut last = None;
    for target in &status.targets {
        ensure!(pods.contains(&target.pod_name.as_str()), "{target:?}");
        let sampler = fixture.sampler(target).await?;
        check_target(fixture, target, &sampler).await?;
        samples += target.samples.unwrap_or_default();
        last = Some(sampler);
    }
    let claimed = status.profile.context("no merged profile")?;
    let bytes = fixture.read(fixture.store.key_of(&claimed.url)?).await?;
    ensure!(bytes.len() as i64 == claimed.size_bytes, "{claimed:?}");
    let merged = fixture.profile(fixture.store.key_of(&claimed.url)?).await?;
    ensure!(total(&merged, "samples") == claimed.samples, "{claimed:?}");
    ensure!(
        claimed.samples == samples,
        "{claimed:?} of {samples} samples"
    );
    check_stacks(&merged)?;
    ensure!(
        labels(&merged, "pod")? == pods.iter().map(|pod| (*pod).to_owned()).collect(),
        "pods"
    );
    ensure!(
        labels(&merged, "namespace")? == [fixture.namespace.clone()].into(),
        "namespaces"
    );
    ensure!(
        labels(&merged, "container")? == ["fpm".to_owned()].into(),
        "containers"
    );
    // The store has each pod's profile, the merged one and the manifest, and nothing else.
    let keys = fixture.keys().await?;
    ensure!(keys.len() == pods.len() + 2, "{keys:?}");
    last.context("no sampler")
}

/// Checks for one pod that the receipt, the status and the object agree.
async fn check_target(fixture: &Fixture, target: &TargetStatus, sampler: &Sampler) -> Result<()> {
    ensure!(target.state == TargetState::Uploaded, "{target:?}");
    let receipt = sampler.receipt()?;
    ensure!(receipt.len() <= 120, "{receipt}");
    let bytes = fixture.read(&target.object_key).await?;
    let profile = fixture.profile(&target.object_key).await?;
    let expected = json!({
        "reason": "Uploaded", "samples": total(&profile, "samples"), "size": bytes.len(), "sha256": sha256(&bytes),
    });
    ensure!(
        serde_json::from_str::<Value>(&receipt)? == expected,
        "{receipt} is not {expected}"
    );
    let claimed = json!({
        "reason": "Uploaded", "samples": target.samples, "size": target.size_bytes, "sha256": target.sha256,
    });
    ensure!(claimed == expected, "{claimed} is not {expected}");
    ensure!(target.samples > Some(0), "no samples");
    let php = target.php.clone().unwrap_or_default();
    ensure!(
        php.version.starts_with("8.2.") && php.sapi == "fpm-fcgi",
        "{php:?}"
    );
    let quality = target.quality.clone().unwrap_or_default();
    ensure!(
        quality.denied == 0 && quality.due == quality.taken + quality.late,
        "{quality:?}"
    );
    let (rate, asked) = (target.effective_samples_per_second, 99.0);
    ensure!(
        rate.is_some_and(|rate| rate > 0.0 && rate <= asked),
        "{rate:?} samples a second"
    );
    Ok(())
}

/// Checks that all stacks are the application's, not even those of the client in the container next
/// to it, and that few are unstable.
fn check_stacks(profile: &Profile) -> Result<()> {
    application::check_stacks(profile, "")?;
    let samples = total(profile, "samples");
    let (unstable, checkout) = (
        samples_of(profile, application::UNSTABLE),
        samples_of(profile, application::LARGEST),
    );
    say(&format!("{unstable} of {samples} samples are unstable"));
    ensure!(
        unstable * 5 <= samples,
        "{unstable} of {samples} samples are unstable"
    );
    ensure!(
        checkout * 3 > samples,
        "the path of 60 % has {checkout} of {samples} samples"
    );
    Ok(())
}

async fn check_manifest(fixture: &Fixture, request: &ProfileRequest) -> Result<()> {
    let (status, target) = (status(request), only_target(request)?);
    let claimed = status.profile.context("no merged profile")?;
    let merged = fixture.store.key_of(&claimed.url)?;
    let folder = format!("{}/{}/", release::PREFIX, folder(request)?);
    ensure!(
        merged == folder.clone() + "merged.pb.gz",
        "{merged} is not in {folder}"
    );
    ensure!(target.object_key.starts_with(&folder), "{target:?}");
    let manifest: Value =
        serde_json::from_slice(&fixture.read(&(folder + "manifest.json")).await?)?;
    let expected =
        json!({"objectKey": merged, "samples": claimed.samples, "sizeBytes": claimed.size_bytes});
    ensure!(manifest["merged"] == expected, "{manifest}");
    ensure!(manifest["namespace"] == fixture.namespace, "{manifest}");
    ensure!(manifest["name"] == request.name_any(), "{manifest}");
    ensure!(manifest["expiresAt"].is_string(), "{manifest}");
    ensure!(
        manifest["targets"] == json!([target]),
        "{} is not {}",
        manifest["targets"],
        json!([target])
    );
    Ok(())
}
