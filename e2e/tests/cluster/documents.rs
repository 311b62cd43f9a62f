//! The documents' commands for a cluster, run in their order: the guide to the first profile, and with `FULL=1` every other page that has some.
//!
//! A page is one shell script in a folder that looks like a clone. The namespace `shop` of the documents is the test's own.
//!
//! Does not: install, upgrade or remove phpprof; the chart's tests render what the documents say of that.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::pods::{self, image};
use e2e::{ENABLED, NOT_ENABLED, Scene, alone, calm, is_long_form, say};
use phpprof_documents::{Setup, blocks, pages, root};
use tempfile::TempDir;

const FIRST: &str = "docs/guides/first-profile.md";
/// It deploys what it profiles itself.
const TUTORIAL: &str = "docs/tutorial.md";
/// What the test has done already or does at its end: the namespace, and the shell's way to the cluster.
const DONE_HERE: [&str; 3] = [
    "kubectl create namespace ",
    "kubectl delete namespace ",
    "eval ",
];
/// Two profiles of a minute, and what is between them.
const LONGEST: Duration = Duration::from_secs(420);

/// A page's commands for a cluster, with this namespace in the place of `shop`.
fn script(text: &str, namespace: &str) -> String {
    let blocks = blocks(text).into_iter();
    let commands: String = blocks
        .filter(|block| block.setup() == Some(Setup::Cluster))
        .map(|block| block.text)
        .collect();
    let lines = commands
        .lines()
        .filter(|line| !DONE_HERE.iter().any(|done| line.starts_with(done)));
    let lines: Vec<&str> = lines.collect();
    in_namespace(&lines.join("\n"), namespace)
}

fn in_namespace(text: &str, namespace: &str) -> String {
    ["-n ", "namespace ", "namespace: "]
        .iter()
        .fold(text.to_owned(), |text, before| {
            text.replace(&format!("{before}shop"), &format!("{before}{namespace}"))
        })
}

/// Copies a folder of the clone, with this namespace and the images of this run in its manifests.
fn copy(from: &Path, to: &Path, namespace: &str) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target, namespace)?;
        } else {
            let text = std::fs::read_to_string(entry.path())?;
            let text = text.replace("phpprof.dev/demo:dev", &image("demo"));
            std::fs::write(target, in_namespace(&text, namespace))?;
        }
    }
    Ok(())
}

/// A folder with what the commands name of a clone.
fn clone(namespace: &str) -> Result<TempDir> {
    let folder = TempDir::new()?;
    for name in ["examples", "demo/shop", "demo/k8s"] {
        copy(&root().join(name), &folder.path().join(name), namespace)?;
    }
    Ok(folder)
}

/// Runs a page's commands, as bash does that stops at the first failure.
async fn follow(scene: &Scene, page: &str) -> Result<()> {
    let text = std::fs::read_to_string(root().join(page))?;
    let script = script(&text, &scene.namespace);
    ensure!(
        !script.trim().is_empty(),
        "{page} has no commands for a cluster"
    );
    if page != TUTORIAL {
        scene.deploy("web", 1, pods::php("web")).await?;
    }
    let folder = clone(&scene.namespace)?;
    let mut shell = tokio::process::Command::new("bash");
    shell
        .args(["-euxo", "pipefail", "-c", &script])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LONGEST, shell.output())
        .await
        .with_context(|| format!("{page} took more than {LONGEST:?}"))??;
    ensure!(
        output.status.success(),
        "{page}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    say(&format!("{page}: {} lines", script.lines().count()));
    Ok(())
}

/// The pages with commands for a cluster, but for the first profile's.
fn others() -> Result<Vec<PathBuf>> {
    let pages = pages()?.into_iter().filter(|(page, text)| {
        let has_some = blocks(text)
            .iter()
            .any(|block| block.setup() == Some(Setup::Cluster));
        has_some && page != Path::new(FIRST)
    });
    Ok(pages.map(|(page, _)| page).collect())
}

#[test]
fn the_guide_to_the_first_profile_leads_to_one() -> Result<()> {
    // The guide's own label opts the namespace in.
    calm(NOT_ENABLED, async |scene| follow(scene, FIRST).await)
}

#[test]
fn the_commands_of_every_other_page_run() -> Result<()> {
    if !is_long_form("the commands of all documents") {
        return Ok(());
    }
    // One of them stops all profiling for a moment.
    alone(async |scene| {
        let others = others()?;
        ensure!(others.len() >= 8, "{others:?}");
        for page in others {
            let page = page.display().to_string();
            let text = std::fs::read_to_string(root().join(&page))?;
            let opts_in = script(&text, "own").contains("phpprof.dev/profiling=enabled\n");
            let labels = if opts_in { NOT_ENABLED } else { ENABLED };
            scene
                .beside(labels, async |own| follow(own, &page).await)
                .await?;
        }
        Ok(())
    })
}
