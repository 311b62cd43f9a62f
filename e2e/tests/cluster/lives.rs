//! What Kubernetes does to a pod during a run: it resizes a container in place, and ends a Job,
//! which does not wait for samplers.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{holds, only_target, status};
use e2e::samples::samples_of;
use e2e::{ENABLED, Fixture, exclusive, kubectl, outage, pods, poll, say, shared};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::PostParams;
use phpprof_crds::{ProfileRequest, TargetReason, TargetState, TargetStatus, condition};
use phpprof_profile::{Profile, total};
use serde_json::{Value, json};

/// Its time, and that of the first checkpoint.
const RUN: Duration = Duration::from_secs(14);
const FIRST: Duration = Duration::from_secs(5);
/// The limits of the container before and after.
const LIMITS: [&str; 2] = ["600m", "300m"];

fn spec(target: Value) -> Value {
    json!({"target": target, "durationSeconds": RUN.as_secs(), "uploadMode": "Direct"})
}

/// Waits for a request's first checkpoint.
async fn checkpoint(fixture: &Fixture, request: &ProfileRequest) -> Result<Profile> {
    let uid = request.uid().context("no uid")?;
    let limit = Duration::from_secs(30);
    let key = poll("a checkpoint is stored", limit, async || {
        let keys = fixture.keys().await?;
        let is_first = |key: &String| key.contains(&uid) && key.contains(".checkpoint-1.");
        Ok(keys.into_iter().find(is_first))
    });
    fixture.profile(&key.await?).await
}

async fn fpm(fixture: &Fixture) -> Result<ContainerStatus> {
    let pod: Pod = fixture.api().get("web").await?;
    let statuses = pod.status.and_then(|it| it.container_statuses);
    let mut statuses = statuses.into_iter().flatten();
    statuses.find(|it| it.name == "fpm").context("no status")
}

#[test]
fn a_container_resized_in_place_is_profiled_throughout() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let resources = |limit| json!({"requests": {"cpu": "10m"}, "limits": {"cpu": limit}});
        let mut pod = pods::busy_php("web");
        pod["spec"]["containers"][0]["resources"] = resources(LIMITS[0]);
        fixture.start(&[pod]).await?;
        let request = fixture
            .sampled(spec(json!({"podName": "web", "containerName": "fpm"})))
            .await?;
        let before = total(&checkpoint(fixture, &request).await?, "samples");
        let of_fpm = json!({"name": "fpm", "resources": resources(LIMITS[1])});
        let patch = json!({"spec": {"containers": [of_fpm]}}).to_string();
        let resize = ["patch", "pod", "web", "--subresource=resize", "-p", &patch];
        kubectl(&[&["--namespace", &fixture.namespace], &resize[..]].concat()).await?;
        poll(
            "the container has its new limit",
            Duration::from_secs(20),
            async || {
                let limits = fpm(fixture).await?.resources.and_then(|it| it.limits);
                let cpu = limits.and_then(|it| it.get("cpu").cloned());
                Ok(cpu.is_some_and(|it| it.0 == LIMITS[1]).then_some(()))
            },
        )
        .await?;
        let now = fixture.until(&request, "is there", |_| true).await?;
        ensure!(status(&now).completion_time.is_none(), "resized too late");
        let request = fixture.ended(&request).await?;
        holds(&request, condition::COMPLETE)?;
        let target = only_target(&request)?;
        ensure!(
            target.reason.is_none() && target.message.is_empty(),
            "{target:?}"
        );
        ensure!(fpm(fixture).await?.restart_count == 0, "it was restarted");
        let profile = fixture.profile(&target.object_key).await?;
        let (sampled, samples) = (
            Duration::from_nanos(u64::try_from(profile.duration_nanos)?),
            total(&profile, "samples"),
        );
        say(&format!(
            "{before} samples in the first {FIRST:?} before a resize, {samples} in {sampled:?}"
        ));
        ensure!(
            sampled >= RUN - Duration::from_millis(500),
            "{sampled:?} of {RUN:?}"
        );
        // The load is the same all the time: 14 s have nearly three times as many as 5 s.
        ensure!(
            samples * 2 > before * 3,
            "{samples} samples, {before} of them in the first {FIRST:?}"
        );
        Ok(())
    })
}

/// A Job whose PHP ends as soon as the test says so.
async fn start_job(fixture: &Fixture, name: &str, shares_processes: bool) -> Result<()> {
    // A fifth of a core: the other tests need the rest.
    let code = "function work() { return md5(str_repeat('x', 500000)); } while (!file_exists('/tmp/end')) { work(); usleep(4000); clearstatcache(); }";
    let container = json!({"name": "fpm", "image": pods::image("demo"), "command": ["/usr/bin/php8.2", "-r", code]});
    let pod = json!({
        "restartPolicy": "Never", "shareProcessNamespace": shares_processes, "containers": [container],
    });
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
    let job =
        json!({"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}});
    let jobs = fixture.api::<Job>();
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?)
        .await?;
    poll("the Job's pod runs", Duration::from_secs(30), async || {
        let status = jobs.get(name).await?.status.unwrap_or_default();
        Ok((status.ready == Some(1)).then_some(()))
    })
    .await
}

/// A request of a Job, which has its first checkpoint.
async fn sampled(fixture: &Fixture, name: &str) -> Result<ProfileRequest> {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name});
    let mut spec = spec(json!({"workloadRef": job}));
    spec["durationSeconds"] = json!(60);
    let request = fixture.sampled(spec).await?;
    checkpoint(fixture, &request).await?;
    Ok(request)
}

async fn end_php(fixture: &Fixture, request: &ProfileRequest) -> Result<()> {
    let pod = only_target(request)?.pod_name;
    let end = fixture.exec(&pod, &["touch", "/tmp/end"], &[]);
    end.await.map(drop)
}

/// Checks that a Job completes, and that the request has what was stored and says why it is not
/// more.
async fn check_job(
    fixture: &Fixture,
    name: &str,
    request: &ProfileRequest,
    why: &str,
) -> Result<TargetStatus> {
    let jobs = fixture.api::<Job>();
    poll("the Job is complete", Duration::from_secs(40), async || {
        let status = jobs.get(name).await?.status.unwrap_or_default();
        Ok(status.completion_time.map(drop))
    })
    .await?;
    let request = fixture.ended(request).await?;
    let complete = holds(&request, condition::COMPLETE)?;
    let target = only_target(&request)?;
    ensure!(
        target.state == TargetState::Uploaded && target.reason == Some(TargetReason::TargetExited),
        "{target:?}"
    );
    let first = "the profile has the first ";
    ensure!(
        target.message.starts_with(first) && target.message.ends_with(why),
        "{target:?}"
    );
    ensure!(complete.message.contains(&target.message), "{complete:?}");
    let profile = fixture.profile(&target.object_key).await?;
    let samples = samples_of(&profile, "work");
    ensure!(
        samples > 0 && target.samples == Some(total(&profile, "samples")),
        "{target:?}"
    );
    say(&format!(
        "Job {name}: {samples} samples; {}",
        target.message
    ));
    Ok(target)
}

#[test]
fn a_job_completes_while_its_sampler_runs() -> Result<()> {
    shared(ENABLED, async |fixture| {
        start_job(fixture, "job", false).await?;
        let request = sampled(fixture, "job").await?;
        end_php(fixture, &request).await?;
        let killed =
            "container fpm ended during the run, and the kernel killed the sampler with it";
        let target = check_job(fixture, "job", &request, killed).await?;
        ensure!(target.object_key.contains(".checkpoint-"), "{target:?}");
        Ok(())
    })
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    /// Where a pod's containers share their processes, PHP is not PID 1, so its sampler outlives
    /// it.
    #[test]
    fn a_sampler_outliving_its_job_stores_everything() -> Result<()> {
        exclusive(async |fixture| {
            start_job(fixture, "job", true).await?;
            let request = sampled(fixture, "job").await?;
            outage::stop().await?;
            end_php(fixture, &request).await?;
            let target = only_target(&request)?;
            fixture.wait_for_retry(&target).await?;
            // The kubelet ends the pod's sampler by SIGTERM within a second or two.
            tokio::time::sleep(Duration::from_secs(5)).await;
            ensure!(
                fixture.sampler(&target).await?.receipt().is_err(),
                "the sampler has ended"
            );
            outage::start().await?;
            let ended = "PHP ended, or its pod was stopped, before the time was over";
            let target = check_job(fixture, "job", &request, ended).await?;
            ensure!(!target.object_key.contains(".checkpoint-"), "{target:?}");
            Ok(())
        })
    }
}
