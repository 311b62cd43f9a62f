//! The API server is killed while samplers run.

use anyhow::{Result, ensure};
use e2e::requests::{holds, status};
use e2e::{Fixture, api_server, exclusive, pods};
use k8s_openapi::api::core::v1::Pod;
use phpprof_crds::{ProfileRequest, condition};
use serde_json::json;

/// Checks that the request is complete with both pods, and that each had one sampler for it.
async fn has_each_pod_once(
    fixture: &Fixture,
    request: &ProfileRequest,
    moment: &str,
) -> Result<()> {
    let complete = holds(request, condition::COMPLETE)?;
    let status = status(request);
    ensure!(
        status.succeeded == 2,
        "killed when it {moment}: {complete:?}"
    );
    for target in &status.targets {
        let name = format!(
            "phpprof-{}-",
            &request.metadata.uid.clone().unwrap_or_default()[..8]
        );
        let pod: Pod = fixture.api().get(&target.pod_name).await?;
        let containers = pod
            .spec
            .and_then(|spec| spec.ephemeral_containers)
            .unwrap_or_default();
        let ours = containers
            .iter()
            .filter(|container| container.name.starts_with(&name))
            .count();
        ensure!(
            ours == 1,
            "killed when it {moment}: {ours} samplers in pod {}",
            target.pod_name
        );
    }
    Ok(())
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_killed_api_server_costs_no_request() -> Result<()> {
        exclusive(async |fixture| {
            fixture
                .start(&[pods::php("web-a"), pods::php("web-b")])
                .await?;
            let operator = fixture.operator().await?;
            let target =
                json!({"selector": {"matchLabels": {"app": "web"}}, "containerName": "fpm"});
            let spec = json!({"target": target, "durationSeconds": 4});
            // Its samplers end while the API server cannot report it.
            let sampled = fixture.sampled(spec.clone()).await?;
            api_server::restart().await?;
            let after = fixture.apply(spec).await?;
            for request in [sampled, after] {
                let request = fixture.ended(&request).await?;
                has_each_pod_once(fixture, &request, "samples, the API server,").await?;
            }
            ensure!(
                pods::restarts(&fixture.operator().await?) == pods::restarts(&operator),
                "the operator has ended"
            );
            let keys = fixture.keys().await?;
            ensure!(keys.len() == 2 * 4, "{keys:?}");
            Ok(())
        })
    }
}
