//! What helm prints after an installation, as the chart has it.

use anyhow::{Result, ensure};
use e2e::release;

/// These name their namespace in what they create or label.
const NAMED_OTHERWISE: [&str; 2] = ["kubectl create -f -", "kubectl label namespace"];

/// A reader's context may have any namespace.
#[test]
fn each_command_of_the_notes_names_its_namespace() -> Result<()> {
    let notes = std::fs::read_to_string(format!("{}/templates/NOTES.txt", release::chart()))?;
    let commands = notes.lines().map(str::trim);
    let commands: Vec<&str> = commands
        .filter(|line| line.starts_with("kubectl "))
        .filter(|line| !NAMED_OTHERWISE.iter().any(|begin| line.starts_with(begin)))
        .collect();
    ensure!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        let names = [" --namespace ", " -n "];
        ensure!(names.iter().any(|flag| command.contains(flag)), "{command}");
    }
    Ok(())
}
