//! The S3 server in the cluster (e2e/cluster/manifests/store.yaml), stopped, started, or with a bad line in front of it.

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::Scene;
use crate::command::{kubectl, run};
use crate::pods::image;

const NAMESPACE: &str = "phpprof-store";
const PROXY: &str = "lossy";

/// Stops the server; its objects stay.
pub async fn stop() -> Result<()> {
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "scale",
        "deployment/s3",
        "--replicas=0",
    ])
    .await
    .context("these tests stop the store, so it has to be the one of e2e/cluster")?;
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "wait",
        "pod",
        "--selector=app=s3",
        "--for=delete",
        "--timeout=60s",
    ])
    .await?;
    Ok(())
}

/// Starts it again.
pub async fn start() -> Result<()> {
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "scale",
        "deployment/s3",
        "--replicas=1",
    ])
    .await?;
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "rollout",
        "status",
        "deployment/s3",
        "--timeout=60s",
    ])
    .await?;
    Ok(())
}

/// The address of its service.
pub async fn address() -> Result<String> {
    let service = [
        "get",
        "service",
        "s3",
        "--output=jsonpath={.spec.clusterIP}",
    ];
    kubectl(&[&["--namespace", NAMESPACE], &service[..]].concat()).await
}

/// Puts a proxy in front of it that loses the answer to the first PUT of an object whose key has this in it.
pub async fn lose_first_answer(scene: &Scene, of: &str) -> Result<()> {
    let address = [
        "get",
        "pods",
        "--selector=app=s3",
        "--output=jsonpath={.items[0].status.podIP}",
    ];
    let address = kubectl(&[&["--namespace", NAMESPACE], &address[..]].concat()).await?;
    let command = ["php", "-r", include_str!("lossy.php"), &address, of];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": PROXY, "namespace": NAMESPACE, "labels": {"app": PROXY}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": PROXY, "image": image("demo"), "imagePullPolicy": "IfNotPresent", "command": command,
                "readinessProbe": {"tcpSocket": {"port": 7071}, "periodSeconds": 1},
                "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
            }],
            "volumes": [{"name": "tls", "secret": {"secretName": "s3-tls"}}],
        },
    });
    run(
        "kubectl",
        &["create", "--filename=-"],
        pod.to_string().as_bytes(),
    )
    .await?;
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "wait",
        "pod",
        PROXY,
        "--for=condition=Ready",
        "--timeout=60s",
    ])
    .await?;
    direct(PROXY, 7071).await?;
    // What the service sends on to is changed a moment later.
    crate::poll(
        "the proxy is in front of the store",
        std::time::Duration::from_secs(30),
        async || {
            scene.keys().await?;
            Ok(seen().await?.contains("GET").then_some(()))
        },
    )
    .await
}

/// What the proxy has seen: a line for each request, with what became of its answer.
pub async fn seen() -> Result<String> {
    kubectl(&["--namespace", NAMESPACE, "logs", PROXY]).await
}

/// The store as it was made, whatever a test did to it.
pub async fn put_right() -> Result<()> {
    let there = kubectl(&[
        "get",
        "deployment",
        "s3",
        "--namespace",
        NAMESPACE,
        "--ignore-not-found",
        "--output=name",
    ])
    .await?;
    if there.is_empty() {
        return Ok(());
    }
    start().await?;
    direct("s3", "https").await?;
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "delete",
        "pod",
        PROXY,
        "--ignore-not-found",
        "--force",
    ])
    .await?;
    Ok(())
}

/// Which pods the store's service stands for, and their port.
async fn direct(app: &str, port: impl Into<serde_json::Value>) -> Result<()> {
    let port: serde_json::Value = port.into();
    let patch = json!({"spec": {"selector": {"app": app}, "ports": [{"name": "https", "port": 443, "targetPort": port}]}});
    kubectl(&[
        "--namespace",
        NAMESPACE,
        "patch",
        "service",
        "s3",
        "--patch",
        &patch.to_string(),
    ])
    .await?;
    Ok(())
}
