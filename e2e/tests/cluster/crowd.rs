//! Many and large requests of somebody else: they cost the operator little, and other requests nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::status;
use e2e::{NOT_ENABLED, Scene, alone, pods, release};
use kube::ResourceExt as _;
use kube::api::PostParams;
use phpprof_crds::ProfileRequest;
use serde_json::json;

/// Requests of 1.1 MiB each: as many had killed an operator for good.
const REQUESTS: usize = 70;
const LABELS: usize = 15_000;

fn labels() -> BTreeMap<String, String> {
    let label = |number: usize| (format!("label-{number:05}"), "x".repeat(63));
    (0..LABELS).map(label).collect()
}

/// Creates requests whose metadata no schema bounds.
async fn create_requests(scene: &Scene) -> Result<()> {
    let object = json!({
        "apiVersion": "phpprof.dev/v1alpha1", "kind": "ProfileRequest",
        "metadata": {"generateName": "large-", "labels": labels()}, "spec": {"target": {"podName": "web"}},
    });
    let request: ProfileRequest = serde_json::from_value(object)?;
    let requests = scene.api::<ProfileRequest>();
    for _ in 0..REQUESTS {
        requests.create(&PostParams::default(), &request).await?;
    }
    Ok(())
}

#[test]
fn requests_of_a_megabyte_from_a_namespace_that_has_not_opted_in_do_no_harm() -> Result<()> {
    alone(async |scene| {
        scene.start(&[pods::php("web")]).await?;
        let unbounded = json!({"target": {"selector": {"matchLabels": labels()}}});
        let refused = scene.apply(unbounded).await.err().context("not refused")?;
        ensure!(
            format!("{refused:#}").contains("must have at most 64 items"),
            "{refused:#}"
        );
        scene
            .beside(NOT_ENABLED, async |crowd| {
                create_requests(crowd).await?;
                // The next operator meets all of them at once.
                release::renew().await?;
                let operator = release::operator(&scene.client).await?;
                let operator = operator.context("no operator")?;
                let request = scene
                    .completed(json!({"target": {"podName": "web"}, "durationSeconds": 1}))
                    .await?;
                ensure!(status(&request).succeeded == 1, "{}", request.name_any());
                release::keeps_within_its_memory(scene, &operator).await
            })
            .await
    })
}
