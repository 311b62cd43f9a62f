//! The operator's calls in the audit log of e2e/cluster's API server, and the rights that the chart
//! gives the operator.
//!
//! Calls that somebody else made with a token of the operator's account do not count: only a pod's
//! own token names its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::release::SERVICE;
use crate::{test_cluster, toy};

/// The log of the API server that this process tests.
#[must_use]
pub fn log() -> PathBuf {
    toy::logs().map_or_else(
        || test_cluster::here().audit_log(),
        |logs| logs.join("audit.jsonl"),
    )
}

/// The rights of each role. The role is `Role NAME` or `ClusterRole NAME`; a right is like `patch
/// pods/ephemeralcontainers`.
pub type Rights = BTreeMap<String, BTreeSet<String>>;

/// One call.
#[derive(Clone, Debug)]
pub struct AuditedCall {
    /// The verb of RBAC: `get`, `list`, `patch`, …
    pub verb: String,
    /// With group and subresource: `profilerequests.phpprof.dev/status`.
    pub resource: String,
    /// The time of the API server's clock.
    pub received: Timestamp,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The pod that made it.
    pub pod: String,
    /// A dry run, which wrote nothing.
    pub is_dry_run: bool,
    /// The role that allowed it; none if the API server refused it.
    pub role: Option<String>,
}

impl AuditedCall {
    /// The verb and the resource, written like a right in [`Rights`].
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} {}", self.verb, self.resource)
    }

    fn of(event: &Value) -> Result<Option<Self>> {
        let word = |path: &str| {
            event
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let pod = word("/user/extra/authentication.kubernetes.io~1pod-name/0");
        let resource = word("/objectRef/resource");
        if pod.is_empty() || resource.is_empty() {
            return Ok(None);
        }
        let subresource = word("/objectRef/subresource");
        let code = event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64);
        let allowed = word("/annotations/authorization.k8s.io~1decision") == "allow";
        let reason = word("/annotations/authorization.k8s.io~1reason");
        Ok(Some(AuditedCall {
            verb: word("/verb").to_owned(),
            resource: named(word("/objectRef/apiGroup"), resource, subresource),
            received: word("/requestReceivedTimestamp")
                .parse()
                .context("no time")?,
            code: u16::try_from(code.unwrap_or_default())?,
            pod: pod.to_owned(),
            is_dry_run: word("/requestURI").contains("dryRun=All"),
            role: role(reason).filter(|_| allowed),
        }))
    }
}

fn named(group: &str, resource: &str, subresource: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{resource}{dot}{group}{slash}{subresource}")
}

/// The role in the authorizer's own words: `RBAC: allowed by RoleBinding "a/b" of Role "c" to …`.
fn role(reason: &str) -> Option<String> {
    let (_, of) = reason.split_once(" of ")?;
    let (role, _) = of.split_once(" to ")?;
    Some(role.replace('"', ""))
}

/// All calls of the operator's pods in the log.
pub fn calls(log: &Path) -> Result<Vec<AuditedCall>> {
    let text = std::fs::read_to_string(log)
        .with_context(|| format!("reading {}; make e2e has it written", log.display()))?;
    // The API server may still be writing the last line.
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let events = whole.map(|line| serde_json::from_str(line).with_context(|| line.to_owned()));
    events
        .filter_map(|event| event.and_then(|event| AuditedCall::of(&event)).transpose())
        .collect()
}

/// The calls that were allowed, by the role that allowed them.
#[must_use]
pub fn used(calls: &[AuditedCall]) -> Rights {
    let mut used = Rights::new();
    for call in calls {
        if let Some(role) = &call.role {
            used.entry(role.clone()).or_default().insert(call.words());
        }
    }
    used
}

/// The rights that a rendered chart gives the operator's account.
pub fn granted(chart: &str) -> Result<Rights> {
    let documents = serde_yaml::Deserializer::from_str(chart).map(Value::deserialize);
    let objects = documents.collect::<Result<Vec<Value>, _>>()?;
    let is_bound_to_us = |object: &&Value| {
        let subjects = object["subjects"].as_array();
        subjects.is_some_and(|all| {
            all.iter()
                .any(|subject| subject["kind"] == "ServiceAccount" && subject["name"] == SERVICE)
        })
    };
    let mut granted = Rights::new();
    for binding in objects.iter().filter(is_bound_to_us) {
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let role = objects
            .iter()
            .find(|object| object["kind"] == *kind && object["metadata"]["name"] == *name);
        let role = role.with_context(|| format!("no {kind} {name}"))?;
        let rights = granted
            .entry(format!("{kind} {name}").replace('"', ""))
            .or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            rights.extend(rights_of(rule)?);
        }
    }
    ensure!(!granted.is_empty(), "the chart binds no role to {SERVICE}");
    Ok(granted)
}

fn rights_of(rule: &Value) -> Result<Vec<String>> {
    let list = |field: &str| {
        let words = rule[field]
            .as_array()
            .with_context(|| format!("{rule} has no {field}"))?;
        words
            .iter()
            .map(|word| word.as_str().with_context(|| format!("{rule}")))
            .collect::<Result<Vec<_>>>()
    };
    let mut rights = Vec::new();
    for group in list("apiGroups")? {
        for resource in list("resources")? {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let resource = named(group, resource, subresource);
            rights.extend(
                list("verbs")?
                    .iter()
                    .map(|verb| format!("{verb} {resource}")),
            );
        }
    }
    Ok(rights)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Value {
        json!({
            "verb": "patch", "requestURI": "/x?dryRun=All", "requestReceivedTimestamp": "2026-11-23T06:00:00.000001Z",
            "user": {"extra": {"authentication.kubernetes.io/pod-name": ["phpprof-operator-1"]}},
            "objectRef": {"resource": "profilerequests", "subresource": "status", "apiGroup": "phpprof.dev"},
            "responseStatus": {"code": 200},
            "annotations": {
                "authorization.k8s.io/decision": "allow",
                "authorization.k8s.io/reason": "RBAC: allowed by RoleBinding \"a/shop\" of Role \"a\" to ServiceAccount \"b/c\"",
            },
        })
    }

    #[test]
    fn a_call_names_its_verb_and_its_role() -> Result<()> {
        let call = AuditedCall::of(&event())?.context("no call")?;
        assert_eq!(call.words(), "patch profilerequests.phpprof.dev/status");
        assert_eq!(
            (call.role.as_deref(), call.code, call.is_dry_run),
            (Some("Role a"), 200, true)
        );
        let mut refused = event();
        refused["annotations"]["authorization.k8s.io/decision"] = json!("forbid");
        refused["annotations"]["authorization.k8s.io/reason"] = json!("");
        assert_eq!(AuditedCall::of(&refused)?.context("no call")?.role, None);
        let mut by_hand = event();
        by_hand["user"] =
            json!({"username": "system:serviceaccount:phpprof-system:phpprof-operator"});
        assert!(AuditedCall::of(&by_hand)?.is_none());
        Ok(())
    }

    #[test]
    fn only_roles_bound_to_the_operator_count() -> Result<()> {
        let role = |name: &str, account: &str| {
            format!(
                "kind: Role\nmetadata: {{name: {name}}}\nrules:\n- {{apiGroups: [apps, \"\"], resources: [a/scale, b], verbs: [get, list]}}\n---\n\
                 kind: RoleBinding\nroleRef: {{kind: Role, name: {name}}}\nsubjects: [{{kind: ServiceAccount, name: {account}}}]\n"
            )
        };
        let granted = granted(&format!(
            "{}---\n{}",
            role("ours", SERVICE),
            role("other", "schedules")
        ))?;
        assert_eq!(granted.keys().collect::<Vec<_>>(), ["Role ours"]);
        let expected = [
            "get a.apps/scale",
            "get a/scale",
            "get b",
            "get b.apps",
            "list a.apps/scale",
            "list a/scale",
            "list b",
            "list b.apps",
        ];
        assert_eq!(granted["Role ours"].iter().collect::<Vec<_>>(), expected);
        Ok(())
    }
}
