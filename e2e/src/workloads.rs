//! Pods that run in a fixture's namespace, and commands in them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use crate::command::run;
use crate::fixture::Fixture;
use crate::pods::without_php;
use crate::toy;
use crate::wait::poll;

const READY: Duration = Duration::from_secs(60);

fn is_ready(pod: Option<&Pod>) -> bool {
    let status = pod.and_then(|pod| pod.status.clone()).unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl Fixture {
    /// Starts pods and waits until they are ready.
    pub async fn start(&self, pods: &[Value]) -> Result<()> {
        for pod in pods {
            let pod: Pod = serde_json::from_value(pod.clone())?;
            self.api().create(&PostParams::default(), &pod).await?;
        }
        for pod in pods {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let ready = await_condition(self.api::<Pod>(), name, is_ready);
            tokio::time::timeout(READY, ready)
                .await
                .with_context(|| format!("pod {name} is not ready after {READY:?}"))??;
        }
        Ok(())
    }

    /// Starts a Deployment of such pods and waits until all are ready.
    pub async fn deploy(&self, name: &str, replicas: i32, pod: Value) -> Result<()> {
        let labels = json!({"app": name});
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            },
        });
        let deployments = self.api::<Deployment>();
        deployments
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        poll("all pods of the Deployment are ready", READY, async || {
            let status = deployments.get(name).await?.status.unwrap_or_default();
            Ok((status.ready_replicas == Some(replicas)).then_some(()))
        })
        .await
    }

    /// Runs a command in a container; on this machine, where there are no containers.
    pub async fn exec(&self, pod: &str, command: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        if toy::is_used() {
            let (program, arguments) = command.split_first().context("no command")?;
            return run(program, arguments, input).await;
        }
        let place = [
            "--namespace",
            &self.namespace,
            "exec",
            "--stdin",
            pod,
            "--container=fpm",
            "--",
        ];
        run("kubectl", &[&place, command].concat(), input).await
    }

    /// Runs a shell command on the node of a pod, as root, with all processes visible. `$pids` are
    /// those of the pod's first container.
    pub async fn on_node(&self, line: &str, pod: &Pod) -> Result<String> {
        let spec = pod.spec.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let id = containers
            .first()
            .and_then(|container| container.container_id.as_ref());
        let id = id
            .and_then(|id| id.rsplit('/').next())
            .context("the container has no id")?;
        if toy::is_used() {
            let output = run("sh", &["-c", &format!("pids={id}; {line}")], &[]).await?;
            return Ok(String::from_utf8(output)?);
        }
        let node = spec.node_name.context("the pod is on no node")?;
        let name = format!("node-{node}");
        let mut helper = without_php(&name);
        helper["spec"]["hostPID"] = json!(true);
        helper["spec"]["nodeName"] = json!(node);
        helper["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
        if self.api::<Pod>().get_opt(&name).await?.is_none() {
            self.start(&[helper]).await?;
        }
        let find =
            format!("pids=$(grep -l {id} /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3); {line}");
        let output = self.exec(&name, &["sh", "-c", &find], &[]).await?;
        Ok(String::from_utf8(output)?)
    }
}
