//! Programs that a test copies and then runs. This process never has such a file open for writing:
//! a child that another test starts at that moment would hold it open until its own `execve`, and
//! the kernel refuses to run a file that is open for writing (ETXTBSY, execve(2)).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Copies a program with its mode, and replaces an existing one.
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let mut command = Command::new("cp");
    let status = command.arg("--preserve=mode").args([from, to]).status();
    ensure!(
        status.context("starting cp")?.success(),
        "copying {} to {}",
        from.display(),
        to.display()
    );
    Ok(())
}
