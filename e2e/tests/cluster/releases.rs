//! The life of a release as the documentation describes it: installed, upgraded, removed. Only with
//! `FULL=1`, because it removes the cluster's release.
//!
//! Does not: install with a cloud's values. There is no cloud here, so only the API server checks
//! them.
//!
//! Invariant: at the end a release is installed, and the next test upgrades it to its own values.

use anyhow::Result;
use e2e::{Fixture, NOT_ENABLED, exclusive, pods, release};
use phpprof_documents::{FIRST, Setup, root, script};

use crate::documents::{clone, in_namespace, run};

/// The pages, in an order in which each finds the state that it needs: no release, one to upgrade,
/// one to remove.
const PAGES: [&str; 9] = [
    "examples/README.md",
    FIRST,
    "docs/guides/upgrading.md",
    "docs/guides/schedules.md",
    "docs/guides/rollouts.md",
    "docs/guides/uninstall.md",
    "docs/guides/install.md",
    "docs/guides/restricted-namespaces.md",
    "README.md",
];
const REGISTRY: &str = "registry.example.org/phpprof";
/// Values that a reader writes into a file.
const IMAGES: &str = "
images:
  operator: {repository: registry.example.org/phpprof/operator}
  sampler: {repository: registry.example.org/phpprof/phpprof}
  plugin: {repository: registry.example.org/phpprof/kubectl-phpprof}
";

/// Where the images of this run are.
fn with_images(text: &str) -> String {
    let operator = pods::image("operator");
    let registry = operator
        .rsplit_once('/')
        .map_or("", |(registry, _)| registry);
    text.replace(REGISTRY, registry)
}

/// A page's commands for the release. Those for a cloud stop before the installation.
fn commands(text: &str) -> String {
    let of_cloud = script(text, &[Setup::Cloud], 1)
        .replace("helm install ", "helm install --dry-run=server ")
        .replace(
            "helm upgrade --install ",
            "helm upgrade --install --dry-run=server ",
        );
    of_cloud + &script(text, &[Setup::Release], 1)
}

async fn follow(fixture: &Fixture, page: &str, helm: &str) -> Result<()> {
    let text = std::fs::read_to_string(root().join(page))?;
    let folder = clone(&fixture.namespace)?;
    std::fs::write(folder.path().join("images.yaml"), with_images(IMAGES))?;
    let commands = in_namespace(&with_images(&commands(&text)), &fixture.namespace);
    let helm = format!("helm() {{ command {helm} \"$@\"; }}\n");
    run(page, &(helm + &commands), folder.path()).await
}

/// Follows the pages with this program as `helm`.
fn follow_all(helm: &str) -> Result<()> {
    exclusive(async |fixture| {
        release::uninstall().await?;
        for page in PAGES {
            fixture
                .beside(NOT_ENABLED, async |own| follow(own, page, helm).await)
                .await?;
        }
        Ok(())
    })
}

#[test]
fn every_page_about_the_release_is_tested() -> Result<()> {
    for (page, text) in phpprof_documents::pages()? {
        let page = page.display().to_string();
        let has_some = !commands(&text).is_empty();
        anyhow::ensure!(has_some == PAGES.contains(&page.as_str()), "{page}");
    }
    Ok(())
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn helm_3_commands_of_the_documents_run() -> Result<()> {
        follow_all("helm")
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn helm_4_commands_of_the_documents_run() -> Result<()> {
        follow_all(release::HELM_4)
    }
}
