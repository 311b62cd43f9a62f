//! The operator's calls in the API server's audit log.
//!
//! Invariant: each call is counted once, for one purpose.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// A watch, a page of the list before it, or a call for the lease. Their number depends on the
    /// time, not on the requests.
    Watch,
    /// A patch of a request's status.
    Status,
    Other,
}

/// The calls of a span of time.
#[derive(Default)]
pub struct CallCounts {
    /// The calls of [`Purpose::Other`], and how many there were of each.
    pub others: BTreeMap<String, usize>,
    pub watches: usize,
    /// How many there were of each request, by its namespace and name.
    pub status_patches: BTreeMap<String, usize>,
    /// The answers without success, by HTTP status.
    pub refused: BTreeMap<u16, usize>,
}

impl CallCounts {
    pub fn others(&self) -> usize {
        self.others.values().sum()
    }

    pub fn most_status_patches(&self) -> usize {
        self.status_patches.values().copied().max().unwrap_or(0)
    }

    fn add(&mut self, event: &Event) {
        let object = event.object_ref.clone().unwrap_or_default();
        match purpose(event, &object) {
            Purpose::Watch => self.watches += 1,
            Purpose::Status => {
                let request = format!("{}/{}", object.namespace, object.name);
                *self.status_patches.entry(request).or_default() += 1;
            }
            Purpose::Other => *self.others.entry(words(event, &object)).or_default() += 1,
        }
        let code = event
            .response_status
            .as_ref()
            .map_or(0, |status| status.code);
        if code >= 400 {
            *self.refused.entry(code).or_default() += 1;
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    request_received_timestamp: Timestamp,
    object_ref: Option<Object>,
    response_status: Option<Status>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

fn purpose(event: &Event, object: &Object) -> Purpose {
    let is_page = event.verb == "list" && !event.request_uri.contains("labelSelector=");
    match (
        event.verb.as_str(),
        object.resource.as_str(),
        object.subresource.as_str(),
    ) {
        ("watch", ..) => Purpose::Watch,
        (_, "leases", _) => Purpose::Watch,
        _ if is_page => Purpose::Watch,
        ("patch", "profilerequests", "status") => Purpose::Status,
        _ => Purpose::Other,
    }
}

fn words(event: &Event, object: &Object) -> String {
    let dry = if event.request_uri.contains("dryRun=All") {
        " (dry run)"
    } else {
        ""
    };
    let slash = if object.subresource.is_empty() {
        ""
    } else {
        "/"
    };
    format!(
        "{} {}{slash}{}{dry}",
        event.verb, object.resource, object.subresource
    )
}

/// The calls between two instants.
pub fn calls(log: &Path, from: Timestamp, until: Timestamp) -> Result<CallCounts> {
    let text =
        std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
    let mut calls = CallCounts::default();
    for line in text.lines() {
        let event: Event = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if (from..until).contains(&event.request_received_timestamp) {
            calls.add(&event);
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_by_its_purpose() -> Result<()> {
        let line = |verb: &str, uri: &str, resource: &str, subresource: &str, code: u16| {
            serde_json::json!({
                "verb": verb, "requestURI": uri, "requestReceivedTimestamp": "2026-11-23T06:00:00.000001Z",
                "objectRef": {"resource": resource, "subresource": subresource, "namespace": "shop", "name": "first"},
                "responseStatus": {"code": code},
            })
        };
        let lines = [
            line(
                "list",
                "/api/v1/namespaces/shop/pods?&limit=8",
                "pods",
                "",
                200,
            ),
            line(
                "watch",
                "/api/v1/namespaces/shop/pods?&watch=true",
                "pods",
                "",
                200,
            ),
            line(
                "list",
                "/api/v1/namespaces/shop/pods?&labelSelector=app%3Dweb&limit=64",
                "pods",
                "",
                200,
            ),
            line(
                "patch",
                "/x?&dryRun=All",
                "pods",
                "ephemeralcontainers",
                200,
            ),
            line("patch", "/x", "pods", "ephemeralcontainers", 422),
            line("patch", "/x", "profilerequests", "status", 200),
        ];
        let mut calls = CallCounts::default();
        for line in lines {
            calls.add(&serde_json::from_value(line)?);
        }
        let others: Vec<&str> = calls.others.keys().map(String::as_str).collect();
        assert_eq!(
            others,
            [
                "list pods",
                "patch pods/ephemeralcontainers",
                "patch pods/ephemeralcontainers (dry run)"
            ]
        );
        assert_eq!((calls.watches, calls.most_status_patches()), (2, 1));
        assert_eq!(calls.refused, BTreeMap::from([(422, 1)]));
        Ok(())
    }
}
