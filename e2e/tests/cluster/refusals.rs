//! Requests that fail as soon as a sampler starts.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::requests::{WORKLOADS, failed_with, holds, status};
use e2e::{ENABLED, Fixture, NOT_ENABLED, pods, poll, promised, release, shared};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use phpprof_crds::{RequestReason, TargetReason, condition};
use serde_json::{Value, json};

/// A request that the API server refuses, with its message.
async fn refused_by_api_server(fixture: &Fixture, spec: Value, message: &str) -> Result<()> {
    match fixture.apply(spec.clone()).await {
        Ok(_) => bail!("{spec} was not refused"),
        Err(error) => {
            ensure!(format!("{error:#}").contains(message), "{spec}: {error:#}");
            Ok(())
        }
    }
}

/// A request that the operator refuses, with its message.
async fn refused_by_operator(
    fixture: &Fixture,
    spec: Value,
    reason: RequestReason,
    message: &str,
) -> Result<()> {
    let request = fixture.ended(&fixture.apply(spec.clone()).await?).await?;
    let failed = holds(&request, condition::FAILED)?;
    ensure!(failed.reason == reason.to_string(), "{spec}: {failed:?}");
    ensure!(failed.message.contains(message), "{spec}: {failed:?}");
    let status = status(&request);
    ensure!(
        status.targets.is_empty() && status.start_time.is_none() && status.profile.is_none(),
        "{status:?}"
    );
    Ok(())
}

async fn check_nothing_started(fixture: &Fixture, pod: &str) -> Result<()> {
    let pod: Pod = fixture.api().get(pod).await?;
    ensure!(
        pods::ephemeral_containers(&pod) == 0,
        "a container was added"
    );
    Ok(())
}

#[test]
fn what_cannot_be_done_is_refused_with_a_clear_message_and_starts_nothing() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::without_php("web")]).await?;
        let web = json!({"podName": "web"});
        let two = json!({"podName": "web", "selector": {"matchLabels": {"app": "web"}}});
        let selector = json!({"selector": {"matchLabels": {"app": "nobody"}}});
        let container = json!({"podName": "web", "containerName": "nginx"});
        let no_such_workload = WORKLOADS.map(async |(group, kind)| {
            let workload = json!({"apiVersion": group, "kind": kind, "name": "nobody"});
            let spec = json!({"target": {"workloadRef": workload}});
            let message = format!("{kind} nobody does not exist");
            refused_by_operator(fixture, spec, RequestReason::WorkloadNotFound, &message).await
        });
        let range = "durationSeconds must be from 1 to 3600";
        let limit = format!(
            "the administrator allows at most {}",
            release::DURATION_LIMIT
        );
        tokio::try_join!(
            refused_by_api_server(fixture, json!({"target": web, "durationSeconds": 0}), range),
            refused_by_api_server(
                fixture,
                json!({"target": web, "durationSeconds": 1_000_000}),
                range
            ),
            refused_by_api_server(
                fixture,
                json!({"target": two}),
                "target needs exactly one of podName, selector and workloadRef"
            ),
            refused_by_operator(
                fixture,
                json!({"target": selector}),
                RequestReason::NoPodsMatched,
                "matches app=nobody"
            ),
            refused_by_operator(
                fixture,
                json!({"target": {"podName": "nobody"}}),
                RequestReason::NoPodsMatched,
                "nobody"
            ),
            try_join_all(no_such_workload),
            refused_by_operator(
                fixture,
                json!({"target": container}),
                RequestReason::ContainerNotFound,
                "no ready pod has a running container nginx; pod web has fpm"
            ),
            refused_by_operator(
                fixture,
                json!({"target": web, "durationSeconds": release::DURATION_LIMIT + 1}),
                RequestReason::DurationOverLimit,
                &limit,
            ),
        )?;
        check_nothing_started(fixture, "web").await
    })
}

#[test]
fn a_namespace_that_has_not_opted_in_is_refused() -> Result<()> {
    shared(NOT_ENABLED, async |fixture| {
        fixture.start(&[pods::without_php("web")]).await?;
        let command = format!(
            "kubectl label namespace {} phpprof.dev/profiling=enabled",
            fixture.namespace
        );
        let spec = json!({"target": {"podName": "web"}});
        refused_by_operator(fixture, spec, RequestReason::NamespaceNotEnabled, &command).await?;
        check_nothing_started(fixture, "web").await
    })
}

#[test]
fn a_pod_without_php_and_an_unknown_version_fail_within_3_seconds_and_leave_no_profile()
-> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture
            .start(&[pods::without_php("none"), pods::unknown_php("unknown")])
            .await?;
        let check = async |pod: &str, reason: TargetReason, message: &str| {
            let request = fixture
                .apply(json!({"target": {"podName": pod}, "durationSeconds": 30}))
                .await?;
            let request = fixture.ended(&request).await?;
            let target = failed_with(&request, reason)?;
            ensure!(target.message.contains(message), "{target:?}");
            let sampler = fixture.sampler(&target).await?;
            let receipt = sampler.receipt()?;
            ensure!(receipt.len() <= 120, "{receipt}");
            let started = sampler.started_at().context("the sampler did not start")?;
            let failed = status(&request).completion_time.context("not over")?;
            // The time of the sampler's start has a resolution of one second.
            let took = Duration::try_from(failed.0.duration_since(started))?;
            promised(
                &format!("from the sampler's start to {reason}"),
                Duration::from_secs(3),
                took,
            )
        };
        tokio::try_join!(
            check("none", TargetReason::NoPhpFound, "target.containerName"),
            check("unknown", TargetReason::UnsupportedVersion, "9.2."),
        )?;
        // The manifests, which the operator writes when the requests end, and no profile.
        poll("two manifests alone", Duration::from_secs(10), async || {
            let keys = fixture.keys().await?;
            let is_so = keys.len() == 2 && keys.iter().all(|key| key.ends_with("/manifest.json"));
            Ok(is_so.then_some(()))
        })
        .await
    })
}
