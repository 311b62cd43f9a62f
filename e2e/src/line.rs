//! The line between samplers and the relay, through a proxy that holds one answer back.
//!
//! It knows nothing of what it carries, which is encrypted.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::command::{kubectl, run};
use crate::pods::image;
use crate::poll;
use crate::release::{NAMESPACE, SERVICE};

const PROXY: &str = "held";
const HERE: [&str; 2] = ["--namespace", NAMESPACE];

/// Puts a proxy between samplers and the operator that passes on no answer to the first upload.
pub async fn hold_first_answer(operator: &str) -> Result<()> {
    let command = ["php", "-r", include_str!("held.php"), operator];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": PROXY, "namespace": NAMESPACE, "labels": {"app": PROXY}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": PROXY, "image": image("demo"), "imagePullPolicy": "IfNotPresent", "command": command,
                "ports": [{"name": "relay", "containerPort": 8443}],
                "readinessProbe": {"tcpSocket": {"port": "relay"}, "periodSeconds": 1},
            }],
        },
    });
    let create = ["create", "--filename=-"];
    run("kubectl", &create, pod.to_string().as_bytes()).await?;
    let ready = [
        "wait",
        "pod",
        PROXY,
        "--for=condition=Ready",
        "--timeout=60s",
    ];
    kubectl(&[&HERE, &ready[..]].concat()).await?;
    select(json!({"app": PROXY})).await?;
    // What the service sends on to is changed a moment later.
    poll(
        "the proxy is in the line",
        Duration::from_secs(30),
        async || {
            let of_service = format!("--selector=kubernetes.io/service-name={SERVICE}");
            let names = "--output=jsonpath={.items[*].endpoints[*].targetRef.name}";
            let slices = ["get", "endpointslices", &of_service, names];
            Ok((kubectl(&[&HERE, &slices[..]].concat()).await? == PROXY).then_some(()))
        },
    )
    .await
}

/// Whether an answer was held back.
pub async fn holds() -> Result<bool> {
    let said = kubectl(&[&HERE, &["logs", PROXY][..]].concat()).await?;
    Ok(said.contains("holds an answer"))
}

/// The service stands for the operator again.
pub async fn put_right() -> Result<()> {
    let labels = [
        "get",
        "deployment",
        SERVICE,
        "--output=jsonpath={.spec.selector.matchLabels}",
    ];
    let labels = kubectl(&[&HERE, &labels[..]].concat()).await?;
    select(serde_json::from_str(&labels).context("labels")?).await?;
    let delete = ["delete", "pod", PROXY, "--ignore-not-found", "--force"];
    kubectl(&[&HERE, &delete[..]].concat()).await?;
    Ok(())
}

async fn select(labels: Value) -> Result<()> {
    let patch = json!([{"op": "replace", "path": "/spec/selector", "value": labels}]).to_string();
    let arguments = [
        "patch",
        "service",
        SERVICE,
        "--type=json",
        "--patch",
        &patch,
    ];
    kubectl(&[&HERE, &arguments[..]].concat()).await?;
    Ok(())
}
