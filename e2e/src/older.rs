//! The release that is upgraded: its chart as of a fixed commit, the one before the Lease, the ProfileArchive and the folder of a namespace's uid. Its
//! operator is built by e2e/images/build (`operator-older`); its sampler does not differ from what is tested.
//!
//! Invariant: nothing of the tested release is left where the older one is installed.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::release::{self, NAMESPACE};
use crate::{kubectl, pods};

/// `git archive COMMIT charts`, of the commit in e2e/images/older-commit: a clone may have no history.
const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/older.tar.gz");

/// A folder with `charts/phpprof` as of that commit.
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

/// Installs it in the place of what is tested, as on a cluster that has never had that.
pub async fn install() -> Result<()> {
    release::uninstall().await?;
    let stays = ["profilerequests.phpprof.dev", "profilearchives.phpprof.dev"];
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
