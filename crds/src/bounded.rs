//! Schemas of Kubernetes' own types, with bounds that Kubernetes does not set, and of maps.
//!
//! Invariant: each list, map and string is bounded. A schema cannot bound a map's keys, so a rule
//! of the request does.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Labels and expressions of a selector, and values of one expression.
const MOST: usize = 64;
/// `k8s.io/apimachinery/pkg/util/validation`: a prefix, a slash and a name.
const LONGEST_KEY: usize = 317;
/// `LabelValueMaxLength` there.
const LONGEST_VALUE: usize = 63;
/// `labelValueFmt` there. A rule has a message for people; a pattern has none.
const VALUE: &str = "self.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')";
const VALUE_IN_WORDS: &str = "the value of a label must have only letters, digits, -, _ and ., with a letter or digit at both ends, for instance web";

/// The schema of a `LabelSelector` (k8s.io/apimachinery/pkg/apis/meta/v1).
pub fn selector(_: &mut SchemaGenerator) -> Schema {
    let value = json_schema!({
        "type": "string",
        "maxLength": LONGEST_VALUE,
        "x-kubernetes-validations": [{"rule": VALUE, "message": VALUE_IN_WORDS}],
    });
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchLabels": {
                "description": "Labels and values that a pod must have.",
                "type": "object",
                "maxProperties": MOST,
                "additionalProperties": value,
            },
            "matchExpressions": {
                "description": "Requirements on labels; a pod must meet all of them.",
                "type": "array",
                "maxItems": MOST,
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "The key of a label.", "type": "string", "maxLength": LONGEST_KEY},
                        "operator": {
                            "description": "In and NotIn need values; Exists and DoesNotExist take none.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values of the label.",
                            "type": "array",
                            "maxItems": MOST,
                            "items": value,
                        },
                    },
                },
            },
        },
    })
}

/// The schema of a list of `Condition` (k8s.io/apimachinery/pkg/apis/meta/v1), with the bounds that
/// it has there.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    conditions_of("Accepted, Complete or Failed.")
}

/// The same of a comparison.
pub fn comparison_conditions(_: &mut SchemaGenerator) -> Schema {
    conditions_of("Complete or Regressed.")
}

/// The same of a trigger.
pub fn trigger_conditions(_: &mut SchemaGenerator) -> Schema {
    conditions_of("Fired.")
}

/// The labels of an alert, with Prometheus' rules for their names.
pub fn alert_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string",
            "maxLength": 512,
            "x-kubernetes-validations": [{
                "rule": "self != ''",
                "message": "a label of matchLabels needs a value, for instance alertname: PhpRequestsSlow",
            }],
        },
        "x-kubernetes-validations": [{
            "rule": "self.all(name, size(name) <= 128 && name.matches('^[a-zA-Z_][a-zA-Z0-9_]*$'))",
            "message": "the names in matchLabels must be labels of Prometheus, with only letters, digits and _ and at most 128 characters, for instance alertname",
        }],
    })
}

fn conditions_of(types: &str) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"description": types, "type": "string", "maxLength": 316},
                "status": {"description": "Whether the condition holds.", "type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"description": "Why, in one word.", "type": "string", "maxLength": 1024},
                "message": {"description": "The reason in words, with what to do next.", "type": "string", "maxLength": 32768},
                "lastTransitionTime": {"description": "When the status changed last.", "type": "string", "format": "date-time"},
                "observedGeneration": {
                    "description": "The generation of the spec that the condition describes.",
                    "type": "integer",
                    "format": "int64",
                },
            },
        },
    })
}

/// The schema of a filter's methods.
pub fn methods(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "items": {
            "type": "string",
            "maxLength": 16,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[A-Z]+$')",
                "message": "a method must have only capital letters, for instance POST",
            }],
        },
    })
}

/// The schema of a filter's scripts.
pub fn scripts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "items": {
            "type": "string",
            "maxLength": 256,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^[!-~]+$')",
                "message": "a script must be written as in the label script, without spaces, for instance index.php",
            }],
        },
    })
}
