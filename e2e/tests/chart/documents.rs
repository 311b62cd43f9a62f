//! Renders each `helm install` and `helm upgrade` of the documentation with its values: the chart
//! accepts all. `cluster/releases.rs` runs them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use e2e::release;
use phpprof_documents::{all_commands, root};

/// Values that a reader writes into a file of their own.
const FILES: [(&str, &str); 2] = [
    (
        "images.yaml",
        "images:\n  sampler: {repository: registry.example.org/phpprof/phpprof}\n",
    ),
    ("FILE", "replicas: 1\n"),
];
/// Flags of `helm install` that `helm template` does not know.
const OF_INSTALLATION: [&str; 6] = [
    "--install",
    "--wait",
    "--create-namespace",
    "--reset-then-reuse-values",
    "--reuse-values",
    "--timeout",
];

/// The arguments of `helm template` that render what such a command installs.
fn template(arguments: &[String], folder: &Path) -> Vec<String> {
    let mut said = vec!["template".to_owned(), release::KUBE_VERSION.to_owned()];
    for word in &arguments[1..] {
        let name = word.split('=').next().unwrap_or_default();
        if OF_INSTALLATION.contains(&name) {
            continue;
        }
        let own = FILES.iter().any(|(file, _)| file == word);
        let is_path = word.starts_with("charts/") || word.starts_with("examples/");
        said.push(match word.as_str() {
            "charts/phpprof" => release::chart(),
            _ if own => folder.join(word).display().to_string(),
            _ if is_path => root().join(word).display().to_string(),
            word => word.to_owned(),
        });
    }
    said
}

#[test]
fn the_chart_takes_what_the_documents_install() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    for (file, text) in FILES {
        std::fs::write(folder.path().join(file), text)?;
    }
    let mut count = 0;
    for (page, line, _, command) in all_commands()? {
        let Some(arguments) = command.arguments_of(&["helm"]) else {
            continue;
        };
        let installs = ["install", "upgrade"].contains(&arguments[0].as_str());
        if !installs || !arguments.iter().any(|word| word == "charts/phpprof") {
            continue;
        }
        let output = Command::new("helm")
            .args(template(arguments, folder.path()))
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}:{line}: {said}", page.display());
        count += 1;
    }
    ensure!(count >= 8, "{count} commands");
    Ok(())
}
