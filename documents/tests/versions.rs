//! The versions of Kubernetes and Helm that tests use are those that `tools/build` builds, and the
//! documents name them.
//!
//! The folders of `tools/kubernetes` are the only list: `make`, the test cluster and the release
//! read it too.

use std::error::Error;
use std::fs;
use std::process::Command;

use phpprof_documents::{pages, root};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FOLDER: &str = "tools/kubernetes";
/// The pages that tell a reader what a cluster needs.
const TOLD: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "charts/phpprof/README.md",
    "docs/guides/first-profile.md",
    "docs/guides/install.md",
    "e2e/cluster/README.md",
];
/// What a page says before the versions.
const SAID: &str = "(tests use ";

fn text(file: &str) -> Result<String> {
    fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}").into())
}

/// The number after 1. in a minor version.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.parse().ok()
}

/// The minor versions of Kubernetes that can be built, the oldest first.
fn versions() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(FOLDER))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    assert!(found.iter().all(|it| minor(it).is_some()), "{found:?}");
    found.sort_by_key(|version| minor(version));
    Ok(found)
}

/// The version of a module that a line of `go.mod` requires.
fn required(file: &str, module: &str) -> Result<String> {
    let all = text(file)?;
    let mut lines = all.lines().map(str::trim);
    let version = lines.find_map(|line| line.strip_prefix(module)?.strip_prefix(" v"));
    let version = version.and_then(|rest| rest.split_whitespace().next());
    Ok(version.ok_or(format!("{file}: no {module}"))?.to_owned())
}

#[test]
fn each_folder_builds_the_version_of_its_name() -> Result<()> {
    for version in versions()? {
        let file = format!("{FOLDER}/{version}/go.mod");
        let exact = required(&file, "k8s.io/kubernetes")?;
        let patch = exact.strip_prefix(&format!("{version}."));
        let patch = patch.ok_or(format!("{file}: {exact}"))?;
        let part = format!("v0.{}.{patch}", version.trim_start_matches("1."));
        let all = text(&file)?;
        let replaced = all.lines().filter_map(|line| line.split_once(" => "));
        let others: Vec<&str> = replaced
            .clone()
            .filter(|(_, new)| !new.ends_with(&format!(" {part}")))
            .map(|(old, _)| old)
            .collect();
        assert!(replaced.count() >= 30, "{file}: parts are missing");
        assert!(others.is_empty(), "{file}: not {part}: {others:?}");
        // One program of one source.
        let program = text(&format!("{FOLDER}/{version}/main.go"))?;
        assert_eq!(program, text(&format!("{FOLDER}/main.go"))?, "{version}");
    }
    Ok(())
}

/// The exit code and the output of a script that was told this version: the folder of its programs,
/// or a refusal.
fn chosen(version: &str) -> Result<(Option<i32>, String)> {
    let cache = tempfile::tempdir()?;
    let script = ". tools/cache.sh && printf %s \"${PATH%%:*}\"";
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", script]);
    shell.env("PHPPROF_CACHE", cache.path());
    let output = shell
        .env("KUBERNETES", version)
        .current_dir(root())
        .output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said)?.replace(&cache.path().display().to_string(), "");
    Ok((output.status.code(), said.trim_end().to_owned()))
}

#[test]
fn scripts_take_only_versions_with_a_folder() -> Result<()> {
    let versions = versions()?;
    for version in &versions {
        let programs = format!("/bin/kubernetes-{version}");
        assert_eq!(chosen(version)?, (Some(0), programs));
    }
    let all = versions.join(" ");
    for wrong in ["1.3", "1.36", "v1.37", "1.34 1.37", "main.go", "."] {
        let said = format!(
            "KUBERNETES={wrong} is not a version that can be built here; try one of: {all}"
        );
        assert_eq!(chosen(wrong)?, (Some(2), said));
    }
    Ok(())
}

#[test]
fn documents_name_the_tested_versions_of_kubernetes() -> Result<()> {
    let versions = versions()?;
    let newest = versions.last().ok_or("no version")?;
    let all = versions.join(" and ");
    for (page, text) in pages()? {
        let told = text.matches(&format!("{SAID}{all}")).count();
        let said = text.matches(&format!("{SAID}1.")).count();
        assert_eq!(told, said, "{}: tests use {all}", page.display());
        let is_told = TOLD.iter().any(|it| page == **it);
        assert!(!is_told || told > 0, "{}: {SAID}{all}", page.display());
    }
    let help = text("Makefile")?;
    let mut help = help
        .lines()
        .filter(|line| line.starts_with("# KUBERNETES="));
    let default = format!("; {newest} if none is given");
    assert!(help.any(|line| line.ends_with(&default)), "{default}");
    for page in ["CONTRIBUTING.md", "e2e/cluster/README.md"] {
        let older = format!("KUBERNETES={} make", versions[0]);
        let text = text(page)?;
        assert!(text.contains(&older) && text.contains(newest), "{page}");
    }
    Ok(())
}

#[test]
fn documents_name_the_oldest_kubernetes_of_the_chart() -> Result<()> {
    let chart: serde_yaml::Value = serde_yaml::from_str(&text("charts/phpprof/Chart.yaml")?)?;
    let range = chart["kubeVersion"].as_str().ok_or("no kubeVersion")?;
    let oldest = range
        .strip_prefix(">=")
        .and_then(|it| it.strip_suffix(".0-0"));
    let oldest = oldest.ok_or(range)?;
    let first = versions()?[0].clone();
    assert!(minor(oldest) <= minor(&first), "{first} is too old");
    for page in ["docs/guides/first-profile.md", "docs/guides/install.md"] {
        let said = format!("Kubernetes {oldest} or later {SAID}");
        assert!(text(page)?.contains(&said), "{page}: {said}");
    }
    let release = text("e2e/src/release.rs")?;
    assert!(release.contains(&format!("--kube-version={oldest}\"")));
    Ok(())
}

#[test]
fn documents_name_the_tested_versions_of_helm() -> Result<()> {
    let page = text("docs/guides/upgrading.md")?;
    for (file, module) in [
        ("tools/helm/go.mod", "helm.sh/helm/v3"),
        ("tools/helm4/go.mod", "helm.sh/helm/v4"),
    ] {
        let said = format!("tests use {})", required(file, module)?);
        assert!(page.contains(&said), "{module}: {said}");
    }
    Ok(())
}
