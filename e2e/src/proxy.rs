//! A pod in front of a service that forwards what it receives, except for the fault that a test is
//! about. Its script decides on the fault.

use anyhow::Result;
use serde_json::json;

use crate::command::{kubectl, run};
use crate::pods::image;

/// A proxy. Its name is also its label `app`.
pub struct Proxy {
    pub name: &'static str,
    pub namespace: &'static str,
    /// The port on which it listens, with the name of the pod's port.
    pub port: (&'static str, u16),
    /// A secret, whose files are in `/tls`.
    pub certificate: Option<&'static str>,
}

impl Proxy {
    /// Starts a PHP script with arguments, and waits until it listens.
    pub async fn start(&self, script: &str, arguments: &[&str]) -> Result<()> {
        let Self {
            name, namespace, ..
        } = self;
        let (port, number) = self.port;
        let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
        if let Some(secret) = self.certificate {
            volumes.push(json!({"name": "tls", "secret": {"secretName": secret}}));
            mounts.push(json!({"name": "tls", "mountPath": "/tls"}));
        }
        let command = [&["php", "-r", script], arguments].concat();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": name, "image": image("demo"), "imagePullPolicy": "IfNotPresent",
                    "command": command,
                    "ports": [{"name": port, "containerPort": number}],
                    "readinessProbe": {"tcpSocket": {"port": number}, "periodSeconds": 1},
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            },
        });
        let create = ["create", "--filename=-"];
        run("kubectl", &create, pod.to_string().as_bytes()).await?;
        let ready = ["--for=condition=Ready", "--timeout=60s"];
        self.kubectl(&[&["wait", "pod", name], &ready[..]].concat())
            .await?;
        Ok(())
    }

    /// The output of its script.
    pub async fn said(&self) -> Result<String> {
        self.kubectl(&["logs", self.name]).await
    }

    /// Removes it, if it exists.
    pub async fn remove(&self) -> Result<()> {
        self.kubectl(&["delete", "pod", self.name, "--ignore-not-found", "--force"])
            .await?;
        Ok(())
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&[&["--namespace", self.namespace], arguments].concat()).await
    }
}
