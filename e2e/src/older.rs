//! The older release that tests upgrade. Its chart is of a fixed commit, the one before the Lease,
//! the ProfileArchive and the folder of a namespace's uid. e2e/images/build builds its operator
//! (`operator-older`); its sampler is the tested one.
//!
//! Invariant: nothing of the tested release is left when the older one is installed.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::release::{self, NAMESPACE};
use crate::{kubectl, pods};

/// `git archive COMMIT charts`, of the commit in e2e/images/older-commit. It is a file, because a
/// clone may have no history.
const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/older.tar.gz");

/// A folder with `charts/phpprof` of that commit.
pub fn tree() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    let unpacked = Command::new("tar")
        .args(["--extract", "--file", ARCHIVE, "--directory"])
        .arg(folder.path())
        .output()
        .context("starting tar")?;
    let said = String::from_utf8_lossy(&unpacked.stderr);
    ensure!(unpacked.status.success(), "{ARCHIVE}: {said}");
    Ok(folder)
}

/// The path of the chart in that folder.
#[must_use]
pub fn chart(tree: &TempDir) -> String {
    tree.path().join("charts/phpprof").display().to_string()
}

/// Replaces the tested release by the older one, as on a cluster that never had the tested one.
pub async fn install() -> Result<()> {
    release::uninstall().await?;
    let stays = [
        "profilerequests.phpprof.dev",
        "profilecomparisons.phpprof.dev",
        "profilearchives.phpprof.dev",
        "profiletriggers.phpprof.dev",
    ];
    let delete = ["delete", "crd", "--ignore-not-found", "--timeout=60s"];
    kubectl(&[&delete[..], &stays].concat()).await?;
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "delete",
        "secret",
        &format!("{}-keys", release::SERVICE),
    ])
    .await?;
    let tree = tree()?;
    release::install_older(&chart(&tree), &pods::image("operator-older")).await
}
