//! What GitHub, rustup and editors read of the repository: they would ignore a file that is wrong,
//! and tell nobody.
//!
//! `make style` also lints the workflows (actionlint).

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use phpprof_documents::root;
use serde_yaml::Value;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn text(file: &str) -> Result<String> {
    fs::read_to_string(root().join(file)).map_err(|error| format!("{file}: {error}").into())
}

fn yaml(file: &str) -> Result<Value> {
    serde_yaml::from_str(&text(file)?).map_err(|error| format!("{file}: {error}").into())
}

/// The files of a folder, by their paths from the project's folder.
fn files(folder: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder))? {
        let name = entry?.file_name();
        found.push(format!("{folder}/{}", name.to_string_lossy()));
    }
    Ok(found)
}

/// Each value of this key, at any depth.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Mapping(map) => {
            for (name, value) in map {
                match value.as_str() {
                    Some(value) if name == key => found.push(value),
                    _ => all(value, key, found),
                }
            }
        }
        Value::Sequence(values) => values.iter().for_each(|value| all(value, key, found)),
        _ => {}
    }
}

#[test]
fn actions_are_pinned_by_commit() -> Result<()> {
    let mut count = 0;
    for file in files(".github/workflows")? {
        let (parsed, text) = (yaml(&file)?, text(&file)?);
        let mut actions = Vec::new();
        all(&parsed, "uses", &mut actions);
        for action in actions {
            let commit = action.split('@').nth(1).unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            let has_release = text.contains(&format!("{action} # v"));
            assert!(is_commit && has_release, "{file}: {action}");
            count += 1;
        }
    }
    assert!(count >= 8, "{count} actions");
    Ok(())
}

#[test]
fn workflows_name_their_rights() -> Result<()> {
    for file in files(".github/workflows")? {
        let workflow = yaml(&file)?;
        let rights = workflow["permissions"].as_mapping();
        let rights = rights.unwrap_or_else(|| panic!("{file}: no permissions"));
        let writes = rights.values().any(|right| right == "write");
        assert!(!writes, "{file}: a right to write belongs to one job");
    }
    Ok(())
}

#[test]
fn pull_requests_run_each_concern_on_both_architectures() -> Result<()> {
    let workflow = yaml(".github/workflows/pull-request.yaml")?;
    let jobs = workflow["jobs"].as_mapping().unwrap();
    let names: BTreeSet<&str> = jobs.keys().filter_map(Value::as_str).collect();
    assert_eq!(
        names,
        ["chart", "docs", "lint", "oldest", "pure"]
            .into_iter()
            .collect()
    );
    let mut commands = Vec::new();
    all(&workflow, "run", &mut commands);
    let makefile = text("Makefile")?;
    for command in commands.iter().filter_map(|it| it.strip_prefix("make ")) {
        assert!(makefile.contains(&format!("\n{command}:")), "{command}");
    }
    let machines = workflow["jobs"]["pure"]["strategy"]["matrix"]["machine"].as_sequence();
    let machines = machines.unwrap().iter().map(|it| it["name"].as_str());
    assert_eq!(machines.collect::<Vec<_>>(), [Some("amd64"), Some("arm64")]);
    Ok(())
}

#[test]
fn workflows_build_with_the_oldest_rust() -> Result<()> {
    let cargo = text("Cargo.toml")?;
    let oldest = cargo
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let workflow = yaml(".github/workflows/pull-request.yaml")?;
    let tested = workflow["jobs"]["oldest"]["env"]["RUSTUP_TOOLCHAIN"].as_str();
    assert_eq!(oldest.unwrap().trim_matches('"'), tested.unwrap());
    let release = yaml(".github/workflows/release.yaml")?;
    assert_eq!(
        workflow["env"]["RUSTUP_TOOLCHAIN"],
        release["jobs"]["release"]["env"]["RUSTUP_TOOLCHAIN"]
    );
    let file = text("rust-toolchain.toml")?;
    let settings: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        settings,
        ["[toolchain]", r#"components = ["clippy", "rustfmt"]"#]
    );
    Ok(())
}

#[test]
fn issue_forms_have_what_github_asks_for() -> Result<()> {
    let mut count = 0;
    for file in files(".github/ISSUE_TEMPLATE")? {
        let form = yaml(&file)?;
        if file.ends_with("config.yml") {
            assert!(form["blank_issues_enabled"].is_bool());
            continue;
        }
        for field in ["name", "description"] {
            assert!(form[field].is_string(), "{file}: {field}");
        }
        let mut ids = BTreeSet::new();
        for part in form["body"].as_sequence().unwrap() {
            let kind = part["type"].as_str().unwrap();
            let (attributes, id) = (&part["attributes"], part["id"].as_str());
            match kind {
                "markdown" => assert!(attributes["value"].is_string(), "{file}"),
                "input" | "textarea" => {
                    assert!(attributes["label"].is_string(), "{file}: {id:?}");
                    assert!(ids.insert(id.unwrap()), "{file}: two of {id:?}");
                }
                other => panic!("{file}: {other}"),
            }
        }
        assert!(!ids.is_empty(), "{file}");
        count += 1;
    }
    assert_eq!(count, 3);
    assert!(text(".github/pull_request_template.md")?.contains("- [ ] "));
    Ok(())
}

/// Every folder below with this file, as dependabot names it. Hidden folders and what is built have
/// none.
fn folders_with(name: &str, folder: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root().join(folder))? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let is_built = file.starts_with('.') || file == "target" || file == "node_modules";
        if entry.file_type()?.is_dir() && !is_built {
            folders_with(name, &folder.join(file), found)?;
        } else if file == name {
            found.insert(Path::new("/").join(folder));
        }
    }
    Ok(())
}

#[test]
fn dependencies_are_renewed_wherever_there_are_some() -> Result<()> {
    let config = yaml(".github/dependabot.yml")?;
    assert_eq!(config["version"], 2);
    let folders_of = |system: &str| -> Vec<String> {
        let updates = config["updates"].as_sequence().unwrap().iter();
        let update = updates.filter(|update| update["package-ecosystem"] == system);
        let (mut found, update) = (Vec::new(), update.collect::<Vec<_>>());
        assert!(!update.is_empty(), "{system}");
        for update in update {
            match update["directories"].as_sequence() {
                Some(all) => found.extend(all.iter().filter_map(Value::as_str)),
                None => found.push(update["directory"].as_str().unwrap()),
            }
        }
        found.into_iter().map(str::to_owned).collect()
    };
    let is_in = |folder: &Path, patterns: &[String]| {
        patterns
            .iter()
            .any(|pattern| match pattern.strip_suffix("/*") {
                Some(parent) => folder.parent() == Some(Path::new(parent)),
                None => folder == Path::new(pattern),
            })
    };
    for (system, name, least) in [
        ("cargo", "Cargo.lock", 1),
        ("gomod", "go.mod", 10),
        ("npm", "package.json", 3),
    ] {
        let (patterns, mut found) = (folders_of(system), BTreeSet::new());
        folders_with(name, Path::new(""), &mut found)?;
        assert!(found.len() >= least, "{name}: {found:?}");
        let missing: Vec<_> = found.iter().filter(|it| !is_in(it, &patterns)).collect();
        assert!(missing.is_empty(), "{system}: {missing:?}");
    }
    for system in ["github-actions", "docker"] {
        for folder in folders_of(system) {
            assert!(root().join(folder.trim_start_matches('/')).is_dir());
        }
    }
    Ok(())
}

#[test]
fn dev_container_has_a_new_enough_rust() -> Result<()> {
    let container: serde_json::Value =
        serde_json::from_str(&text(".devcontainer/devcontainer.json")?).unwrap();
    let file = container["build"]["dockerfile"].as_str().unwrap();
    let recipe = text(&format!(".devcontainer/{file}"))?;
    let user = container["remoteUser"].as_str().unwrap();
    assert!(recipe.contains(&format!("\nUSER {user}\n")), "{user}");
    // Tools are of the versions that the workflows use.
    let (pull, release) = (
        text(".github/workflows/pull-request.yaml")?,
        yaml(".github/workflows/release.yaml")?,
    );
    let rust = release["jobs"]["release"]["env"]["RUSTUP_TOOLCHAIN"].as_str();
    let rust = rust.unwrap().rsplit_once('.').unwrap().0;
    assert!(recipe.contains(&format!("\nFROM rust:{rust}-")), "{rust}");
    let nextest = recipe
        .lines()
        .find_map(|line| line.strip_prefix("RUN pipx "));
    assert!(pull.contains(nextest.unwrap()), "{nextest:?}");
    Ok(())
}

#[test]
fn editorconfig_has_rust_and_go() -> Result<()> {
    let text = text(".editorconfig")?;
    assert!(text.lines().any(|line| line == "root = true"));
    for (section, line) in [
        ("[*.rs]", "indent_size = 4"),
        ("[{*.go,Makefile,go.mod}]", "indent_style = tab"),
    ] {
        let lines = text.lines().skip_while(|it| *it != section).skip(1);
        let mut lines = lines.take_while(|it| !it.starts_with('['));
        assert!(lines.any(|it| it == line), "{section}: {line}");
    }
    Ok(())
}

/// What is in this annotation of the chart: a list, as YAML within YAML.
fn annotation(chart: &Value, name: &str) -> Result<Vec<Value>> {
    let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str();
    Ok(serde_yaml::from_str(text.ok_or(name)?)?)
}

#[test]
fn chart_has_what_registries_show() -> Result<()> {
    let (chart, values) = (
        yaml("charts/phpprof/Chart.yaml")?,
        yaml("charts/phpprof/values.yaml")?,
    );
    let icon = chart["icon"]
        .as_str()
        .and_then(|url| url.strip_prefix("https://phpprof.dev/"));
    assert!(text(icon.ok_or("no icon")?)?.starts_with("<svg"));

    let images = annotation(&chart, "images")?;
    let names: BTreeSet<&str> = images
        .iter()
        .filter_map(|it| it["image"].as_str())
        .collect();
    let version = chart["appVersion"].as_str().ok_or("no appVersion")?;
    let repositories = ["operator", "sampler", "plugin"].map(|name| {
        let repository = values["images"][name]["repository"].as_str();
        format!("{}:{version}", repository.unwrap_or_default())
    });
    assert_eq!(names, repositories.iter().map(String::as_str).collect());

    let listed = annotation(&chart, "crds")?;
    let mut defined = Vec::new();
    for file in files("crds")?.iter().filter(|file| file.ends_with(".yaml")) {
        let crd = yaml(file)?;
        let (name, kind) = (&crd["metadata"]["name"], &crd["spec"]["names"]["kind"]);
        let version = &crd["spec"]["versions"][0]["name"];
        let is_listed = listed
            .iter()
            .any(|it| it["name"] == *name && it["kind"] == *kind && it["version"] == *version);
        assert!(is_listed, "{file}");
        defined.push(kind.clone());
    }
    assert_eq!(listed.len(), defined.len());
    for example in annotation(&chart, "crdsExamples")? {
        assert!(defined.contains(&example["kind"]), "{example:?}");
    }
    let kinds = [
        "added",
        "changed",
        "deprecated",
        "removed",
        "fixed",
        "security",
    ];
    let changes = annotation(&chart, "changes")?;
    let is_known = |change: &Value| {
        change["kind"]
            .as_str()
            .is_some_and(|it| kinds.contains(&it))
    };
    assert!(!changes.is_empty() && changes.iter().all(is_known));
    Ok(())
}
