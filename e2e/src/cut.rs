//! Slows down or cuts the connection between one pod and the API server, or the control plane's to
//! the results.
//!
//! It is a rule in the network namespace of e2e/cluster, and nowhere else.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, PodIP};

use crate::command::run;
use crate::test_cluster;

/// nft's words for the families of addresses.
const FAMILIES: [&str; 2] = ["ip", "ip6"];
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

/// Blocks connections from the node, where the API server runs, to the operator's results. A
/// kubelet's port-forward connects from within the pod, so it still works.
pub async fn results(operator: &Pod) -> Result<()> {
    let status = operator.status.as_ref();
    let addresses = status.and_then(|status| status.pod_ips.as_deref());
    let rule = |address: &PodIP| {
        let family = FAMILIES[family(&address.ip)];
        format!("  {family} daddr {} tcp dport 8080 drop\n", address.ip)
    };
    let rules: String = addresses.unwrap_or_default().iter().map(rule).collect();
    ensure!(!rules.is_empty(), "the pod has no address");
    nft(&format!(
        "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n chain output {{\n  type filter hook output priority raw;\n{rules} }}\n}}\n"
    ))
    .await
}

fn family(address: &str) -> usize {
    usize::from(address.contains(':'))
}

fn address(pod: &Pod) -> Result<&str> {
    let status = pod.status.as_ref();
    let address = status.and_then(|status| status.pod_ip.as_deref());
    address.context("the pod has no address")
}

/// Removes the rule.
pub async fn end() -> Result<()> {
    nft(&format!("table inet {TABLE}\ndelete table inet {TABLE}\n")).await
}

/// Replaces the rule in one step, so that no packet passes in between.
async fn replace(pod: &Pod, rule: &str) -> Result<()> {
    let address = address(pod)?;
    let family = family(address);
    let (family, api_server) = (FAMILIES[family], &test_cluster::here().api_server()[family]);
    nft(&format!(
        "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n chain prerouting {{\n  type filter hook prerouting priority raw;\n  \
         {family} saddr {address} {family} daddr {api_server} {rule}\n }}\n}}\n"
    ))
    .await
}

async fn nft(rules: &str) -> Result<()> {
    let network = test_cluster::here().network();
    run("nsenter", &[&network, "nft", "-f", "-"], rules.as_bytes())
        .await
        .context(
            "this changes the network of the cluster, so it has to be the one of e2e/cluster",
        )?;
    Ok(())
}
