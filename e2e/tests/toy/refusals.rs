//! Requests that are refused before anything is started.

use anyhow::{Result, bail, ensure};
use e2e::requests::{WORKLOADS, holds, status};
use e2e::{ENABLED, Fixture, NOT_ENABLED, pods, release, shared};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use phpprof_crds::{RequestReason, condition};
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
fn refusals_are_clear_and_start_nothing() -> Result<()> {
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
fn a_namespace_without_opt_in_is_refused() -> Result<()> {
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
