//! docs/reference/profilerequest.md, written from the schema and the comments on the types.

use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::{ProfileRequest, TargetState, documented};

/// The whole page.
pub fn markdown() -> Result<String, serde_json::Error> {
    let crd = serde_json::to_value(ProfileRequest::crd())?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut page = String::from(HEAD);
    page += "\n## spec\n\n| field | type | default | meaning |\n|---|---|---|---|\n";
    fields(&schema["spec"], "", true, &mut page);
    page += "\nThe API server refuses a request that breaks one of these rules:\n\n";
    rules(&schema["spec"], "spec", &mut page);
    page += "\n## status\n\n| field | type | meaning |\n|---|---|---|\n";
    fields(&schema["status"], "", false, &mut page);
    page += "\n## States of a pod\n\n| state | meaning |\n|---|---|\n";
    for (state, meaning) in documented::<TargetState>() {
        page += &format!("| `{state:?}` | {meaning} |\n");
    }
    page += "\nThe reasons of conditions and of pods have [a page of their own](reasons.md).\n";
    Ok(page)
}

const HEAD: &str = "<!-- Generated from crds/src by `make generate`; do not edit. -->

# ProfileRequest (phpprof.dev/v1alpha1)

Profiles PHP in running pods for a while and stores one merged pprof. Short name `pprof`, category `phpprof`.
";

fn fields(schema: &Value, path: &str, with_default: bool, page: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let (kind, inner, path) = match field["type"].as_str() {
            Some("array") => ("array", &field["items"], path + "[]"),
            Some(kind) => (kind, field, path),
            None => ("any", field, path),
        };
        let default = if with_default {
            format!(" {} |", default(field))
        } else {
            String::new()
        };
        page.push_str(&format!(
            "| `{path}` | {kind} |{default} {} |\n",
            sentence(field)
        ));
        // Types of Kubernetes itself have pages of their own.
        if !["selector", "conditions"].contains(&name.as_str()) {
            fields(inner, &path, with_default, page);
        }
    }
}

fn default(field: &Value) -> String {
    match &field["default"] {
        Value::Null => String::new(),
        value => format!("`{value}`"),
    }
}

fn sentence(field: &Value) -> String {
    field["description"]
        .as_str()
        .unwrap_or_default()
        .replace('\n', " ")
        .replace('|', "\\|")
}

fn rules(schema: &Value, path: &str, page: &mut String) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let message = rule["message"].as_str().unwrap_or_default();
        page.push_str(&format!("- `{path}`: {message}\n"));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        rules(field, &format!("{path}.{name}"), page);
    }
    let inner = ["items", "additionalProperties"].map(|inner| schema.get(inner));
    for inner in inner.into_iter().flatten() {
        rules(inner, &format!("{path}[]"), page);
    }
}
