//! A pod in front of a service that passes on what it is sent, but for what its test is about. What it leaves out is
//! decided by its script.

use anyhow::Result;
use serde_json::json;

use crate::command::{kubectl, run};
use crate::pods::image;

/// A proxy by its name, which is its label `app` too.
pub struct Proxy {
    pub name: &'static str,
    pub namespace: &'static str,
    /// Where it listens; the pod's port has this name too.
    pub port: (&'static str, u16),
    /// A secret whose files it finds in `/tls`.
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

    /// What its script has said.
    pub async fn said(&self) -> Result<String> {
        self.kubectl(&["logs", self.name]).await
    }

    /// Takes it away, if it is there.
    pub async fn remove(&self) -> Result<()> {
        self.kubectl(&["delete", "pod", self.name, "--ignore-not-found", "--force"])
            .await?;
        Ok(())
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&[&["--namespace", self.namespace], arguments].concat()).await
    }
}
