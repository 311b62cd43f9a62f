//! The operator is killed at different moments of a request.

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{holds, status};
use e2e::{Fixture, exclusive, is_long_form, pods, release};
use k8s_openapi::api::core::v1::Pod;
use phpprof_crds::{ProfileRequest, TargetState, condition};
use serde_json::json;

/// Kills the operator once the request meets a condition, and checks the result.
async fn killed_when(
    fixture: &Fixture,
    moment: &str,
    holds_then: impl Fn(&ProfileRequest) -> bool,
) -> Result<()> {
    // Kubernetes waits longer before each restart of a pod; a new pod begins without a delay.
    release::renew().await?;
    let operator = release::operator(&fixture.client)
        .await?
        .context("no operator runs")?;
    // The helper pod on the node starts now, because it would take too long at the right moment.
    fixture.on_node("true", &operator).await?;
    let target = json!({"selector": {"matchLabels": {"app": "web"}}, "containerName": "fpm"});
    let request = fixture
        .apply(json!({"target": target, "durationSeconds": 3}))
        .await?;
    let request = fixture.until(&request, moment, holds_then).await?;
    release::kill(fixture, &operator).await?;
    has_each_pod_once(fixture, &fixture.ended(&request).await?, moment).await
}

/// Checks that the request is complete with both pods, and that each had one sampler for it.
async fn has_each_pod_once(
    fixture: &Fixture,
    request: &ProfileRequest,
    moment: &str,
) -> Result<()> {
    let complete = holds(request, condition::COMPLETE)?;
    let status = status(request);
    ensure!(
        status.succeeded == 2,
        "killed when it {moment}: {complete:?}"
    );
    for target in &status.targets {
        let name = format!(
            "phpprof-{}-",
            &request.metadata.uid.clone().unwrap_or_default()[..8]
        );
        let pod: Pod = fixture.api().get(&target.pod_name).await?;
        let containers = pod
            .spec
            .and_then(|spec| spec.ephemeral_containers)
            .unwrap_or_default();
        let ours = containers
            .iter()
            .filter(|container| container.name.starts_with(&name))
            .count();
        ensure!(
            ours == 1,
            "killed when it {moment}: {ours} samplers in pod {}",
            target.pod_name
        );
    }
    Ok(())
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    fn a_killed_operator_adds_no_second_sampler() -> Result<()> {
        exclusive(async |fixture| {
            fixture
                .start(&[pods::php("web-a"), pods::php("web-b")])
                .await?;
            let any = |now: &ProfileRequest, state: TargetState| {
                let targets = status(now).targets;
                targets.iter().any(|target| target.state == state)
            };
            killed_when(fixture, "is accepted", |now| {
                !status(now).targets.is_empty()
            })
            .await?;
            killed_when(fixture, "samples", |now| any(now, TargetState::Sampling)).await?;
            let mut requests = 2;
            if is_long_form("an operator that is killed at two more moments") {
                killed_when(fixture, "is applied", |_| true).await?;
                killed_when(fixture, "has a verified profile", |now| {
                    any(now, TargetState::Uploaded)
                })
                .await?;
                requests = 4;
            }
            // Of each request two pods' profiles, the merged one and the manifest.
            let keys = fixture.keys().await?;
            ensure!(keys.len() == requests * 4, "{keys:?}");
            Ok(())
        })
    }
}
