//! Requests that fail as soon as a sampler starts, and those for workloads that are not there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{WORKLOADS, failed_with, holds, status};
use e2e::{ENABLED, pods, poll, promised, shared};
use futures::future::try_join_all;
use phpprof_crds::{RequestReason, TargetReason, condition};
use serde_json::json;

#[test]
fn no_php_and_unknown_php_fail_in_seconds() -> Result<()> {
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

/// `rights.rs` checks afterwards that the operator has used its right to each kind.
#[test]
fn a_missing_workload_of_each_kind_is_refused() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let refused = WORKLOADS.map(async |(group, kind)| {
            let workload = json!({"apiVersion": group, "kind": kind, "name": "nobody"});
            let request = fixture
                .apply(json!({"target": {"workloadRef": workload}}))
                .await?;
            let request = fixture.ended(&request).await?;
            let failed = holds(&request, condition::FAILED)?;
            ensure!(
                failed.reason == RequestReason::WorkloadNotFound.to_string(),
                "{kind}: {failed:?}"
            );
            Ok(())
        });
        try_join_all(refused).await.map(drop)
    })
}
