//! The arguments of each tool, as agents write them. Their schemas are made of these types.
//!
//! Invariant: arguments that the schema does not name are refused, and so are large ones.

use std::collections::BTreeMap;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Exit, Failure};

/// The most bytes of the arguments of one call.
const LARGEST_ARGUMENTS: usize = 16 << 10;
/// The rows of an answer, unless there is less room.
const MOST_ROWS: usize = 100;

/// Labels of samples and their values.
pub type AskedLabels = BTreeMap<String, String>;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NothingAsked {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProfileAsked {
    /// A profile that list_profiles names.
    pub profile: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FindingsAsked {
    /// A profile that list_profiles names.
    pub profile: String,
    /// Only samples with these labels, for instance {"route": "/cart"}.
    #[serde(default)]
    pub labels: AskedLabels,
}

/// Which part of a profile.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TopAsked {
    /// A profile that list_profiles names.
    pub profile: String,
    /// What the rows are: function, line, route, waiting, or another label of the profile. Default:
    /// function.
    pub by: Option<String>,
    /// self (default) or total.
    #[serde(default)]
    pub sort: AskedSort,
    /// wall (time, the default), cpu, samples, heap_growth, heap_change, fibers or
    /// suspended.
    pub sample_type: Option<String>,
    /// Only samples with these labels, for instance {"waiting": "database"}.
    #[serde(default)]
    pub labels: AskedLabels,
    /// The most rows. Default: 15.
    pub most: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AskedSort {
    #[default]
    #[serde(rename = "self")]
    Flat,
    Total,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CallersAsked {
    /// A profile that list_profiles names.
    pub profile: String,
    /// The function, as an answer has shown it.
    pub function: String,
    /// Its file, if functions of several files have that name.
    pub file: Option<String>,
    /// wall (time, the default), cpu, samples, heap_growth, heap_change, fibers or
    /// suspended.
    pub sample_type: Option<String>,
    /// Only samples with these labels.
    #[serde(default)]
    pub labels: AskedLabels,
    /// The most rows. Default: 30.
    pub most: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CalleesAsked {
    /// A profile that list_profiles names.
    pub profile: String,
    /// The function, as an answer has shown it, whoever calls it. Without function and path:
    /// everything, from the entry point on.
    pub function: Option<String>,
    /// Its file, if functions of several files have that name.
    pub file: Option<String>,
    /// Instead of a function: a call path from the entry point, to zoom in.
    #[serde(default)]
    pub path: Vec<String>,
    /// wall (time, the default), cpu, samples, heap_growth, heap_change, fibers or
    /// suspended.
    pub sample_type: Option<String>,
    /// Only samples with these labels.
    #[serde(default)]
    pub labels: AskedLabels,
    /// The most rows. Default: 30.
    pub most: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LinesAsked {
    /// A profile that list_profiles names.
    pub profile: String,
    /// Only lines of this function, as an answer has shown it.
    pub function: Option<String>,
    /// Only lines of this file, as an answer has shown it.
    pub file: Option<String>,
    /// wall (time, the default), cpu, samples, heap_growth, heap_change, fibers or
    /// suspended.
    pub sample_type: Option<String>,
    /// Only samples with these labels.
    #[serde(default)]
    pub labels: AskedLabels,
    /// The most rows. Default: 15.
    pub most: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RequestsAsked {
    /// A profile with the label route, or a file that ends with requests.json.gz.
    pub profile: String,
    /// Only HTTP requests of this route.
    pub route: Option<String>,
    /// The most rows. Default: 15.
    pub most: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DiffAsked {
    /// The profile before.
    pub before: String,
    /// The profile after.
    pub after: String,
    /// share (default) compares shares of the time; request the time per HTTP request.
    #[serde(default)]
    pub per: AskedPer,
    /// Compare profiles that were not recorded alike all the same.
    #[serde(default)]
    pub force: bool,
    /// wall (time, the default), cpu, samples, heap_growth, heap_change, fibers or
    /// suspended.
    pub sample_type: Option<String>,
    /// Only samples with these labels.
    #[serde(default)]
    pub labels: AskedLabels,
    /// The most rows. Default: 15.
    pub most: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum AskedPer {
    #[default]
    Share,
    Request,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct VerdictAsked {
    /// The profile before, with the label route.
    pub before: String,
    /// The profile after.
    pub after: String,
    /// wall (default, with waits) or cpu.
    #[serde(default)]
    pub measure: AskedMeasure,
    /// What may get slower: all by 2%,1ms; a route by /users/{id}=5%.
    #[serde(default)]
    pub limits: Vec<String>,
    /// Compare profiles that were not recorded alike all the same.
    #[serde(default)]
    pub force: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AskedMeasure {
    #[default]
    Wall,
    Cpu,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProfilingAsked {
    /// What to profile: deploy/web, sts/db, ds/agent, job/import or pod/web-1.
    pub target: String,
    /// The container that runs PHP, if it is not found without it.
    pub container: Option<String>,
    /// How long to sample. Default: 30, or the server's limit.
    pub duration_seconds: Option<u64>,
    /// The most pods. Default: 5, or the server's limit.
    pub max_pods: Option<i32>,
    /// Also sample what makes the heap grow.
    #[serde(default)]
    pub heap: bool,
    /// Also sample where fibers are suspended (sample types fibers and suspended). Needs PHP 8.1.
    #[serde(default)]
    pub fibers: bool,
    /// Instead of sampling: where every worker is now, for the tool dump.
    #[serde(default)]
    pub snapshot: bool,
    /// How long to wait for the end, at most 300. Default: 45. The profile goes on afterwards.
    pub wait_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReleasesAsked {
    /// What runs the stable release: deploy/web, sts/db, ds/agent, job/import or pod/web-1.
    pub before: String,
    /// What runs the canary at the same time.
    pub after: String,
    /// The container that runs PHP, in both, if it is not found without it.
    pub container: Option<String>,
    /// How long to sample both. Default: 60, or the server's limit.
    pub duration_seconds: Option<u64>,
    /// The most pods of each. Default: 5, or half of the server's limit.
    pub max_pods: Option<i32>,
    /// wall (default, with waits) or cpu.
    #[serde(default)]
    pub measure: AskedMeasure,
    /// What may get slower: all by 2%,1ms; a route by /users/{id}=5%.
    #[serde(default)]
    pub limits: Vec<String>,
    /// How long to wait for the end, at most 300. Default: 45. The profiles go on afterwards.
    pub wait_seconds: Option<u64>,
}

/// The arguments of a call.
pub fn asked<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, Failure> {
    let value = Value::Object(arguments.unwrap_or_default());
    let size = value.to_string().len();
    if size > LARGEST_ARGUMENTS {
        return Err(Failure::new(
            Exit::Usage,
            format!("the arguments have {size} bytes"),
            format!("use at most {LARGEST_ARGUMENTS} bytes"),
        ));
    }
    serde_json::from_value(value).map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("the arguments are wrong: {error}"),
            "see the tool's input schema",
        )
    })
}

/// The number of rows, within bounds.
pub fn most(asked: Option<usize>, default: usize) -> usize {
    asked.unwrap_or(default).clamp(1, MOST_ROWS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn top(arguments: Value) -> Result<TopAsked, String> {
        let Value::Object(arguments) = arguments else {
            panic!("an object")
        };
        asked(Some(arguments)).map_err(|failure| failure.message)
    }

    #[test]
    fn asked_refuses_unknown_missing_and_large_arguments() {
        let right = top(json!({"profile": "web", "sort": "total"})).unwrap();
        assert_eq!((right.sort, right.by), (AskedSort::Total, None));
        for (wrong, part) in [
            (json!({}), "missing field `profile`"),
            (json!({"profile": 5}), "invalid type"),
            (json!({"profile": "a", "limit": 5}), "unknown field `limit`"),
            (json!({"profile": "a", "most": -1}), "invalid value"),
            (json!({"profile": "a".repeat(LARGEST_ARGUMENTS)}), "bytes"),
        ] {
            let refusal = top(wrong).unwrap_err();
            assert!(refusal.contains(part), "{refusal}");
        }
    }

    #[test]
    fn most_stays_within_its_bounds() {
        for (asked, expected) in [(None, 15), (Some(0), 1), (Some(7), 7), (Some(9_999), 100)] {
            assert_eq!(most(asked, 15), expected);
        }
    }
}
