//! Programs that the tests run as users do: kubectl and helm.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const LONGEST: Duration = Duration::from_secs(150);

/// Runs a program with this input, and returns its output.
pub async fn run(program: &str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {program}"))?;
    let stdin = child.stdin.take();
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program that does not read its input may have closed it. Its exit code tells
            // whether that is an error.
            let _ = stdin.write_all(input).await;
        }
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1 };
    let shown = || format!("{program} {}", arguments.join(" "));
    let output = tokio::time::timeout(LONGEST, both)
        .await
        .with_context(|| format!("{} took more than {LONGEST:?}", shown()))??;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        shown(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// What kubectl prints.
pub async fn kubectl(arguments: &[&str]) -> Result<String> {
    Ok(String::from_utf8(run("kubectl", arguments, &[]).await?)?)
}
