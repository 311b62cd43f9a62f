//! What the operator reports of a comparison: its verdict, the numbers behind it, and the functions
//! and routes that changed.
//!
//! Invariant: times are milliseconds per HTTP request. Lists are bounded, and what is left out is
//! counted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ComparisonReason, bounded};

/// What has happened to a comparison.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileComparisonStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the operator first saw the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the comparison ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Complete: whether the comparison has ended. Regressed: True if HTTP requests take more time
    /// than is accepted, False if they do not, Unknown if it is not known, or not yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "bounded::comparison_conditions")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".to_string()]))]
    pub conditions: Vec<Condition>,
    /// The answer. Absent until the comparison has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ComparisonVerdict>,
    /// The change of the time of an HTTP request in words, for instance +126.7%.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub change: String,
    /// The earlier side.
    #[serde(default)]
    pub before: ComparedRequest,
    /// The later side.
    #[serde(default)]
    pub after: ComparedRequest,
    /// The time of an HTTP request. Absent if no route can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ComparedTime>,
    /// The smallest change of an HTTP request's time that would have been seen, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_visible_percent: Option<f64>,
    /// Why the verdict is what it is, the most important first; at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub reasons: Vec<VerdictReason>,
    /// The fewest functions that explain four fifths of the significant change of self time, the
    /// largest first; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub functions: Vec<FunctionVerdict>,
    /// How many other functions have a significant change.
    #[serde(default)]
    pub more_functions: i64,
    /// The deepest function below which nearly all of the functions run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_caller: Option<FunctionInFile>,
    /// Time that only moved from some functions to others below the same caller, as after a rename;
    /// at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub moves: Vec<MovedFunctions>,
    /// The compared routes: those with limits of their own, then those with most HTTP requests; at
    /// most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub routes: Vec<RouteVerdict>,
    /// How many other routes were compared.
    #[serde(default)]
    pub more_routes: i64,
    /// Routes that are not compared, because one side has none or too few of their HTTP requests;
    /// at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub routes_not_compared: Vec<UncomparedRoute>,
}

/// The answer.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonVerdict {
    /// HTTP requests take less time.
    Better,
    /// HTTP requests take more time than is accepted.
    Worse,
    /// A change of visiblePercent would have been seen, and was not.
    NoChange,
    /// It cannot be said; the reasons say what would decide it.
    Inconclusive,
}

/// One side.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComparedRequest {
    /// The name of its ProfileRequest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub request: String,
    /// UID of the ProfileRequest. A later one of the same name is another one.
    #[serde(
        default,
        rename = "requestUID",
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(length(max = 128))]
    pub request_uid: String,
    /// HTTP requests of the compared routes that ended.
    #[serde(default)]
    pub http_requests: i64,
    /// Groups of workers times slices of time: how many independent parts the run has.
    #[serde(default)]
    pub clusters: i64,
    /// Pods.
    #[serde(default)]
    pub pods: i64,
}

/// A time per HTTP request, before and after, in milliseconds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComparedTime {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// After less before.
    pub difference: f64,
    /// The lower end of the interval that has the true difference with a probability of 95 %.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The difference in percent of the time before.
    pub percent: f64,
}

/// A reason in words.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct VerdictReason {
    /// Why, in one word.
    pub reason: ComparisonReason,
    /// The reason in words, with what to do next.
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// A function.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionInFile {
    /// Its name.
    #[schemars(length(max = 512))]
    pub function: String,
    /// The file of its declaration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub file: String,
}

/// A function whose self time per HTTP request has changed by more than chance.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FunctionVerdict {
    /// Its name.
    #[schemars(length(max = 512))]
    pub function: String,
    /// The file of its declaration.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub file: String,
    /// Its self time.
    pub time: ComparedTime,
    /// Its part of all significant changes, in percent.
    pub part_percent: f64,
    /// No stack of the profile before has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_new: bool,
    /// No stack of the profile after has it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_gone: bool,
}

/// Time that went from some functions to others.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MovedFunctions {
    /// Functions that lost time; at most 8.
    #[schemars(length(max = 8))]
    pub from: Vec<FunctionInFile>,
    /// Functions that have it now; at most 8.
    #[schemars(length(max = 8))]
    pub to: Vec<FunctionInFile>,
    /// How much time moved, in milliseconds per HTTP request.
    pub milliseconds: f64,
}

/// The change of one route.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RouteVerdict {
    /// The path with ids replaced; empty for HTTP requests whose route is not known.
    #[schemars(length(max = 512))]
    pub route: String,
    /// Its share of the compared HTTP requests before, in percent.
    pub share_percent: f64,
    /// The time of one of its HTTP requests.
    pub time: ComparedTime,
    /// Whether its change is larger than chance.
    pub is_significant: bool,
    /// What its own limits say of it. Absent for a route without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ComparisonVerdict>,
}

/// A route that is not compared.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UncomparedRoute {
    /// The path with ids replaced; empty for HTTP requests whose route is not known.
    #[schemars(length(max = 512))]
    pub route: String,
    /// Its HTTP requests before.
    pub before: i64,
    /// Its HTTP requests after.
    pub after: i64,
    /// Its share of all time before, in percent.
    pub share_percent_before: f64,
    /// Its share of all time after, in percent.
    pub share_percent_after: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_false(value: &bool) -> bool {
    !value
}
