//! An admission webhook that does not answer: the API server refuses the objects that it should
//! judge.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use phpprof_crds::{ProfileRequest, TargetState};
use serde_json::json;

use crate::requests::status;
use crate::{Fixture, pods, poll};

const LABEL: &str = "judged";

/// Profiles two pods. A webhook that does not answer judges one of them; the operator adds that
/// pod's sampler when the webhook is removed.
pub async fn profiled_past_it(fixture: &Fixture) -> Result<ProfileRequest> {
    let mut judged = pods::php("judged");
    judged["metadata"]["labels"][LABEL] = json!("yes");
    fixture.start(&[pods::php("web"), judged]).await?;
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(fixture.client.clone());
    let webhook = serde_json::from_value(configuration(fixture))?;
    webhooks.create(&PostParams::default(), &webhook).await?;
    let request = until_it_is_gone(fixture).await;
    webhooks
        .delete(&fixture.namespace, &DeleteParams::default())
        .await?;
    let request = fixture.ended(&request?).await?;
    ensure!(status(&request).succeeded == 2, "{:?}", status(&request));
    Ok(request)
}

async fn until_it_is_gone(fixture: &Fixture) -> Result<ProfileRequest> {
    let (all, params) = (fixture.api::<Pod>(), PatchParams::default());
    // The patch would change nothing.
    let nothing = Patch::Merge(json!({}));
    let refused = async || {
        let asked = all
            .patch_ephemeral_containers("judged", &params, &nothing)
            .await;
        Ok(asked.is_err().then_some(()))
    };
    poll(
        "the API server asks the webhook",
        Duration::from_secs(20),
        refused,
    )
    .await?;
    let target = json!({"selector": {"matchLabels": {"app": "web"}}, "containerName": "fpm"});
    let request = fixture
        .apply(json!({"target": target, "durationSeconds": 2}))
        .await?;
    let request = fixture
        .until(&request, "samples where it can", |now| {
            let targets = status(now).targets;
            let sampling = |pod: &str| {
                let target = targets.iter().find(|target| target.pod_name == pod);
                target.is_some_and(|target| target.state == TargetState::Sampling)
            };
            sampling("web")
        })
        .await?;
    let pod: Pod = fixture.api().get("judged").await?;
    ensure!(
        pods::ephemeral_containers(&pod) == 0,
        "a sampler was added past the webhook"
    );
    Ok(request)
}

fn configuration(fixture: &Fixture) -> serde_json::Value {
    json!({
        "metadata": {"name": fixture.namespace},
        "webhooks": [{
            "name": "away.e2e.phpprof.dev",
            // No program listens there.
            "clientConfig": {"url": "https://127.0.0.1:9/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/ephemeralcontainers"], "operations": ["UPDATE"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fixture.namespace}},
            "objectSelector": {"matchLabels": {LABEL: "yes"}},
            "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        }],
    })
}
