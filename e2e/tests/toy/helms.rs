//! The life of a release by Helm 3, by Helm 4, and by one after the other: installed, upgraded,
//! rolled back, removed. All leave the same.
//!
//! Does not: follow the guides (`cluster/releases.rs`), or test the switch (`halts.rs`).
//!
//! Invariant: at the end a release of Helm 3 is installed, as all other tests want it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use e2e::release::{self, HELM, HELM_4};
use e2e::requests::holds;
use e2e::{Fixture, exclusive, kubectl, pods, run};
use phpprof_crds::condition;
use serde_json::json;

/// A limit that differs from those of other releases, as value and as the operator's argument.
const LIMIT: (&str, &str) = ("limits.requests=321", "--max-requests=321");
/// What stays of a release, as docs/guides/uninstall.md says: its store is a bucket, so no volume.
const KEPT: [&str; 5] = [
    "customresourcedefinition.apiextensions.k8s.io/profilearchives.phpprof.dev",
    "customresourcedefinition.apiextensions.k8s.io/profilecomparisons.phpprof.dev",
    "customresourcedefinition.apiextensions.k8s.io/profilerequests.phpprof.dev",
    "customresourcedefinition.apiextensions.k8s.io/profiletriggers.phpprof.dev",
    "secret/phpprof-operator-keys",
];

/// Checks that the operator has the argument of the other limit, or not.
async fn check_limit(is_other: bool) -> Result<()> {
    let arguments = "jsonpath={.spec.template.spec.containers[0].args}";
    let name = ["get", "deployment/phpprof-operator", "-o", arguments];
    let namespace = ["--namespace", release::NAMESPACE];
    let arguments = kubectl(&[&name[..], &namespace].concat()).await?;
    ensure!(arguments.contains(LIMIT.1) == is_other, "{arguments}");
    Ok(())
}

/// Checks that the release that is installed now profiles.
async fn check_profiles(fixture: &Fixture) -> Result<()> {
    let spec = json!({"target": {"podName": "web"}, "durationSeconds": 1});
    let request = fixture.apply(spec).await?;
    holds(&fixture.ended(&request).await?, condition::COMPLETE).map(drop)
}

/// The names of those objects of a manifest that the cluster has.
async fn present(manifest: &[u8]) -> Result<BTreeSet<String>> {
    let get = ["get", "--ignore-not-found", "--output=name", "--filename=-"];
    let found = String::from_utf8(run("kubectl", &get, manifest).await?)?;
    Ok(found.lines().map(str::to_owned).collect())
}

/// Installs by the first program; upgrades, rolls back and removes by the second.
async fn live(fixture: &Fixture, first: &str, second: &str) -> Result<()> {
    release::install_anew_by(first).await?;
    check_limit(false).await?;
    check_profiles(fixture).await?;
    release::upgrade_by(second, LIMIT.0, &[]).await?;
    check_limit(true).await?;
    release::roll_back_by(second, &[]).await?;
    check_limit(false).await?;
    check_profiles(fixture).await?;
    let manifest = release::manifest_by(second).await?;
    let objects = present(&manifest).await?.len();
    release::uninstall_by(second).await?;
    let left = present(&manifest).await?;
    ensure!(
        objects > 20 && left.iter().eq(KEPT),
        "of {objects} objects there are {left:?}"
    );
    Ok(())
}

fn lives(first: &'static str, second: &'static str) -> Result<()> {
    exclusive(async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let lived = live(fixture, first, second).await;
        release::install(&[]).await?;
        lived.with_context(|| format!("installed by {first}, then {second}"))
    })
}

const SWITCH: [&str; 3] = [
    "configmap/phpprof-operator-switch",
    "-n",
    release::NAMESPACE,
];

/// Changes a field that belongs to the chart, runs a command of Helm 4, and checks that it fails
/// for that.
async fn refused(command: impl Future<Output = Result<()>>) -> Result<()> {
    let patch = r#"{"data": {"profiling": "stopped"}}"#;
    kubectl(&[&["patch", "--type=merge", "-p", patch][..], &SWITCH].concat()).await?;
    let refused = command.await.err().context("no conflict")?;
    let refused = format!("{refused:#}");
    ensure!(
        refused.contains("Apply failed with 1 conflict"),
        "{refused}"
    );
    Ok(())
}

/// Upgrades and rolls back over changes, as docs/guides/upgrading.md says: what Helm 4 refuses, it
/// has done for all other objects.
async fn go_over_changes() -> Result<()> {
    let force = "--force-conflicts";
    release::install_anew_by(HELM_4).await?;
    refused(release::upgrade_by(HELM_4, LIMIT.0, &[])).await?;
    check_limit(true).await?;
    release::upgrade_by(HELM_4, LIMIT.0, &[force]).await?;
    refused(release::roll_back_by(HELM_4, &["1"])).await?;
    check_limit(false).await?;
    // Without a number it goes to the revision before the failed one.
    release::roll_back_by(HELM_4, &[force]).await?;
    check_limit(true).await?;
    release::roll_back_by(HELM_4, &["1", force]).await?;
    check_limit(false).await?;
    let key = ["get", "-o", "jsonpath={.data.profiling}"];
    let key = kubectl(&[&key[..], &SWITCH].concat()).await?;
    ensure!(key == "running", "going back left {key}");
    Ok(())
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    fn a_release_lives_by_helm_3() -> Result<()> {
        lives(HELM, HELM)
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_release_lives_by_helm_4() -> Result<()> {
        lives(HELM_4, HELM_4)
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn what_helm_4_refuses_is_half_done() -> Result<()> {
        exclusive(async |_| {
            let done = go_over_changes().await;
            release::install(&[]).await?;
            done
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn helm_4_continues_a_release_of_helm_3() -> Result<()> {
        lives(HELM, HELM_4)
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn helm_3_continues_a_release_of_helm_4() -> Result<()> {
        lives(HELM_4, HELM)
    }
}
