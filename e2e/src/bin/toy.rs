//! toy OPERATOR FOLDER COMMAND...: runs a command with the kubeconfig of a cluster without
//! containers (e2e/src/toy), and with the files of an S3 server. It is started in a network
//! namespace of its own, in which all addresses of 10.206.0.0/16 are local (e2e/tools/toy).
//!
//! Invariant: all processes end with this one; logs are in FOLDER.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result};
use e2e::toy::control_plane::{ControlPlane, certificate, start};
use e2e::toy::node;
use tokio::process::{Child, Command};

const ADDRESS: &str = "10.206.0.1";
const BUCKET: &str = "profiles";
const ACCESS_KEY: &str = "toy-access";
const SECRET_KEY: &str = "toy-secret-key";

#[tokio::main]
async fn main() -> Result<ExitCode> {
    // Only one provider is compiled in, so the only possible error is that it is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: toy OPERATOR FOLDER COMMAND...";
    let operator = PathBuf::from(arguments.next().context(usage)?);
    let logs = PathBuf::from(arguments.next().context(usage)?);
    let program = arguments.next().context(usage)?;
    std::fs::create_dir_all(&logs)?;
    let data = tempfile::tempdir()?;
    let _store = store(data.path(), &logs).await?;
    let mut plane = ControlPlane::start(ADDRESS, data.path(), &logs).await?;
    plane.control(&logs).await?;
    let kubeconfig = plane.admin.clone();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .env("STORE_FILES", data.path().join("store"))
        .env("PHPPROF_TOY", &logs)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let node = node::play(plane, &operator, &logs);
    let status = tokio::select! {
        ended = node => { ended?; anyhow::bail!("the node has ended") }
        status = async { command.spawn()?.wait().await } => status?,
    };
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Starts the S3 server, and writes what tests need to use it. Its bucket is a folder, and its
/// certificate signs itself.
async fn store(data: &Path, logs: &Path) -> Result<Child> {
    let (files, buckets) = (data.join("store"), data.join("buckets"));
    for folder in [&files, &buckets.join(BUCKET)] {
        std::fs::create_dir_all(folder)?;
    }
    let name = format!("subjectAltName=IP:{ADDRESS}");
    // A server's certificate is not that of an authority.
    let extensions = [name.as_str(), "basicConstraints=critical,CA:FALSE"];
    let certificate = certificate(&data.join("server"), "toy", &extensions).await?;
    std::fs::copy(&certificate, files.join("ca.crt"))?;
    let endpoint = format!("https://{ADDRESS}:9000");
    for (name, value) in [
        ("endpoint", endpoint.as_str()),
        ("bucket", BUCKET),
        ("access-key", ACCESS_KEY),
        ("secret-key", SECRET_KEY),
    ] {
        std::fs::write(files.join(name), value)?;
    }
    let root = [
        ("ROOT_ACCESS_KEY", ACCESS_KEY),
        ("ROOT_SECRET_KEY", SECRET_KEY),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let arguments = [
        format!("--port={ADDRESS}:9000"),
        format!("--cert={certificate}"),
        format!("--key={}", path(&data.join("server.key"))),
        "posix".to_owned(),
        path(&buckets),
    ];
    start(
        Path::new("versitygw"),
        &logs.join("versitygw.log"),
        &arguments,
        &root,
    )
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
