//! Compares the older release's chart with the tested one: an upgrade changes nothing that
//! Kubernetes refuses, and loses no data.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::{older, release};
use serde::Deserialize as _;
use serde_json::Value;

use crate::template_of;

/// Values for each form in which the chart can be installed.
const FORMS: [&[&str]; 3] = [
    &[],
    &["store.url=s3://bucket"],
    &["rbac.namespaces={shop,blog}"],
];

/// The immutable fields of an object: by kind, as paths.
const FIXED: [(&str, &[&str]); 6] = [
    ("Deployment", &["/spec/selector"]),
    ("RoleBinding", &["/roleRef"]),
    ("ClusterRoleBinding", &["/roleRef"]),
    (
        "PersistentVolumeClaim",
        &["/spec/accessModes", "/spec/storageClassName"],
    ),
    ("Service", &["/spec/clusterIP"]),
    (
        "CustomResourceDefinition",
        &[
            "/spec/group",
            "/spec/scope",
            "/spec/names/kind",
            "/spec/names/plural",
        ],
    ),
];

/// The objects that a chart makes, by kind, namespace and name.
fn objects(chart: &str, values: &[&str]) -> Result<BTreeMap<String, Value>> {
    let (accepted, text) = template_of(chart, values)?;
    ensure!(accepted, "{text}");
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    let mut objects = BTreeMap::new();
    for object in documents {
        let object = object?;
        let word = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let name = format!(
            "{} {}/{}",
            word("/kind"),
            word("/metadata/namespace"),
            word("/metadata/name")
        );
        objects.insert(name, object);
    }
    Ok(objects)
}

/// The versions of a kind, by name.
fn versions(crd: &Value) -> Result<BTreeMap<&str, &Value>> {
    let versions = crd["spec"]["versions"].as_array().context("no versions")?;
    versions
        .iter()
        .map(|version| Ok((version["name"].as_str().context("no name")?, version)))
        .collect()
}

/// Fields that only the older schema has. The API server would drop them from stored objects.
fn dropped(older: &Value, newer: &Value, path: &str) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, schema) in older["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match &newer["properties"][name] {
            Value::Null => missing.push(path),
            there => missing.extend(dropped(schema, there, &path)),
        }
    }
    if !older["items"].is_null() {
        missing.extend(dropped(
            &older["items"],
            &newer["items"],
            &format!("{path}[]"),
        ));
    }
    missing
}

#[test]
fn an_upgrade_changes_no_immutable_field() -> Result<()> {
    let tree = older::tree()?;
    for form in FORMS {
        let (older, newer) = (
            objects(&older::chart(&tree), form)?,
            objects(&release::chart(), form)?,
        );
        ensure!(older.len() > 10, "{} objects", older.len());
        for (name, before) in &older {
            let after = newer
                .get(name)
                .with_context(|| format!("{form:?}: helm would delete {name}"))?;
            let kind = name.split(' ').next().unwrap_or_default();
            let fixed = FIXED.iter().filter(|(of, _)| *of == kind);
            for path in fixed.flat_map(|(_, paths)| *paths) {
                ensure!(
                    before.pointer(path) == after.pointer(path),
                    "{form:?}: {name}: {path}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn an_upgrade_keeps_versions_fields_and_keys() -> Result<()> {
    let tree = older::tree()?;
    let (older, newer) = (
        objects(&older::chart(&tree), &[])?,
        objects(&release::chart(), &[])?,
    );
    let kinds = older
        .iter()
        .filter(|(name, _)| name.starts_with("CustomResourceDefinition"));
    let mut looked_at = 0;
    for (name, before) in kinds {
        let after = newer.get(name).context("the kind is gone")?;
        ensure!(
            after.pointer("/metadata/annotations/helm.sh~1resource-policy") == Some(&"keep".into()),
            "{name}"
        );
        let after = versions(after)?;
        for (version, before) in versions(before)? {
            let after = after
                .get(version)
                .with_context(|| format!("{name} has no {version}"))?;
            for field in ["served", "storage"] {
                ensure!(before[field] == after[field], "{name} {version}: {field}");
            }
            let [before, after] =
                [before, after].map(|version| &version["schema"]["openAPIV3Schema"]);
            let lost = dropped(before, after, "");
            ensure!(lost.is_empty(), "{name} {version} loses {lost:?}");
            looked_at += 1;
        }
    }
    ensure!(looked_at == 1, "{looked_at} versions");
    let secret = newer.get(&format!(
        "Secret {}/{}-keys",
        release::NAMESPACE,
        release::SERVICE
    ));
    let secret = secret.context("no Secret")?;
    ensure!(
        secret.get("data").is_none() && secret.get("stringData").is_none(),
        "{secret}"
    );
    Ok(())
}

/// `helm upgrade --reuse-values` does this. Without the new values the operator would run with no
/// replica and with limits of zero. helm takes over an object of others only with these
/// (docs/guides/upgrading.md applies the CRDs by kubectl).
#[test]
fn the_crds_name_their_owner() -> Result<()> {
    let objects = objects(&release::chart(), &[])?;
    let crds = objects
        .iter()
        .filter(|(name, _)| name.starts_with("CustomResourceDefinition "));
    let crds: Vec<_> = crds.collect();
    ensure!(crds.len() == 4, "{} CRDs", crds.len());
    for (name, crd) in crds {
        let metadata = &crd["metadata"];
        let release = &metadata["annotations"]["meta.helm.sh/release-name"];
        let namespace = &metadata["annotations"]["meta.helm.sh/release-namespace"];
        ensure!(
            release == "phpprof" && namespace == release::NAMESPACE,
            "{name}: {metadata}"
        );
        ensure!(
            metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm",
            "{name}"
        );
    }
    Ok(())
}

#[test]
fn older_values_are_refused_by_name() -> Result<()> {
    let (tree, mixed) = (older::tree()?, tempfile::tempdir()?);
    let (chart, mixed) = (release::chart(), mixed.path().join("phpprof"));
    let copied = std::process::Command::new("cp")
        .args(["-r", &chart])
        .arg(&mixed)
        .status()?;
    ensure!(copied.success(), "not copied");
    fs::copy(
        format!("{}/values.yaml", older::chart(&tree)),
        mixed.join("values.yaml"),
    )?;
    let (accepted, said) = template_of(&mixed.display().to_string(), &[])?;
    ensure!(!accepted, "accepted");
    for missing in [
        "'replicas'",
        "'openshift'",
        "at '/store/volume': missing property 'accessMode'",
    ] {
        ensure!(said.contains(missing), "{missing} is not in {said}");
    }
    Ok(())
}

/// It goes through all of `values.yaml`, so that the schema has to require values that are added
/// later, too.
#[test]
fn the_schema_covers_each_value() -> Result<()> {
    let read = |file: &str| fs::read_to_string(format!("{}/{file}", release::chart()));
    let values: Value = serde_yaml::from_str(&read("values.yaml")?)?;
    let schema: Value = serde_json::from_str(&read("values.schema.json")?)?;
    let asks = |schema: &Value, name: &String| {
        schema["required"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it == name))
    };
    for name in values.as_object().context("no values")?.keys() {
        ensure!(asks(&schema, name), "{name} is not required");
    }
    for group in ["limits", "images", "relay"] {
        for name in values[group].as_object().context("no group")?.keys() {
            ensure!(
                asks(&schema["properties"][group], name),
                "{group}.{name} is not required"
            );
        }
    }
    Ok(())
}
