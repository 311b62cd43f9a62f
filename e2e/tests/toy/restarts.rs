//! The operator is killed at different moments of a request.

use anyhow::{Context as _, Result, ensure};
use e2e::requests::status;
use e2e::{Fixture, exclusive, is_long_form, operator, pods, release};
use phpprof_crds::{ProfileRequest, TargetState};
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
    operator::kill(fixture, &operator).await?;
    let ended = fixture.ended(&request).await?;
    let checked = fixture.check_each_pod_once(&ended, 2).await;
    checked.with_context(|| format!("killed when it {moment}"))
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
