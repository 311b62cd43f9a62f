//! The kinds of Argo Rollouts and Flagger in the cluster. `tools/build` has them from the modules of
//! both, and `make api` says where they are.
//!
//! Invariant: no controller runs, so an object of these kinds is only checked.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::kubectl;

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
