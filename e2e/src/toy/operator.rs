//! The operator's pod, as a process of this machine with the arguments and variables of its
//! container.
//!
//! Invariant: the process has the rights of its pod's service account, by a token of that pod.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};
use kube::{Api, ResourceExt as _};
use tokio::process::Child;

use super::control_plane::{ControlPlane, start};
use super::secrets::MountedSecret;
use crate::run;

/// Before it is started again, as the kubelet does after a first failure.
const PAUSE: Duration = Duration::from_secs(1);
/// The flag that names the file of the store's certificates.
const BUNDLE: &str = "--store-ca-bundle=";
const HEALTH: u16 = 8081;
const RELAY: u16 = 8443;
const RESULTS: u16 = 8080;

/// The relay's port on the pod's address.
pub(super) const PORT: u16 = RELAY;

/// What a life of the process begins with.
pub(super) struct OperatorPod {
    program: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    health: String,
    _secret: Option<MountedSecret>,
}

/// Whether this is a pod of the operator.
pub(super) fn is_operator(pod: &Pod) -> bool {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    container.is_some_and(|container| container.name == "operator")
}

impl OperatorPod {
    pub(super) async fn of(
        plane: &ControlPlane,
        program: PathBuf,
        logs: &Path,
        pod: &Pod,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let namespace = pod.namespace().unwrap_or_default();
        let (spec, name) = (
            pod.spec.as_ref().context("a pod without spec")?,
            pod.name_any(),
        );
        let container = spec.containers.first().context("no container")?;
        let account = spec.service_account_name.clone().unwrap_or_default();
        let kubeconfig = plane
            .kubeconfig_of(&namespace, &account, Some(&name))
            .await?;
        let secrets: Api<Secret> = Api::namespaced(plane.client.clone(), &namespace);
        let mut environment = environment(&secrets, container).await?;
        environment.push(("KUBECONFIG".to_owned(), kubeconfig));
        environment.push(("HOSTNAME".to_owned(), name.clone()));
        let bundle = bundle(plane, logs, pod).await?;
        let secret = MountedSecret::of(plane, logs, pod)?;
        let arguments = container.args.iter().flatten();
        let mut arguments: Vec<String> = arguments
            .map(|argument| match &bundle {
                Some(file) if argument.starts_with(BUNDLE) => format!("{BUNDLE}{file}"),
                _ => moved(argument, secret.as_ref()),
            })
            .collect();
        arguments.extend([
            format!("--relay-address={address}:{RELAY}"),
            format!("--results-address={address}:{RESULTS}"),
            format!("--health-address={address}:{HEALTH}"),
        ]);
        Ok(Self {
            program,
            log: logs.join(format!("{name}.log")),
            arguments,
            environment,
            health: format!("http://{address}:{HEALTH}/readyz"),
            _secret: secret,
        })
    }

    /// Starts a life.
    pub(super) fn begin(&self) -> Result<Child> {
        start(&self.program, &self.log, &self.arguments, &self.environment)
    }

    /// Waits until it is ready. Tests limit how long that may take.
    pub(super) async fn becomes_ready(&self) {
        loop {
            let answer = reqwest::get(&self.health).await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// The pause before the next life.
    pub(super) async fn pause() {
        tokio::time::sleep(PAUSE).await;
    }
}

/// Ends a process as the kubelet does.
pub(super) async fn end(mut child: Child, grace: Duration) -> Result<()> {
    if let Some(pid) = child.id() {
        // It may have ended by itself.
        let _ = run("kill", &["-TERM", &pid.to_string()], &[]).await;
    }
    if tokio::time::timeout(grace, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

/// Writes the certificates that the pod mounts from a ConfigMap, and returns the file's path.
async fn bundle(plane: &ControlPlane, logs: &Path, pod: &Pod) -> Result<Option<String>> {
    let maps: Api<ConfigMap> =
        Api::namespaced(plane.client.clone(), &pod.namespace().unwrap_or_default());
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let mut mounted = volumes.filter_map(|volume| Some(&volume.config_map.as_ref()?.name));
    // The ServiceAccount admission mounts kube-root-ca.crt, too.
    let Some(name) = mounted.find(|name| name.ends_with("-ca")) else {
        return Ok(None);
    };
    let data = maps.get(name).await?.data.unwrap_or_default();
    let file = logs.join(format!("{}.crt", pod.name_any()));
    std::fs::write(&file, data.get("ca.crt").context("no ca.crt")?)?;
    Ok(Some(file.display().to_string()))
}

/// An argument, with the path of a mounted Secret on this machine.
fn moved(argument: &str, secret: Option<&MountedSecret>) -> String {
    match secret.and_then(|it| argument.strip_suffix(&it.mount).zip(Some(&it.folder))) {
        Some((flag, folder)) => format!("{flag}{}", folder.display()),
        None => argument.to_owned(),
    }
}

/// The container's variables. Those of the node's resources are left out.
async fn environment(
    secrets: &Api<Secret>,
    container: &Container,
) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(secrets, variable).await? {
            all.push((variable.name.clone(), value));
        }
    }
    Ok(all)
}

async fn value(secrets: &Api<Secret>, variable: &EnvVar) -> Result<Option<String>> {
    let from = variable.value_from.as_ref();
    let Some(key) = from.and_then(|from| from.secret_key_ref.as_ref()) else {
        return Ok(variable.value.clone());
    };
    let secret = secrets.get_opt(&key.name).await?;
    let value = secret.and_then(|secret| secret.data?.remove(&key.key));
    Ok(value.map(|value| String::from_utf8(value.0)).transpose()?)
}
