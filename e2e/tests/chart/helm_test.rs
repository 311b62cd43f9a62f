//! What `helm test` would start, as the chart renders it. `cluster/helm_test.rs` runs it.

use anyhow::{Context as _, Result, ensure};
use serde_yaml::Value;

use crate::template;

/// The objects of `helm test` are its hooks: an installation creates none of them.
#[test]
fn helm_test_is_strict_and_only_reads() -> Result<()> {
    let (accepted, text) = template(&[
        "images.plugin.tag=v9",
        "imagePullSecrets[0].name=pull",
        "tolerations[0].operator=Exists",
    ])?;
    ensure!(accepted, "{text}");
    let source = "# Source: phpprof/templates/tests/doctor.yaml\n";
    let objects: Vec<Value> = text
        .split("---\n")
        .filter_map(|part| part.strip_prefix(source))
        .map(serde_yaml::from_str)
        .collect::<Result<_, _>>()?;
    let kinds: Vec<&str> = objects
        .iter()
        .filter_map(|it| it["kind"].as_str())
        .collect();
    // Helm's own order of kinds, which its weights follow here.
    ensure!(
        kinds == ["ServiceAccount", "Role", "RoleBinding", "Job"],
        "{kinds:?}"
    );
    for object in &objects {
        let annotations = &object["metadata"]["annotations"];
        ensure!(annotations["helm.sh/hook"] == "test", "{object:?}");
        let policy = annotations["helm.sh/hook-delete-policy"].as_str();
        ensure!(policy == Some("before-hook-creation,hook-succeeded"));
    }
    let rules = objects[1]["rules"].as_sequence().context("no rules")?;
    ensure!(rules.len() == 3, "{rules:?}");
    for rule in rules {
        let verbs = rule["verbs"].as_sequence().context("no verbs")?;
        let is_of_one = rule["resourceNames"].as_sequence().map(Vec::len) == Some(1);
        ensure!(
            verbs.len() == 1 && verbs[0] == "get" && is_of_one,
            "{rule:?}"
        );
    }
    let pod = &objects[3]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    ensure!(container["image"] == "phpprof.dev/kubectl-phpprof:v9");
    ensure!(pod["imagePullSecrets"][0]["name"] == "pull");
    ensure!(pod["tolerations"][0]["operator"] == "Exists");
    ensure!(pod["securityContext"]["runAsNonRoot"] == true);
    let arguments = container["args"].as_sequence().context("no args")?;
    let arguments: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
    ensure!(
        arguments
            == [
                "doctor",
                "--strict",
                "--operator-namespace=phpprof-system",
                "--operator-name=phpprof-operator",
            ]
    );
    Ok(())
}
