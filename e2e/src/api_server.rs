//! Kills the API server of e2e/cluster, so that the node starts it again.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::command::{kubectl, run};
use crate::test_cluster;
use crate::wait::poll;

/// Kills it, and waits until the next one is ready; all watches and connections end.
pub async fn restart() -> Result<()> {
    let folder = test_cluster::here().run();
    let announced = folder.join("restart-kube-apiserver");
    std::fs::write(&announced, "")
        .context("this ends the API server, so it has to be the one of e2e/cluster")?;
    let enter = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/enter");
    let kill = format!("kill -KILL $(cat {}/kube-apiserver.pid)", folder.display());
    run(enter, &["sh", "-c", &kill], &[]).await?;
    poll(
        "the API server is back",
        Duration::from_secs(60),
        async || {
            let ready = ["get", "--raw=/readyz", "--request-timeout=2s"];
            // The node removes the announcement when it starts the next API server.
            Ok((!announced.exists() && kubectl(&ready).await.is_ok()).then_some(()))
        },
    )
    .await
}
