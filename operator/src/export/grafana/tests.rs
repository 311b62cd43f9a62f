//! Compares links with what Grafana reads: the schemas in docs/guides/grafana.md.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use phpprof_crds::{ProfileRequestStatus, ProfileResult};
use serde::Deserialize;
use url::Url;

use super::*;
use crate::export::links::links;
use crate::testing::{at, request};

const START: i64 = 1_790_000_000_000;
const WALL: &str = "wall:wall:nanoseconds:wall:nanoseconds";

fn grafana(request_label: bool) -> Grafana {
    Grafana {
        base: "https://grafana.example.org/g".to_owned(),
        org_id: 2,
        datasource: "pyroscope&1".to_owned(),
        baseline_seconds: 86_400,
        request_label,
    }
}

fn completed() -> ProfileRequest {
    let mut request = request(json!({"target": {"workloadRef": {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
    }}}));
    request.status = Some(ProfileRequestStatus {
        start_time: Some(Time(at(0))),
        completion_time: Some(Time(at(31))),
        succeeded: 2,
        profile: Some(ProfileResult {
            samples: 5940,
            ..ProfileResult::default()
        }),
        conditions: vec![Condition {
            type_: condition::COMPLETE.to_owned(),
            status: "True".to_owned(),
            reason: "Complete".to_owned(),
            message: String::new(),
            last_transition_time: Time(at(31)),
            observed_generation: None,
        }],
        ..ProfileRequestStatus::default()
    });
    request
}

/// Path and parameters of a link of the completed request.
fn link(grafana: &Grafana, name: &str) -> (String, BTreeMap<String, String>) {
    let all = links(&grafana.templates(), &completed(), "key", at(31));
    let link = all.iter().find(|link| link.name == name).unwrap();
    let url = Url::parse(&link.url).unwrap();
    assert_eq!(url.host_str(), Some("grafana.example.org"));
    assert!(!link.url.contains('{'), "{}", link.url);
    let parameters = url.query_pairs().into_owned();
    (url.path().to_owned(), parameters.collect())
}

#[track_caller]
fn check(parameters: &BTreeMap<String, String>, expected: &[(&str, &str)]) {
    let expected = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    assert_eq!(*parameters, expected.collect());
}

/// One pane of Explore, with exactly the fields that Explore reads of a Pyroscope query.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Pane {
    datasource: String,
    queries: [Query; 1],
    range: Range,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Query {
    ref_id: String,
    datasource: AnnotationSource,
    query_type: String,
    profile_type_id: String,
    label_selector: String,
    group_by: Vec<String>,
    span_selector: Vec<String>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct AnnotationSource {
    r#type: String,
    uid: String,
}

/// Milliseconds, as text.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Range {
    from: String,
    to: String,
}

fn pane(grafana: &Grafana) -> Pane {
    let (path, parameters) = link(grafana, "Explore");
    assert_eq!(path, "/g/explore");
    assert_eq!(parameters["schemaVersion"], "1");
    assert_eq!(parameters["orgId"], "2");
    assert_eq!(parameters.len(), 3);
    let panes: BTreeMap<String, Pane> = serde_json::from_str(&parameters["panes"]).unwrap();
    panes.into_values().next().unwrap()
}

#[test]
fn explore_opens_on_the_services_profile_and_range() {
    let pane = pane(&grafana(false));
    let query = &pane.queries[0];
    assert_eq!(query.datasource.r#type, "grafana-pyroscope-datasource");
    assert_eq!(
        [&*pane.datasource, &*query.datasource.uid],
        ["pyroscope&1"; 2]
    );
    assert_eq!((&*query.ref_id, &*query.query_type), ("A", "profile"));
    assert_eq!(query.profile_type_id, WALL);
    assert_eq!(query.label_selector, r#"{service_name="shop/web"}"#);
    assert!(query.group_by.is_empty() && query.span_selector.is_empty());
    assert_eq!(pane.range.from, START.to_string());
    assert_eq!(pane.range.to, (START + 31_000).to_string());
}

#[test]
fn a_series_is_selected_by_the_requests_name() {
    let pane = pane(&grafana(true));
    assert_eq!(
        pane.queries[0].label_selector,
        r#"{service_name="shop/web",profile_request="first"}"#
    );
    let (_, parameters) = link(&grafana(true), "Profiles Drilldown");
    assert_eq!(parameters["var-filters"], "profile_request|=|first");
    let (_, parameters) = link(&grafana(true), "Diff against the baseline");
    assert_eq!(
        parameters["var-filtersComparison"],
        "profile_request|=|first"
    );
}

#[test]
fn drilldown_opens_the_flame_graph_of_the_service() {
    let (path, parameters) = link(&grafana(false), "Profiles Drilldown");
    assert_eq!(path, "/g/a/grafana-pyroscope-app/explore");
    check(
        &parameters,
        &[
            ("explorationType", "flame-graph"),
            ("var-dataSource", "pyroscope&1"),
            ("var-serviceName", "shop/web"),
            ("var-profileMetricId", WALL),
            ("from", "1790000000000"),
            ("to", "1790000031000"),
        ],
    );
}

#[test]
fn the_baseline_is_the_day_before_the_profile() {
    let (path, parameters) = link(&grafana(false), "Diff against the baseline");
    assert_eq!(path, "/g/a/grafana-pyroscope-app/explore");
    let (day_before, moment_before) = ("1789913600000", "1789999999999");
    let (from, to) = ("1790000000000", "1790000031000");
    check(
        &parameters,
        &[
            ("explorationType", "diff-flame-graph"),
            ("var-dataSource", "pyroscope&1"),
            ("var-serviceName", "shop/web"),
            ("var-profileMetricId", WALL),
            ("from", day_before),
            ("to", to),
            ("from-2", day_before),
            ("to-2", moment_before),
            ("from-3", from),
            ("to-3", to),
            ("comparisonFrom", from),
            ("comparisonTo", to),
            ("diffFrom", day_before),
            ("diffTo", moment_before),
            ("diffFrom-2", from),
            ("diffTo-2", to),
        ],
    );
}

#[test]
fn an_annotation_marks_the_requests_time_without_link() {
    let body = annotation(&completed(), Some("web-dashboard")).unwrap();
    assert_eq!(
        body,
        json!({
            "dashboardUID": "web-dashboard",
            "time": START,
            "timeEnd": START + 31_000,
            "tags": ["phpprof", "namespace:shop", "workload:web"],
            "text": "Profile shop/first of web: 2 pods, 5940 samples",
        })
    );
    let mut of_heaps = completed();
    of_heaps.spec.mode = ProfileMode::Heap;
    let of_heaps = annotation(&of_heaps, None).unwrap();
    let text = of_heaps["text"].as_str().unwrap();
    assert!(text.starts_with("Heaps shop/"), "{text}");
    assert!(
        text.ends_with("2 pods, 5940 objects, arrays and strings"),
        "{text}"
    );
    let everywhere = annotation(&completed(), None).unwrap();
    assert!(everywhere.get("dashboardUID").is_none());
}

/// The limits come from the columns of its table `tag`, and from `annotations.tags_length` for all
/// tags as JSON.
#[test]
fn tags_are_as_long_as_grafana_takes_them() {
    let mut longest = completed();
    longest.metadata.namespace = Some("n".repeat(63));
    longest.spec.target = serde_json::from_value(json!({"podName": "p".repeat(253)})).unwrap();
    let body = annotation(&longest, None).unwrap();
    assert!(body["tags"].to_string().len() <= 500);
    for tag in body["tags"].as_array().unwrap() {
        let tag = tag.as_str().unwrap();
        let (key, value) = tag.split_once(':').unwrap_or((tag, ""));
        assert!(key.len() <= 100 && value.len() <= 100, "{tag}");
    }
}

#[test]
fn a_request_without_a_profile_is_not_marked() {
    let mut failed = completed();
    failed.status.as_mut().unwrap().profile = None;
    assert_eq!(annotation(&failed, None), None);
    let mut running = completed();
    running.status.as_mut().unwrap().completion_time = None;
    assert_eq!(annotation(&running, None), None);
}
