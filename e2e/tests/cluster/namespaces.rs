//! The release that has rights in some namespaces only.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::requests::status;
use e2e::{ENABLED, alone, kubectl, pods, release};
use serde_json::json;

/// Long enough for an operator that looks to have answered.
const LOOKS: Duration = Duration::from_secs(4);

/// What the operator may not do, as kubectl asks for it.
async fn is_forbidden(question: &[&str]) -> Result<bool> {
    let operator = format!(
        "--as=system:serviceaccount:{}:phpprof-operator",
        release::NAMESPACE
    );
    match kubectl(&[&["auth", "can-i", &operator], question].concat()).await {
        Ok(said) => Ok(said.trim() != "yes"),
        // An answer of no is an exit code of 1; only what went wrong is said as an error.
        Err(error) if error.to_string().contains("error:") => Err(error),
        Err(_) => Ok(true),
    }
}

#[test]
fn an_operator_with_rights_in_one_namespace_profiles_there_and_nowhere_else() -> Result<()> {
    alone(async |scene| {
        scene.start(&[pods::php("web")]).await?;
        release::install(&[&format!("rbac.namespaces={{{}}}", scene.namespace)]).await?;
        let spec = json!({"target": {"podName": "web"}, "durationSeconds": 1});
        scene.completed(spec.clone()).await?;
        let patch = ["patch", "pods", "--subresource=ephemeralcontainers"];
        let there = format!("--namespace={}", scene.namespace);
        ensure!(!is_forbidden(&[&patch[..], &[&there]].concat()).await?);
        scene
            .beside(ENABLED, async |other| {
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
            .await
    })
}
