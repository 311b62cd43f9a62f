//! The generated files in the repository match what the types generate today.

use std::{fs, path::Path};

use kube::CustomResourceExt as _;
use phpprof_crds::{
    NAMESPACE_ENABLED, NAMESPACE_LABEL, ProfileArchive, ProfileComparison, ProfileRequest,
    ProfileTrigger, RequestReason, reference,
};
use serde_json::Value;

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(file).unwrap_or_default()
}

fn check(path: &str, expected: &str) {
    assert!(
        read(path) == expected,
        "{path} is stale; run `make generate` and commit it"
    );
}

#[test]
fn crds_of_repository_and_chart_are_generated() {
    let request = phpprof_crds::crd_yaml::<ProfileRequest>().unwrap();
    let archive = phpprof_crds::crd_yaml::<ProfileArchive>().unwrap();
    let comparison = phpprof_crds::crd_yaml::<ProfileComparison>().unwrap();
    let trigger = phpprof_crds::crd_yaml::<ProfileTrigger>().unwrap();
    for folder in ["crds", "charts/phpprof/files"] {
        check(&format!("{folder}/profilerequest.yaml"), &request);
        check(&format!("{folder}/profilearchive.yaml"), &archive);
        check(&format!("{folder}/profilecomparison.yaml"), &comparison);
        check(&format!("{folder}/profiletrigger.yaml"), &trigger);
    }
}

#[test]
fn the_reference_pages_are_generated_from_the_types() {
    let (request, archive) = (reference::request(), reference::archive());
    check("docs/reference/profilerequest.md", &request.unwrap());
    check("docs/reference/profilearchive.md", &archive.unwrap());
    let comparison = reference::comparison().unwrap();
    check("docs/reference/profilecomparison.md", &comparison);
    let trigger = reference::trigger().unwrap();
    check("docs/reference/profiletrigger.md", &trigger);
}

/// Places below a schema that can be of any length.
fn unbounded(schema: &Value, path: &str, found: &mut Vec<String>) {
    let has = |bound: &str| schema.get(bound).is_some();
    let is_bounded = match schema["type"].as_str() {
        Some("string") => has("maxLength") || has("enum") || schema["format"] == "date-time",
        Some("array") => has("maxItems"),
        Some("object") => has("maxProperties") || !has("additionalProperties"),
        Some(_) => true,
        None => false,
    };
    if !is_bounded {
        found.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        unbounded(field, &format!("{path}.{name}"), found);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(inner) {
            unbounded(inner, &format!("{path}[]"), found);
        }
    }
}

#[test]
fn fields_of_any_length_are_bounded() {
    for crd in [
        ProfileRequest::crd(),
        ProfileArchive::crd(),
        ProfileComparison::crd(),
        ProfileTrigger::crd(),
    ] {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let mut found = Vec::new();
        for part in ["spec", "status"] {
            unbounded(&schema[part], part, &mut found);
        }
        assert_eq!(found, [""; 0]);
    }
}

/// Fields of a schema that are numbers, with their rules.
fn numbers(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["type"] == "integer" || field["type"] == "number" {
            let rules = &field["x-kubernetes-validations"];
            found.push((path.clone(), rules[0]["rule"].clone()));
        }
        numbers(field, &path, found);
    }
}

/// The API server accepts any number under `format: int32`, but the operator cannot read a request
/// whose number does not fit.
#[test]
fn numbers_of_specs_are_bounded() {
    for (crd, count) in [
        (ProfileRequest::crd(), 8),
        (ProfileComparison::crd(), 12),
        (ProfileTrigger::crd(), 11),
    ] {
        let crd = serde_json::to_value(crd).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        let mut found = Vec::new();
        numbers(&schema["spec"], "spec", &mut found);
        assert_eq!(found.len(), count);
        for (path, rule) in found {
            let rule = rule.as_str().unwrap_or_default();
            assert!(
                rule.starts_with("self >") && rule.contains(" && self <= "),
                "{path}: {rule}"
            );
        }
    }
}

#[test]
fn the_remedy_of_a_namespace_has_its_label() {
    let label = format!("{NAMESPACE_LABEL}={NAMESPACE_ENABLED}");
    for reason in [
        RequestReason::NamespaceNotEnabled,
        RequestReason::ProfilingDisabled,
    ] {
        assert!(reason.remedy().unwrap().contains(&label), "{reason}");
    }
}
