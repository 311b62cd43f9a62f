//! Templates of links to a request's profile in Grafana, and the annotation that marks the
//! request's time.
//!
//! It sends nothing and fills in no template: `links` fills in, `exporter` sends.
//!
//! Invariant: a template names the series that `series` pushes, and its range is the request's. It
//! cannot use a sample's id, because Pyroscope gives every pushed profile a new one.

use jiff::Timestamp;
use kube::ResourceExt as _;
use phpprof_crds::{ProfileMode, ProfileRequest, condition};
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use crate::export::links::LinkTemplate;
use crate::export::series::{KINDS, workload};
use crate::lifecycle::status::pods;

/// Characters of a tag after its colon. Grafana's databases refuse a longer tag, but only after
/// they have stored the annotation.
const LONGEST_TAG: usize = 100;

/// The parts of a link to Grafana.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grafana {
    /// Without a slash at the end.
    pub base: String,
    pub org_id: u32,
    /// Uid of the Pyroscope data source.
    pub datasource: String,
    /// The baseline of a comparison is everything of the same service in this many seconds before
    /// the profile.
    pub baseline_seconds: u32,
    /// Whether series have a label with the request's name.
    pub request_label: bool,
}

impl Grafana {
    /// Links to Explore, to Profiles Drilldown, and to the difference from the baseline there.
    pub fn templates(&self) -> Vec<LinkTemplate> {
        let template = |name: &str, url: String| LinkTemplate {
            name: name.to_owned(),
            url,
            needs_series: true,
        };
        vec![
            template("Profiles Drilldown", self.drilldown()),
            template("Explore", self.explore()),
            template("Diff against the baseline", self.diff()),
        ]
    }

    fn selector(&self) -> String {
        let request = if self.request_label {
            r#",profile_request="{name}""#
        } else {
            ""
        };
        format!(r#"{{service_name="{{service}}"{request}}}"#)
    }

    /// The format since Grafana 10.2. The older `left=` loses parts of the query.
    fn explore(&self) -> String {
        let panes = json!({"p": {
            "datasource": self.datasource,
            "queries": [{
                "refId": "A",
                "datasource": {"type": "grafana-pyroscope-datasource", "uid": self.datasource},
                "queryType": "profile",
                "profileTypeId": KINDS[0].id(),
                "labelSelector": self.selector(),
                "groupBy": [],
                "spanSelector": [],
            }],
            "range": {"from": "{from}", "to": "{to}"},
        }});
        let org = self.org_id.to_string();
        let query = [
            ("schemaVersion", "1"),
            ("orgId", &org),
            ("panes", &panes.to_string()),
        ];
        format!("{}/explore?{}", self.base, encoded(&query))
    }

    fn drilldown(&self) -> String {
        let filters = self.filters();
        let kind = KINDS[0].id();
        let mut query = self.app("flame-graph", &kind);
        query.extend([("from", "{from}"), ("to", "{to}")]);
        query.extend(filters.as_deref().map(|filters| ("var-filters", filters)));
        self.app_url(&query)
    }

    fn diff(&self) -> String {
        let filters = self.filters();
        let before = format!("{{from-{}}}", u64::from(self.baseline_seconds) * 1000);
        let before = before.as_str();
        // One millisecond earlier; otherwise the baseline would contain the profile itself.
        let until = "{from-1}";
        let kind = KINDS[0].id();
        let mut query = self.app("diff-flame-graph", &kind);
        query.extend([
            ("from", before),
            ("to", "{to}"),
            ("from-2", before),
            ("to-2", until),
            ("from-3", "{from}"),
            ("to-3", "{to}"),
            // The new names of from-3 and to-3 since Profiles Drilldown 2.0.2.
            ("comparisonFrom", "{from}"),
            ("comparisonTo", "{to}"),
            ("diffFrom", before),
            ("diffTo", until),
            ("diffFrom-2", "{from}"),
            ("diffTo-2", "{to}"),
        ]);
        let filters = filters.as_deref();
        query.extend(filters.map(|filters| ("var-filtersComparison", filters)));
        self.app_url(&query)
    }

    fn app<'a>(&'a self, exploration: &'a str, kind: &'a str) -> Vec<(&'a str, &'a str)> {
        vec![
            ("explorationType", exploration),
            ("var-dataSource", &self.datasource),
            ("var-serviceName", "{service}"),
            ("var-profileMetricId", kind),
        ]
    }

    fn filters(&self) -> Option<String> {
        self.request_label
            .then(|| "profile_request|=|{name}".to_owned())
    }

    fn app_url(&self, query: &[(&str, &str)]) -> String {
        let query = encoded(query);
        format!("{}/a/grafana-pyroscope-app/explore?{query}", self.base)
    }
}

/// The query, percent-encoded except for placeholders. These are encoded when they are filled in.
fn encoded(query: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| {
        let value: String = byte_serialize(value.as_bytes()).collect();
        format!("{name}={}", uncover(&value))
    };
    query.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// Restores `{from}` from `%7Bfrom%7D`. The braces of JSON and of selectors stay encoded.
fn uncover(encoded: &str) -> String {
    let mut parts = encoded.split("%7B");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("%7D") {
            Some((name, rest)) if is_placeholder(name) => {
                text += &format!("{{{name}}}{rest}");
            }
            _ => text += &format!("%7B{part}"),
        }
    }
    text
}

fn is_placeholder(name: &str) -> bool {
    let (base, offset) = name.split_once('-').unwrap_or((name, "0"));
    let known = ["from", "to", "service", "name"].contains(&base);
    known && offset.bytes().all(|byte| byte.is_ascii_digit())
}

/// The body of POST /api/annotations for a completed request: a region from its first sampler to
/// its end. `None` for any other request.
///
/// It has no link, because a user who may see the dashboard may not be allowed to read the request.
pub fn annotation(request: &ProfileRequest, dashboard: Option<&str>) -> Option<Value> {
    let status = request.status.clone().unwrap_or_default();
    let (start, end) = (status.start_time?.0, status.completion_time?.0);
    let profile = status.profile?;
    let complete = status.conditions.first()?.type_ == condition::COMPLETE;
    let namespace = request.namespace().unwrap_or_default();
    let workload = workload(&request.spec.target);
    let name = request.name_any();
    let succeeded = usize::try_from(status.succeeded).unwrap_or(0);
    let (what, counted) = match request.spec.mode {
        ProfileMode::Heap => ("Heaps", "objects, arrays and strings"),
        ProfileMode::Profile | ProfileMode::Snapshot | ProfileMode::Live => ("Profile", "samples"),
    };
    let text = format!(
        "{what} {namespace}/{name} of {workload}: {}, {} {counted}",
        pods(succeeded),
        profile.samples
    );
    let tagged: String = workload.chars().take(LONGEST_TAG).collect();
    let milliseconds = |time: Timestamp| time.as_millisecond();
    let mut body = json!({
        "time": milliseconds(start),
        "timeEnd": milliseconds(end.max(start)),
        "tags": ["phpprof", format!("namespace:{namespace}"), format!("workload:{tagged}")],
        "text": text,
    });
    if let Some(dashboard) = dashboard {
        body["dashboardUID"] = json!(dashboard);
    }
    complete.then_some(body)
}

#[cfg(test)]
mod tests;
