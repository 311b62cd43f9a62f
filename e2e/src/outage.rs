//! Stops and starts the S3 server in the cluster (e2e/cluster/manifests/store.yaml), or puts a
//! faulty proxy in front of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::command::kubectl;
use crate::fixture::Fixture;
use crate::pods;
use crate::proxy::Proxy;
use crate::wait::poll;

const NAMESPACE: &str = "phpprof-store";
const PROXY: Proxy = Proxy {
    name: "unreliable",
    namespace: NAMESPACE,
    port: ("https", 7071),
    certificate: Some("s3-tls"),
};

/// Whether something may have been changed.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// Takes it for changed, as a test that was killed may have left it.
pub(crate) fn distrust() {
    CHANGED.store(true, Ordering::Relaxed);
}

/// Stops the server; its objects are kept.
pub async fn stop() -> Result<()> {
    CHANGED.store(true, Ordering::Relaxed);
    scale(0)
        .await
        .context("these tests stop the store, so it has to be the one of e2e/cluster")?;
    let gone = ["wait", "pod", "--selector=app=s3", "--for=delete"];
    there(&[&gone, &["--timeout=60s"][..]].concat()).await?;
    Ok(())
}

/// Starts it again.
pub async fn start() -> Result<()> {
    scale(1).await?;
    there(&["rollout", "status", "deployment/s3", "--timeout=60s"]).await?;
    Ok(())
}

/// The addresses of its service, separated by blanks.
pub async fn addresses() -> Result<String> {
    let addresses = "--output=jsonpath={.spec.clusterIPs[*]}";
    there(&["get", "service", "s3", addresses]).await
}

/// Puts a proxy in front of the server. A rule `KEY=TROUBLE` gives objects whose key contains KEY
/// that trouble (see `unreliable.php`).
pub async fn inject_faults(fixture: &Fixture, rules: &[&str]) -> Result<()> {
    CHANGED.store(true, Ordering::Relaxed);
    let pod = there(&["get", "pods", "--selector=app=s3", "--output=json"]).await?;
    let mut pod: Value = serde_json::from_str(&pod).context("pods")?;
    let host = pods::host(&serde_json::from_value(pod["items"][0].take())?)?;
    let arguments = [&[host.as_str()], rules].concat();
    PROXY
        .start(include_str!("unreliable.php"), &arguments)
        .await?;
    direct(PROXY.name, PROXY.port.1).await?;
    // The endpoints of the service change a moment later.
    poll(
        "the proxy is in front of the store",
        Duration::from_secs(30),
        async || {
            fixture.keys().await?;
            Ok(seen().await?.contains("GET").then_some(()))
        },
    )
    .await
}

/// The proxy's log: a line for each request, with what happened to its answer.
pub async fn seen() -> Result<String> {
    PROXY.said().await
}

/// What the store did with PUTs of an object, by the proxy's log: the status codes, and what
/// happened to requests and answers.
pub fn puts(seen: &str, key: &str) -> Vec<String> {
    let of_object = seen
        .lines()
        .filter(|line| line.starts_with("PUT") && line.contains(key));
    of_object
        .filter_map(|line| Some(line.rsplit_once(": ")?.1.to_owned()))
        .collect()
}

/// Restores the store to its first state, whatever a test did to it.
pub async fn restore() -> Result<()> {
    if !CHANGED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let name = ["--ignore-not-found", "--output=name"];
    let deployment = there(&[&["get", "deployment", "s3"], &name[..]].concat()).await?;
    if !deployment.is_empty() {
        start().await?;
        direct("s3", "https").await?;
        PROXY.remove().await?;
    }
    CHANGED.store(false, Ordering::Relaxed);
    Ok(())
}

async fn scale(replicas: u8) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    there(&["scale", "deployment/s3", &replicas]).await?;
    Ok(())
}

/// Points the store's service at the pods with this label, and their port.
async fn direct(app: &str, port: impl Into<Value>) -> Result<()> {
    let port: Value = port.into();
    let patch = json!({"spec": {"selector": {"app": app}, "ports": [{"name": "https", "port": 443, "targetPort": port}]}});
    there(&["patch", "service", "s3", "--patch", &patch.to_string()]).await?;
    Ok(())
}

async fn there(arguments: &[&str]) -> Result<String> {
    kubectl(&[&["--namespace", NAMESPACE], arguments].concat()).await
}
