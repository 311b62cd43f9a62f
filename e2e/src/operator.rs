//! The operator's process: its end, and its memory.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;

use crate::fixture::Fixture;
use crate::pods::restarts;
use crate::release::NAMESPACE;
use crate::say;
use crate::wait::poll;

/// Kills the operator's process, as the kernel does when memory runs out, and waits until it is
/// ready again.
pub async fn kill(fixture: &Fixture, operator: &Pod) -> Result<()> {
    let lives = restarts(operator);
    fixture.on_node("kill -KILL $pids", operator).await?;
    let pods: Api<Pod> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let restarted = async || {
        let now = pods.get(&operator.name_any()).await?;
        Ok((restarts(&now) > lives).then_some(()))
    };
    poll(
        "the operator's next life",
        Duration::from_secs(60),
        restarted,
    )
    .await
}

/// Fails if the operator has restarted since this pod was read, or if its memory has reached the
/// chart's limit.
pub async fn keeps_within_its_memory(fixture: &Fixture, operator: &Pod) -> Result<()> {
    keeps_within_a_part_of_its_memory(fixture, operator, 1).await
}

/// The same for a half, a third, … of the limit.
pub async fn keeps_within_a_part_of_its_memory(
    fixture: &Fixture,
    operator: &Pod,
    part: u64,
) -> Result<()> {
    let now: Api<Pod> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let now = now.get(&operator.name_any()).await?;
    ensure!(
        restarts(&now) == restarts(operator),
        "the operator has ended"
    );
    let line = "for pid in $pids; do grep VmHWM /proc/$pid/status; done";
    let peak = fixture.on_node(line, operator).await?;
    let peak = peak.split_whitespace().nth(1).context("no peak")?;
    let (peak, limit) = (peak.parse::<u64>()? / 1024, memory_limit_mib(operator)?);
    say(&format!("the operator's memory: {peak} MiB of {limit}"));
    ensure!(peak < limit / part, "{peak} MiB");
    Ok(())
}

/// The operator's memory limit in the chart.
fn memory_limit_mib(operator: &Pod) -> Result<u64> {
    let containers = operator.spec.iter().flat_map(|spec| &spec.containers);
    let mut limits = containers
        .filter_map(|container| container.resources.as_ref()?.limits.as_ref()?.get("memory"));
    let limit = limits.next().context("no limit of memory")?;
    let mib = limit.0.strip_suffix("Mi").context("not in Mi")?;
    Ok(mib.parse()?)
}
