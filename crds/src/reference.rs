//! docs/reference/profilerequest.md, profilearchive.md, profilecomparison.md and profiletrigger.md,
//! written from the schema and the comments on the types.

use kube::CustomResourceExt;
use schemars::schema_for;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{ProfileArchive, ProfileComparison, ProfileRequest, ProfileTrigger, TargetState};

/// The whole page of ProfileRequest.
pub fn request() -> Result<String, serde_json::Error> {
    let mut page = kind::<ProfileRequest>(REQUEST)?;
    page += "\n## States of a pod\n\n| state | meaning |\n|---|---|\n";
    for (state, meaning) in states() {
        page += &format!("| `{state:?}` | {meaning} |\n");
    }
    page += "\n[Reasons](reasons.md) lists the reasons of conditions and of pods.\n";
    Ok(page)
}

/// Each state of a pod, with the comment on it.
fn states() -> Vec<(TargetState, String)> {
    let schema = schema_for!(TargetState);
    let variants = schema.get("oneOf").and_then(Value::as_array);
    let state = |variant: &Value| {
        let state = TargetState::deserialize(variant.get("const")?).ok()?;
        let comment = variant.get("description")?.as_str()?;
        Some((state, comment.replace('\n', " ")))
    };
    variants.into_iter().flatten().filter_map(state).collect()
}

/// The whole page of ProfileArchive.
pub fn archive() -> Result<String, serde_json::Error> {
    kind::<ProfileArchive>(ARCHIVE)
}

/// The whole page of ProfileComparison.
pub fn comparison() -> Result<String, serde_json::Error> {
    let mut page = kind::<ProfileComparison>(COMPARISON)?;
    page += "\n[Reasons](reasons.md#reasons-of-a-comparison) lists the reasons of conditions and verdicts.\n";
    Ok(page)
}

/// The whole page of ProfileTrigger.
pub fn trigger() -> Result<String, serde_json::Error> {
    let mut page = kind::<ProfileTrigger>(TRIGGER)?;
    page += "\n[Reasons](reasons.md#reasons-of-a-trigger) lists the reasons of the condition.\n";
    Ok(page)
}

fn kind<K: CustomResourceExt>(head: &str) -> Result<String, serde_json::Error> {
    let crd = serde_json::to_value(K::crd())?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut page = format!("{GENERATED}\n\n{head}");
    let whole = schema["x-kubernetes-validations"].clone();
    let schema = &schema["properties"];
    page += "\n## spec\n\n| field | type | default | meaning |\n|---|---|---|---|\n";
    fields(&schema["spec"], "", true, &mut page);
    page += "\nThe API server enforces these rules:\n\n";
    for rule in whole.as_array().into_iter().flatten() {
        page += &format!("- {}\n", rule["message"].as_str().unwrap_or_default());
    }
    rules(&schema["spec"], "spec", &mut page);
    page += "\n## status\n\n| field | type | meaning |\n|---|---|---|\n";
    fields(&schema["status"], "", false, &mut page);
    Ok(page)
}

const GENERATED: &str = "<!-- Generated from crds/src by `make generate`; do not edit. -->";

const REQUEST: &str = "# ProfileRequest (phpprof.dev/v1alpha1)

Profiles PHP in running pods for a while and stores one merged pprof. Short name `pprof`, category `phpprof`.
";

const ARCHIVE: &str = "# ProfileArchive (phpprof.dev/v1alpha1)

Opens the stored profiles of a namespace, including those of deleted requests. Category `phpprof`. Each namespace has one, named `profiles`. The operator
creates it with the first request that it accepts there. Users who may `get` it may read every profile of the namespace.

```sh example
kubectl patch profilearchive profiles --type=merge -p '{\"spec\": {\"accessKeyGeneration\": 1}}'   # another key; the old one then opens nothing
```
";

const COMPARISON: &str = "# ProfileComparison (phpprof.dev/v1alpha1)

Says whether HTTP requests take more time than before, and which functions did it. Short name `pcmp`, category `phpprof`. [The guide](../guides/compare-releases.md#in-the-cluster)
has an example. The condition `Complete` says that it has ended; the condition `Regressed` and `status.verdict` have the answer.
";

const TRIGGER: &str = "# ProfileTrigger (phpprof.dev/v1alpha1)

Creates a ProfileRequest when something happens, for instance when an alert of Prometheus fires. Short name `ptrg`, category `phpprof`. [The guide](../guides/triggers.md)
has an example. The fields and rules of `template` are those of a [ProfileRequest](profilerequest.md#spec).
";

/// Fields whose own fields have another page: Kubernetes' own types, and the spec of a request.
const ELSEWHERE: [&str; 3] = ["selector", "conditions", "template"];

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
        if !ELSEWHERE.contains(&name.as_str()) {
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
        if name != "template" {
            rules(field, &format!("{path}.{name}"), page);
        }
    }
    let inner = ["items", "additionalProperties"].map(|inner| schema.get(inner));
    for inner in inner.into_iter().flatten() {
        rules(inner, &format!("{path}[]"), page);
    }
}
