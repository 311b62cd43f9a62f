//! The release that has rights in some namespaces only, as `examples/values/namespaced.yaml`
//! installs it.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::requests::{WORKLOADS, status};
use e2e::{ENABLED, Fixture, exclusive, kubectl, poll, release, webhook};
use kube::api::ListParams;
use phpprof_crds::ProfileRequest;
use serde_json::json;

/// Longer than a watching operator takes to answer.
const LOOKS: Duration = Duration::from_secs(4);
const GONE: Duration = Duration::from_secs(20);

/// Whether the operator may not do this, as `kubectl auth can-i` answers.
async fn is_forbidden(question: &[&str]) -> Result<bool> {
    let operator = format!(
        "--as=system:serviceaccount:{}:phpprof-operator",
        release::NAMESPACE
    );
    match kubectl(&[&["auth", "can-i", &operator], question].concat()).await {
        Ok(said) => Ok(said.trim() != "yes"),
        // The answer no is exit code 1 without a message; only a failure prints an error.
        Err(error) if error.to_string().contains("error:") => Err(error),
        Err(_) => Ok(true),
    }
}

/// Makes the operator use its rights, by one request and workloads of each kind. `rights.rs` checks
/// afterwards that it has used all of them.
async fn uses_its_rights(fixture: &Fixture) -> Result<()> {
    let request = webhook::profiled_past_it(fixture).await?;
    fixture.links(&request).await?;
    fixture.use_rights_of_comparisons().await?;
    for (group, kind) in WORKLOADS {
        let workload = json!({"apiVersion": group, "kind": kind, "name": "nobody"});
        fixture
            .apply(json!({"target": {"workloadRef": workload}, "ttlSecondsAfterFinished": 0}))
            .await?;
    }
    poll(
        "requests for what is not there are over and deleted",
        GONE,
        async || {
            let left = fixture
                .api::<ProfileRequest>()
                .list(&ListParams::default())
                .await?;
            Ok((left.items.len() == 1).then_some(()))
        },
    )
    .await
}

/// Installs the chart with the example's values, for this namespace and this cluster's API server.
async fn install(fixture: &Fixture) -> Result<()> {
    let servers = [
        "--namespace=default",
        "get",
        "endpointslices",
        "--selector=kubernetes.io/service-name=kubernetes",
        "--output=jsonpath={.items[0].endpoints[0].addresses[0]}",
    ];
    let server = kubectl(&servers).await?;
    let values = [
        format!("rbac.namespaces={{{}}}", fixture.namespace),
        format!("networkPolicy.apiServerCIDRs={{{server}/32}}"),
    ];
    release::install_example("namespaced.yaml", &values.each_ref().map(String::as_str)).await?;
    let policy = ["--namespace", release::NAMESPACE, "get", "networkpolicy"];
    let policy = kubectl(&[&policy[..], &[release::SERVICE, "--output=yaml"]].concat()).await?;
    ensure!(policy.contains(&format!("cidr: {server}/32")), "{policy}");
    Ok(())
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn a_namespaced_operator_profiles_there_only() -> Result<()> {
        exclusive(async |fixture| {
            // The operator is stopped while its rights change, so that a refused call later means a
            // missing right.
            release::scale(0).await?;
            install(fixture).await?;
            uses_its_rights(fixture).await?;
            let patch = ["patch", "pods", "--subresource=ephemeralcontainers"];
            let there = format!("--namespace={}", fixture.namespace);
            ensure!(!is_forbidden(&[&patch[..], &[&there]].concat()).await?);
            fixture
                .beside(ENABLED, async |other| {
                    let spec = json!({"target": {"podName": "web"}, "durationSeconds": 1});
                    let request = other.apply(spec).await?;
                    tokio::time::sleep(LOOKS).await;
                    let now = other.until(&request, "is there", |_| true).await?;
                    ensure!(status(&now).conditions.is_empty(), "{:?}", status(&now));
                    let elsewhere = format!("--namespace={}", other.namespace);
                    ensure!(is_forbidden(&[&patch[..], &[&elsewhere]].concat()).await?);
                    ensure!(is_forbidden(&["list", "pods", "--all-namespaces"]).await?);
                    ensure!(is_forbidden(&["list", "profilerequests", "--all-namespaces"]).await?);
                    Ok(())
                })
                .await?;
            release::scale(0).await?;
            release::install(&[]).await
        })
    }
}
