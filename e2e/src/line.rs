//! The connection between samplers and the relay, through a proxy that holds one answer back.
//!
//! The connection is encrypted, so the proxy does not know what it carries.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::command::kubectl;
use crate::proxy::Proxy;
use crate::release::{NAMESPACE, SERVICE};
use crate::wait::poll;

const PROXY: Proxy = Proxy {
    name: "held",
    namespace: NAMESPACE,
    // The port of the pod to which the relay's service sends.
    port: ("relay", 8443),
    certificate: None,
};

/// Whether something may have been changed.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// Takes it for changed, as a test that was killed may have left it.
pub(crate) fn distrust() {
    CHANGED.store(true, Ordering::Relaxed);
}

/// Puts a proxy between samplers and the operator. The proxy holds back the answer to the first
/// upload.
pub async fn hold_first_answer(operator: &str) -> Result<()> {
    CHANGED.store(true, Ordering::Relaxed);
    PROXY.start(include_str!("held.php"), &[operator]).await?;
    select(json!({"app": PROXY.name})).await?;
    // The endpoints of the service change a moment later.
    poll(
        "the proxy is in the line",
        Duration::from_secs(30),
        async || {
            let of_service = format!("--selector=kubernetes.io/service-name={SERVICE}");
            let names = "--output=jsonpath={.items[*].endpoints[*].targetRef.name}";
            let slices = here(&["get", "endpointslices", &of_service, names]).await?;
            Ok((slices == PROXY.name).then_some(()))
        },
    )
    .await
}

/// Whether the proxy has held an answer back.
pub async fn holds() -> Result<bool> {
    Ok(PROXY.said().await?.contains("holds an answer"))
}

/// Points the service at the operator again.
pub async fn restore() -> Result<()> {
    if !CHANGED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let labels = "--output=jsonpath={.spec.selector.matchLabels}";
    let labels = here(&["get", "deployment", SERVICE, labels]).await?;
    select(serde_json::from_str(&labels).context("labels")?).await?;
    PROXY.remove().await?;
    CHANGED.store(false, Ordering::Relaxed);
    Ok(())
}

async fn select(labels: Value) -> Result<()> {
    let patch = json!([{"op": "replace", "path": "/spec/selector", "value": labels}]).to_string();
    let patch = ["--type=json", "--patch", &patch];
    here(&[&["patch", "service", SERVICE], &patch[..]].concat()).await?;
    Ok(())
}

async fn here(arguments: &[&str]) -> Result<String> {
    kubectl(&[&["--namespace", NAMESPACE], arguments].concat()).await
}
