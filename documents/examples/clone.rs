//! Runs the documents' commands for a clone in this clone. What they install goes to a separate
//! folder. `make commands`.
//!
//! It does not run `make`: its targets are tests, or `make test-full` runs them
//! ([`phpprof_documents::runs`] names those that it leaves out).

use std::error::Error;
use std::path::Path;
use std::process::Command;

use phpprof_documents::{Setup, pages, root, script};

/// Where the documents install programs.
const FOLDER: &str = "/usr/local/bin";
/// Measurements, and commands that `make` itself runs.
const NOT_HERE: [&str; 3] = ["make ", "BENCH", "profiler-image/bench/"];

/// A page's commands for a clone, changed to install into this folder.
fn commands(text: &str, folder: &Path) -> String {
    let script = script(text, &[Setup::Build], 0);
    let here = script
        .lines()
        .filter(|line| !NOT_HERE.iter().any(|begin| line.starts_with(begin)));
    let lines: Vec<String> = here
        .map(|line| line.replace(FOLDER, &folder.display().to_string()))
        .collect();
    lines.join("\n")
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{others}", folder.path().display());
    let mut count = 0;
    for (page, text) in pages()? {
        let commands = commands(&text, folder.path());
        if commands.is_empty() {
            continue;
        }
        println!("    {}", page.display());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", &commands]);
        let status = shell.current_dir(root()).env("PATH", &path).status()?;
        if !status.success() {
            return Err(format!("{}: {status} of\n{commands}", page.display()).into());
        }
        count += 1;
    }
    if count < 2 {
        return Err(format!("{count} pages with commands for a clone").into());
    }
    Ok(())
}
