//! The life of a release by Helm 3, by Helm 4, and by one after the other: installed, upgraded,
//! rolled back, removed. All leave the same.
//!
//! Does not: follow the guides (`cluster/releases.rs`), or change objects of the release by hand
//! (`halts.rs`).
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
const KEPT: [&str; 3] = [
    "customresourcedefinition.apiextensions.k8s.io/profilearchives.phpprof.dev",
    "customresourcedefinition.apiextensions.k8s.io/profilerequests.phpprof.dev",
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
    release::roll_back_by(second).await?;
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
    fn helm_4_continues_a_release_of_helm_3() -> Result<()> {
        lives(HELM, HELM_4)
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn helm_3_continues_a_release_of_helm_4() -> Result<()> {
        lives(HELM_4, HELM)
    }
}
