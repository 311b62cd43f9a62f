//! Masquerades the connections from pods to the relay, as some networks do: the relay sees the
//! node's address in place of the pod's.
//!
//! It is a rule in the network namespace of e2e/cluster, and nowhere else.

use anyhow::{Context as _, Result};

use crate::command::run;
use crate::test_cluster;

const TABLE: &str = "phpprof-masquerade";

/// Changes the source address of every new connection to the relay.
pub async fn begin() -> Result<()> {
    let rules = format!(
        "table inet {TABLE} {{\n chain postrouting {{ type nat hook postrouting priority srcnat; tcp dport 8443 masquerade; }}\n}}\n"
    );
    let network = test_cluster::here().network();
    run("nsenter", &[&network, "nft", "-f", "-"], rules.as_bytes())
        .await
        .context(
            "this changes the network of the cluster, so it has to be the one of e2e/cluster",
        )?;
    Ok(())
}

/// Removes the rule.
pub async fn end() -> Result<()> {
    let network = test_cluster::here().network();
    let delete = [&network, "nft", "delete", "table", "inet", TABLE];
    run("nsenter", &delete, &[]).await?;
    Ok(())
}
