//! Which labels the samples of a request can have, for `run --by`.
//!
//! It is pure.
//!
//! Invariant: a label is refused only if no sample of the request can have it, so a refused command
//! line has created nothing.

use clap::ValueEnum as _;
use kube::api::DynamicObject;
use phpprof_crds::{ProfileMode, ProfileRequestSpec};
use phpprof_profile::{labels, waiting};

use crate::cli::RunLabel;
use crate::failure::{Exit, Failure};

/// Refuses a label that no sample of this request can have.
pub fn check(object: &DynamicObject, key: &str) -> Result<(), Failure> {
    // The API server judges a spec that this plugin does not know completely.
    let Ok(spec) = serde_json::from_value::<ProfileRequestSpec>(object.data["spec"].clone()) else {
        return Ok(());
    };
    let possible = possible(&spec);
    if possible.contains(&key) {
        return Ok(());
    }
    let choose = format!("choose one of these with --by: {}", possible.join(", "));
    let has_labels = spec.mode != ProfileMode::Heap;
    let hint = match of_requests().find(|(known, _)| *known == key && has_labels) {
        Some((_, label)) => format!(
            "add {} to --labels, or its label to spec.labels of the file; or {choose}",
            flag(label)
        ),
        None => choose,
    };
    Err(Failure::new(
        Exit::Usage,
        format!("no sample of this request can have the label {key:?}"),
        hint,
    ))
}

fn possible(spec: &ProfileRequestSpec) -> Vec<&'static str> {
    let of_mode = match spec.mode {
        ProfileMode::Snapshot => labels::OF_SNAPSHOTS.as_slice(),
        _ => &[],
    };
    // The plugin itself adds the last one.
    let fixed = labels::of_samples().chain([waiting::LABEL]);
    let is_asked = |label: RunLabel| label.label().is_some_and(|it| spec.labels.contains(&it));
    // The default labels of a look into heaps have no effect.
    let is_of_requests = spec.mode != ProfileMode::Heap;
    let asked = of_requests().filter(|(_, label)| is_of_requests && is_asked(*label));
    let mut keys: Vec<_> = fixed.chain(of_mode.iter().copied()).collect();
    keys.extend(asked.map(|(key, _)| key));
    keys.sort_unstable();
    keys
}

/// The labels of HTTP requests, each with its key in a profile; a trace has two.
fn of_requests() -> impl Iterator<Item = (&'static str, RunLabel)> {
    let of_key = |key: &str| RunLabel::from_str(&key.replace('_', "-"), false).ok();
    let keys = labels::OF_REQUESTS.into_iter();
    keys.filter_map(move |key| Some((key, of_key(key)?)))
        .chain([(labels::SPAN_ID, RunLabel::TraceID)])
}

/// The label as `--labels` spells it.
fn flag(label: RunLabel) -> String {
    let value = label.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, key: &str, refusal: Option<&str>) {
        let object = json!({"apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest", "metadata": {}, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        match (super::check(&object, key), refusal) {
            (Ok(()), None) => {}
            (Err(failure), Some(part)) => {
                assert_eq!(failure.exit, Exit::Usage);
                assert!(failure.hint.contains(part), "{}", failure.hint);
            }
            (said, _) => panic!("{key}: {said:?}"),
        }
    }

    #[test]
    fn a_label_that_the_request_lacks_is_refused() {
        let target = json!({"podName": "web-1"});
        let with = |labels: Value| json!({"target": target, "labels": labels});
        for key in ["pod", "pid", "waiting", "trace_id", "span_id"] {
            check(with(json!(["TraceID"])), key, None);
        }
        check(
            with(json!(["Route"])),
            "trace_id",
            Some("add trace-id to --labels"),
        );
        check(
            with(json!(["Route"])),
            "span_id",
            Some("add trace-id to --labels"),
        );
        check(
            with(json!(["Route"])),
            "rote",
            Some("choose one of these with --by: container, namespace, php, pid, pod, route, sapi"),
        );
        check(with(json!(["Route"])), "state", Some("choose one of these"));
    }

    #[test]
    fn missing_fields_have_the_api_servers_defaults() {
        let target = json!({"podName": "web-1"});
        check(json!({"target": target}), "script", None);
        check(json!({"target": target, "mode": "Snapshot"}), "state", None);
        let heaps = json!({"target": target, "mode": "Heap"});
        check(heaps.clone(), "pod", None);
        check(
            heaps,
            "script",
            Some("choose one of these with --by: container, namespace, php"),
        );
    }

    #[test]
    fn each_label_of_a_request_can_be_chosen() {
        let keys: Vec<_> = of_requests().map(|(key, _)| key).collect();
        let expected = labels::OF_REQUESTS.into_iter().chain([labels::SPAN_ID]);
        assert_eq!(keys, expected.collect::<Vec<_>>());
        let all = RunLabel::value_variants().iter();
        assert_eq!(all.filter_map(|it| it.label()).count(), keys.len() - 1);
    }

    #[test]
    fn the_api_server_judges_a_newer_spec() {
        let spec = json!({"target": {"podName": "web-1"}, "labels": ["Tenant"]});
        check(spec, "tenant", None);
    }
}
