//! The volume of the chart's default store, as the operator's container mounts it.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;

use crate::Fixture;
use crate::release::{self, FOLDER};

impl Fixture {
    async fn in_volume(&self, line: &str) -> Result<String> {
        let operator = self.operator().await?;
        let root = "set -- $pids; folder=/proc/$1/root";
        self.on_node(&format!("{root}{FOLDER}; {line}"), &operator)
            .await
    }

    /// The operator's pod.
    pub async fn operator(&self) -> Result<Pod> {
        let operator = release::operator(&self.client).await?;
        operator.context("no operator runs")
    }

    /// The files of this fixture's namespace in the volume, as keys.
    pub async fn files(&self) -> Result<Vec<String>> {
        let line = format!(
            "cd $folder && [ ! -d {0} ] || find {0} -type f",
            self.namespace
        );
        let files = self.in_volume(&line).await?;
        Ok(files.lines().map(str::to_owned).collect())
    }

    /// The SHA-256 of a file, as hexadecimal digits.
    pub async fn sha256_of_file(&self, key: &str) -> Result<String> {
        let sum = self
            .in_volume(&format!("sha256sum \"$folder/{key}\""))
            .await?;
        let sum = sum.split_whitespace().next();
        Ok(sum.context("no sum")?.to_owned())
    }

    /// Deletes the files of this fixture in the volume. Nothing else deletes them.
    pub async fn clear_files(&self) -> Result<()> {
        let line = format!("rm -rf \"$folder/{}\"", self.namespace);
        self.in_volume(&line).await.map(drop)
    }

    /// Makes the volume read-only, or writable again, in the operator's mount.
    pub async fn make_read_only(&self, read_only: bool) -> Result<()> {
        let flags = if read_only { "4129" } else { "4128" };
        let script = include_str!("remount.php");
        let line = format!("php -d ffi.enable=1 -r '{script}' $1 {FOLDER} {flags}");
        self.in_volume(&line).await.map(drop)
    }
}
