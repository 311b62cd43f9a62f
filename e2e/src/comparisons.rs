//! Creates ProfileComparisons, and waits for their verdicts.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use phpprof_crds::{
    ComparisonReason, ComparisonVerdict, ProfileComparison, ProfileComparisonStatus, ProfileRequest,
};
use serde_json::{Value, json};

use crate::Fixture;
use crate::wait::poll;

/// Longer than any comparison of the tests takes.
const END: Duration = Duration::from_secs(180);
/// The garbage collector takes its time.
const GONE: Duration = Duration::from_secs(60);

/// What a comparison reports; empty before the operator has seen it.
pub fn verdict_of(comparison: &ProfileComparison) -> ProfileComparisonStatus {
    comparison.status.clone().unwrap_or_default()
}

/// The reason of its current condition.
pub fn reason_of(comparison: &ProfileComparison) -> String {
    let status = verdict_of(comparison);
    let current = status.conditions.first();
    current.map_or_else(String::new, |it| it.reason.clone())
}

/// An error unless it is inconclusive for this reason, and its message has these words.
pub fn ensure_undecided(
    comparison: &ProfileComparison,
    reason: ComparisonReason,
    words: &str,
) -> Result<()> {
    let status = verdict_of(comparison);
    ensure!(
        status.verdict == Some(ComparisonVerdict::Inconclusive)
            && reason_of(comparison) == reason.to_string()
            && status.conditions[0].message.contains(words),
        "{status:?}"
    );
    Ok(())
}

impl Fixture {
    /// Creates a comparison.
    pub async fn compare(&self, name: &str, spec: &Value) -> Result<ProfileComparison> {
        let object = json!({
            "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileComparison",
            "metadata": {"name": name}, "spec": spec,
        });
        let comparison = serde_json::from_value(object)?;
        let api = self.api::<ProfileComparison>();
        Ok(api.create(&PostParams::default(), &comparison).await?)
    }

    /// Waits until a comparison has ended.
    pub async fn verdict(&self, comparison: &ProfileComparison) -> Result<ProfileComparison> {
        let api = self.api::<ProfileComparison>();
        let name = comparison.name_any();
        poll("the comparison has ended", END, async || {
            let now = api.get(&name).await?;
            let is_over = verdict_of(&now).completion_time.is_some();
            Ok(is_over.then_some(now))
        })
        .await
    }

    /// Makes the operator use each right that it has for comparisons: one side has no pods, so the
    /// run of the pod `web` is cancelled, and the comparison is deleted at once, with its requests.
    pub async fn use_rights_of_comparisons(&self) -> Result<()> {
        let nobody = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"});
        let spec = json!({
            "before": {"target": {"workloadRef": nobody}},
            "after": {"target": {"podName": "web", "containerName": "fpm"}},
            "durationSeconds": 60, "ttlSecondsAfterFinished": 0,
        });
        let comparison = self.compare("unequal", &spec).await?;
        let uid = comparison.uid().context("no uid")?;
        poll(
            "the comparison and its requests are gone",
            GONE,
            async || {
                let requests = self.api::<ProfileRequest>();
                let requests = requests.list(&ListParams::default()).await?;
                let is_of_it =
                    |it: &ProfileRequest| it.owner_references().iter().any(|it| it.uid == uid);
                let there = self.api::<ProfileComparison>().get_opt("unequal").await?;
                Ok((there.is_none() && !requests.iter().any(is_of_it)).then_some(()))
            },
        )
        .await
    }
}
