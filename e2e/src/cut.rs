//! Slows down or cuts the connection between one pod and the API server.
//!
//! It is a rule in the network namespace of e2e/cluster, and nowhere else.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;

use crate::command::run;

/// The names from e2e/cluster/names.sh.
const NETWORK: &str = "--net=/run/netns/phpprof-e2e";
const API_SERVER: &str = "10.205.0.1";
const TABLE: &str = "phpprof-cut";

/// Limits the connection to this many bytes a second.
pub async fn slow_down(pod: &Pod, bytes_a_second: u32) -> Result<()> {
    let rule =
        format!("limit rate over {bytes_a_second} bytes/second burst {bytes_a_second} bytes drop");
    replace(pod, &rule).await
}

/// Blocks the connection.
pub async fn cut(pod: &Pod) -> Result<()> {
    replace(pod, "drop").await
}

/// Removes the rule.
pub async fn end() -> Result<()> {
    nft(&format!("table inet {TABLE}\ndelete table inet {TABLE}\n")).await
}

/// Replaces the rule in one step, so that no packet passes in between.
async fn replace(pod: &Pod, rule: &str) -> Result<()> {
    let address = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_ref());
    let address = address.context("the pod has no address")?;
    nft(&format!(
        "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n chain prerouting {{\n  type filter hook prerouting priority raw;\n  \
         ip saddr {address} ip daddr {API_SERVER} {rule}\n }}\n}}\n"
    ))
    .await
}

async fn nft(rules: &str) -> Result<()> {
    run("nsenter", &[NETWORK, "nft", "-f", "-"], rules.as_bytes())
        .await
        .context(
            "this changes the network of the cluster, so it has to be the one of e2e/cluster",
        )?;
    Ok(())
}
