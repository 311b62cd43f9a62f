//! Runs after all tests on the clusters of this machine: the operator has used each right that the
//! chart gives it, and no call was refused, in the cluster-wide form and in that of
//! `rbac.namespaces`.
//!
//! The audit log of e2e/cluster names the role that allowed each call, which distinguishes the two
//! forms.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{self, AuditedCall, Rights, granted, used};
use e2e::{release, test_cluster};

/// The operator's rights in the chart, in one form.
fn chart(form: &[&str]) -> Result<Rights> {
    let mut helm = Command::new("helm");
    helm.args([
        "template",
        "phpprof",
        &release::chart(),
        "--namespace",
        release::NAMESPACE,
        release::KUBE_VERSION,
    ]);
    let output = helm
        .args(form)
        .output()
        .context("starting helm; make e2e installs it")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    granted(&String::from_utf8(output.stdout)?)
}

/// Calls that were refused and that the operator has no right to. Helm removes a release's roles
/// before its pod, so some calls are refused then. In the form of namespaces that does not happen
/// here.
fn refused(calls: &[AuditedCall], [everywhere, some]: &[Rights; 2]) -> Vec<String> {
    let is_of_some = |call: &&AuditedCall| {
        call.role
            .as_ref()
            .is_some_and(|role| some.contains_key(role) && !everywhere.contains_key(role))
    };
    let of_some: BTreeSet<&str> = calls
        .iter()
        .filter(is_of_some)
        .map(|call| call.pod.as_str())
        .collect();
    let is_given = |call: &AuditedCall| {
        everywhere
            .values()
            .any(|rights| rights.contains(&call.words()))
    };
    let refused = calls.iter().filter(|call| call.role.is_none());
    let missing = refused.filter(|call| of_some.contains(call.pod.as_str()) || !is_given(call));
    let said: BTreeSet<String> = missing
        .map(|call| format!("{} was refused to pod {}", call.words(), call.pod))
        .collect();
    said.into_iter().collect()
}

#[test]
fn each_right_was_used_and_none_missing() -> Result<()> {
    let mut calls = Vec::new();
    for cluster in test_cluster::all() {
        calls.extend(audit::calls(&cluster.audit_log())?);
    }
    let used = used(&calls);
    let forms = [chart(&[])?, chart(&["--set=rbac.namespaces={shop}"])?];
    let mut wrong = refused(&calls, &forms);
    for (role, rights) in forms.iter().flatten() {
        let done = used.get(role).cloned().unwrap_or_default();
        wrong.extend(
            rights
                .difference(&done)
                .map(|right| format!("{role}: {right} was granted and never used")),
        );
    }
    for (role, done) in &used {
        let rights: Vec<_> = forms.iter().filter_map(|form| form.get(role)).collect();
        let beyond = done
            .iter()
            .filter(|right| !rights.iter().any(|all| all.contains(*right)));
        wrong.extend(beyond.map(|right| format!("{role}: {right} is not of the chart")));
    }
    ensure!(
        wrong.is_empty(),
        "of {} calls:\n{}",
        calls.len(),
        wrong.join("\n")
    );
    Ok(())
}
