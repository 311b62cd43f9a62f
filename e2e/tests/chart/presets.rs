//! The chart accepts the values of every example. `cluster/presets.rs` shows their objects to an
//! API server.

use std::process::Command;

use anyhow::{Result, ensure};
use e2e::release;

#[test]
fn the_values_of_every_example_are_accepted() -> Result<()> {
    let root = format!("{}/../examples", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(format!("{root}/values"))? {
        let path = entry?.path().display().to_string();
        check_values(&path)?;
        count += 1;
    }
    ensure!(count >= 5, "{count} files");
    check_values(&format!("{root}/schedules/values.yaml"))
}

fn check_values(file: &str) -> Result<()> {
    let output = Command::new("helm")
        .args(["template", "phpprof", &release::chart()])
        .args([release::KUBE_VERSION, "--values", file])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{file}: {said}");
    Ok(())
}
