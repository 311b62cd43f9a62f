//! The API server is killed while samplers run.

use anyhow::{Result, ensure};
use e2e::{api_server, exclusive, pods};
use serde_json::json;

/// These have the second cluster, one by one.
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
                fixture.check_each_pod_once(&request, 2).await?;
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
