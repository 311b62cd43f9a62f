//! Argo Rollouts: its real controller as a process of this machine, and its kinds in the cluster.
//! `tools/build argo-rollouts` builds it, and `make api` says where it is.
//!
//! Invariant: a controller looks after one namespace, and ends with its test.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tokio::process::Child;

use crate::toy::control_plane::{free_port, start};
use crate::{Fixture, kubectl, toy};

/// The folder with the program and its kinds.
const FOLDER: &str = "PHPPROF_ARGO_ROLLOUTS";
/// The file with Flagger's kinds.
const FLAGGER: &str = "PHPPROF_FLAGGER";

fn path(variable: &str) -> Result<PathBuf> {
    let path = std::env::var_os(variable);
    let path = path.with_context(|| format!("{variable} is not set; make api sets it"))?;
    Ok(path.into())
}

/// Installs the kinds of both. They stay, because they disturb no other test.
pub async fn install_kinds() -> Result<()> {
    for file in [path(FOLDER)?.join("kinds.yaml"), path(FLAGGER)?] {
        let file = format!("--filename={}", file.display());
        kubectl(&["apply", "--server-side", "--force-conflicts", &file]).await?;
    }
    let kinds = [
        "crd/rollouts.argoproj.io",
        "crd/analysisruns.argoproj.io",
        "crd/analysistemplates.argoproj.io",
        "crd/canaries.flagger.app",
    ];
    let wait = ["wait", "--for=condition=Established", "--timeout=30s"];
    kubectl(&[&wait[..], &kinds].concat()).await?;
    Ok(())
}

/// Starts the controller for the fixture's namespace. It ends when this is dropped.
pub async fn control(fixture: &Fixture) -> Result<Child> {
    let logs = toy::logs().context("only a cluster without containers has this controller")?;
    let kubeconfig = std::env::var("KUBECONFIG")?;
    let log = logs.join(format!("argo-rollouts-{}.log", fixture.namespace));
    let arguments = [
        "--namespaced".to_owned(),
        "--leader-elect=false".to_owned(),
        format!("--namespace={}", fixture.namespace),
        format!("--kubeconfig={kubeconfig}"),
        format!("--metricsPort={}", free_port()?),
        format!("--healthzPort={}", free_port()?),
    ];
    let program = path(FOLDER)?.join("rollouts-controller");
    start(Path::new(&program), &log, &arguments, &[])
}
