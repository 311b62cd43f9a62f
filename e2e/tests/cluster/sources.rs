//! Compares the source address of an upload with the addresses of its pod.

use anyhow::{Result, ensure};
use e2e::requests::status;
use e2e::{Fixture, exclusive, masquerade, pods, release, test_cluster};
use phpprof_crds::{TargetReason, UploadRoute};
use serde_json::{Value, json};

fn spec() -> Value {
    json!({"target": {"podName": "web"}, "durationSeconds": 1, "uploadMode": "Relay"})
}

async fn relayed(fixture: &Fixture) -> Result<()> {
    let request = fixture.completed(spec()).await?;
    let targets = status(&request).targets;
    ensure!(
        targets[0].upload_mode == Some(UploadRoute::Relay),
        "{targets:?}"
    );
    Ok(())
}

/// Checks a masqueraded upload: if the administrator's setting refuses it, the message says what to
/// change; else it is accepted.
async fn masqueraded(fixture: &Fixture) -> Result<()> {
    let request = fixture.apply(spec()).await?;
    let request = fixture.ended(&request).await?;
    let target = status(&request).targets.remove(0);
    ensure!(
        target.reason == Some(TargetReason::SourceNotPod),
        "{target:?}"
    );
    let message = &target.message;
    // The gateway of the pods, in either family of addresses, and the pod's addresses, of which the
    // first may be of the other one.
    let [ipv4, ipv6] = test_cluster::here().pods();
    let sources = [format!("{ipv4}0.1 is not "), format!("{ipv6}1 is not ")];
    let pods = [format!("is not {ipv4}"), format!("is not {ipv6}")];
    let has = |one: &String| message.contains(one);
    let names_both = sources.iter().any(has) && pods.iter().any(has);
    ensure!(
        names_both && message.contains("relay.verifySource"),
        "{message}"
    );
    release::install(&["relay.verifySource=Warn"]).await?;
    relayed(fixture).await
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn enforced_source_refuses_another_address() -> Result<()> {
        exclusive(async |fixture| {
            release::install(&["relay.verifySource=Enforce"]).await?;
            fixture.start(&[pods::php("web")]).await?;
            relayed(fixture).await?;
            masquerade::begin().await?;
            let judged = masqueraded(fixture).await;
            masquerade::end().await?;
            judged
        })
    }
}
