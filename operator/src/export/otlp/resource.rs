//! What OTLP calls a resource: the attributes that say which PHP in which pod a profile is of.
//!
//! Names are those of OpenTelemetry's semantic conventions (the registry of attributes). The
//! runtime's name and version are what opentelemetry-php's detector sets
//! (`src/SDK/Resource/Detectors/ProcessRuntime.php`): `php_sapi_name()` and `PHP_VERSION`.
//!
//! Invariant: no key occurs twice, and no value is empty.

use std::str::FromStr;

use kube::ResourceExt as _;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use phpprof_crds::{ProfileRequest, TargetStatus};

use crate::export::otlp::convert::ProfiledEngine;
use crate::export::otlp::dictionary::OtlpValue;
use crate::export::series::workload;

/// Attributes of the administrator.
pub const MOST_ATTRIBUTES: usize = 20;
const LONGEST_NAME: usize = 255;
const LONGEST_VALUE: usize = 2048;

/// Attributes that the operator sets. The kinds of workloads are those that the semantic
/// conventions have an attribute for.
const OURS: [&str; 19] = [
    "service.name",
    "service.namespace",
    "service.instance.id",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.container.name",
    "k8s.node.name",
    "k8s.deployment.name",
    "k8s.statefulset.name",
    "k8s.daemonset.name",
    "k8s.replicaset.name",
    "k8s.job.name",
    "container.id",
    "process.runtime.name",
    "process.runtime.version",
    "telemetry.sdk.name",
    "telemetry.sdk.language",
    "telemetry.sdk.version",
];

/// An attribute that the administrator adds to every resource, as NAME=VALUE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpAttribute {
    pub name: String,
    pub value: String,
}

impl FromStr for OtlpAttribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("an attribute must be NAME=VALUE")?;
        let is_legal = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
        if name.is_empty() || value.is_empty() || !name.chars().all(is_legal) {
            return Err(format!(
                "{text:.40?} is not an attribute: use a value, and for its name letters, digits, dots, _, - and /"
            ));
        }
        if OURS.contains(&name) {
            return Err(format!("every resource already has the attribute {name}"));
        }
        if name.len() > LONGEST_NAME || value.len() > LONGEST_VALUE {
            return Err(format!(
                "attribute {name:.20}: a name has at most {LONGEST_NAME} bytes, a value {LONGEST_VALUE}"
            ));
        }
        Ok(OtlpAttribute {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// The attribute of the workload's name. Pods that were chosen by name or selector have none: the
/// operator does not guess an owner.
fn of_workload(request: &ProfileRequest) -> Option<&'static str> {
    let workload = request.spec.target.workload_ref.as_ref()?;
    Some(match &*workload.kind {
        "Deployment" => "k8s.deployment.name",
        "StatefulSet" => "k8s.statefulset.name",
        "DaemonSet" => "k8s.daemonset.name",
        "ReplicaSet" => "k8s.replicaset.name",
        "Job" => "k8s.job.name",
        _ => return None,
    })
}

/// The resource of an engine of this request.
pub fn resource(
    request: &ProfileRequest,
    engine: &ProfiledEngine,
    extra: &[OtlpAttribute],
) -> Resource {
    let status = request.status.as_ref();
    let mut targets = status.iter().flat_map(|status| &status.targets);
    let target = targets.find(|it| is_of(it, engine));
    let namespace = request.namespace().unwrap_or_default();
    let name = workload(&request.spec.target);
    let instance = [&*namespace, &engine.pod, &engine.container].join(".");
    let container_id = target.map_or("", |target| &target.container_id);
    // Without the runtime's scheme, as in OpenTelemetry's detectors.
    let container_id = container_id.rsplit('/').next().unwrap_or_default();
    let ours = [
        ("service.name", &*name),
        ("service.namespace", &namespace),
        ("service.instance.id", &instance),
        ("k8s.namespace.name", &namespace),
        (of_workload(request).unwrap_or_default(), &name),
        ("k8s.pod.name", &engine.pod),
        ("k8s.pod.uid", target.map_or("", |target| &target.pod_uid)),
        ("k8s.container.name", &engine.container),
        (
            "k8s.node.name",
            target.map_or("", |target| &target.node_name),
        ),
        ("container.id", container_id),
        ("process.runtime.name", &engine.sapi),
        ("process.runtime.version", &engine.version),
        ("telemetry.sdk.name", "phpprof"),
        ("telemetry.sdk.language", "php"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    let extra = extra.iter().map(|it| (&*it.name, &*it.value));
    let all = ours.into_iter().chain(extra);
    let attribute = |(key, value): (&str, &str)| KeyValue {
        key: key.to_owned(),
        value: Some(OtlpValue::Text(value.to_owned()).into()),
        key_strindex: 0,
    };
    Resource {
        attributes: all
            .filter(|(key, value)| !key.is_empty() && !value.is_empty())
            .map(attribute)
            .collect(),
        ..Resource::default()
    }
}

fn is_of(target: &TargetStatus, engine: &ProfiledEngine) -> bool {
    target.pod_name == engine.pod && target.container_name == engine.container
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use phpprof_crds::ProfileRequestStatus;
    use serde_json::json;

    use super::*;
    use crate::testing::request;

    fn found(request: &ProfileRequest, engine: &ProfiledEngine) -> BTreeMap<String, String> {
        let extra = ["k8s.cluster.name=prod".parse().unwrap()];
        let attributes = resource(request, engine, &extra).attributes;
        let count = attributes.len();
        let text = |it: KeyValue| match it.value.and_then(|value| value.value) {
            Some(Value::StringValue(text)) => (it.key, text),
            other => panic!("{other:?}"),
        };
        let found: BTreeMap<_, _> = attributes.into_iter().map(text).collect();
        assert_eq!(found.len(), count, "a key occurs twice");
        found
    }

    fn of(kind: &str) -> ProfileRequest {
        request(json!({"target": {"workloadRef": {
            "apiVersion": "apps/v1", "kind": kind, "name": "web",
        }}}))
    }

    #[test]
    fn a_resource_names_service_pod_and_runtime() {
        let mut request = of("Deployment");
        request.status = Some(ProfileRequestStatus {
            targets: vec![TargetStatus {
                pod_name: "web-1".into(),
                pod_uid: "0b1c".into(),
                node_name: "node-a".into(),
                container_name: "fpm".into(),
                container_id: "containerd://abc".into(),
                ..TargetStatus::default()
            }],
            ..ProfileRequestStatus::default()
        });
        let engine = ProfiledEngine {
            pod: "web-1".to_owned(),
            container: "fpm".to_owned(),
            version: "8.4.11".to_owned(),
            sapi: "fpm-fcgi".to_owned(),
        };
        let expected = [
            ("container.id", "abc"),
            ("k8s.cluster.name", "prod"),
            ("k8s.container.name", "fpm"),
            ("k8s.deployment.name", "web"),
            ("k8s.namespace.name", "shop"),
            ("k8s.node.name", "node-a"),
            ("k8s.pod.name", "web-1"),
            ("k8s.pod.uid", "0b1c"),
            ("process.runtime.name", "fpm-fcgi"),
            ("process.runtime.version", "8.4.11"),
            ("service.instance.id", "shop.web-1.fpm"),
            ("service.name", "web"),
            ("service.namespace", "shop"),
            ("telemetry.sdk.language", "php"),
            ("telemetry.sdk.name", "phpprof"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found(&request, &engine), BTreeMap::from(expected));
    }

    #[test]
    fn unknown_parts_of_a_resource_are_left_out() {
        let found = found(&of("Rollout"), &ProfiledEngine::default());
        assert!(found.values().all(|value| !value.is_empty()));
        let kinds = |key: &&String| key.starts_with("k8s.");
        let kinds: Vec<_> = found.keys().filter(kinds).collect();
        assert_eq!(kinds, ["k8s.cluster.name", "k8s.namespace.name"]);
    }

    #[test]
    fn attributes_of_the_operator_are_refused() {
        let refused = |text: &str, words: &str| {
            let error = text.parse::<OtlpAttribute>().unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        for name in OURS {
            refused(&format!("{name}=x"), "already has the attribute");
        }
        refused("a", "must be NAME=VALUE");
        refused("a=", "is not an attribute");
        refused("a b=c", "is not an attribute");
        refused(&format!("a={}", "x".repeat(2049)), "at most");
        assert!(
            "deployment.environment.name=prod"
                .parse::<OtlpAttribute>()
                .is_ok()
        );
    }
}
