//! The Secret that the operator's pod mounts, as files of this machine.
//!
//! Invariant: the files are those of the Secret a second ago at the latest, as long as this lives;
//! so a test need not wait for the minute that a kubelet takes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinHandle;

use super::control_plane::ControlPlane;

const LOOK: Duration = Duration::from_millis(500);

/// A mounted Secret.
pub(super) struct MountedSecret {
    /// Where the pod has it.
    pub mount: String,
    /// Where it is.
    pub folder: PathBuf,
    task: JoinHandle<()>,
}

impl MountedSecret {
    /// The first Secret that a pod mounts, if any. Its files are below the folder of logs.
    pub(super) fn of(plane: &ControlPlane, logs: &Path, pod: &Pod) -> Result<Option<Self>> {
        let Some((mount, name)) = mounted(pod) else {
            return Ok(None);
        };
        let folder = logs.join(format!("{}-{name}", pod.name_any()));
        std::fs::create_dir_all(&folder)?;
        let namespace = pod.namespace().unwrap_or_default();
        let secrets: Api<Secret> = Api::namespaced(plane.client.clone(), &namespace);
        let files = folder.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = write(&secrets, &name, &files).await {
                    eprintln!("toy: mounting Secret {name}: {error:#}");
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Ok(Some(Self {
            mount,
            folder,
            task,
        }))
    }
}

impl Drop for MountedSecret {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The path and the name of the first Secret.
fn mounted(pod: &Pod) -> Option<(String, String)> {
    let spec = pod.spec.as_ref()?;
    let mut volumes = spec.volumes.iter().flatten();
    let (volume, name) = volumes.find_map(|volume| {
        let name = volume.secret.as_ref()?.secret_name.clone()?;
        Some((&volume.name, name))
    })?;
    let mut mounts = spec.containers.first()?.volume_mounts.iter().flatten();
    let mount = mounts.find(|mount| mount.name == *volume)?;
    Some((mount.mount_path.clone(), name))
}

async fn write(secrets: &Api<Secret>, name: &str, folder: &Path) -> Result<()> {
    let secret = secrets.get_opt(name).await?;
    let data = secret.and_then(|it| it.data).unwrap_or_default();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !data.contains_key(entry.file_name().to_string_lossy().as_ref()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    for (key, value) in data {
        let file = folder.join(key);
        if std::fs::read(&file).ok().as_ref() != Some(&value.0) {
            std::fs::write(file, value.0)?;
        }
    }
    Ok(())
}
