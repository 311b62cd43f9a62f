//! Whether this user may create a schedule: checked before anything is created, so nothing is left
//! half done.
//!
//! Invariant: a right counts as missing only if the API server says so; rights that cannot be
//! checked show when the objects are created.

use k8s_openapi::api::authorization::v1::ResourceAttributes;

use crate::connect::Cluster;
use crate::doctor::observe::allowed;
use crate::failure::{Exit, Failure};

/// Verb, group and resource. The last two are needed because only a user with the rights of a role
/// may bind it.
const NEEDED: [(&str, &str, &str); 6] = [
    ("create", "", "serviceaccounts"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("create", "", "configmaps"),
    ("create", "batch", "cronjobs"),
    ("create", "phpprof.dev", "profilerequests"),
    ("profile", "phpprof.dev", "profilerequests"),
];

pub async fn check(cluster: &Cluster) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for (verb, group, resource) in NEEDED {
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            namespace: Some(cluster.namespace.clone()),
            ..ResourceAttributes::default()
        };
        if allowed(cluster, attributes).await == Some(false) {
            missing.push(format!("{verb} {resource}"));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Forbidden,
        format!(
            "to create a schedule in namespace {}, you need rights that you do not have: {}",
            cluster.namespace,
            missing.join(", ")
        ),
        "ask somebody with the role admin in the namespace to create it: the same command line with --dry-run=client -o yaml prints what to apply",
    ))
}
