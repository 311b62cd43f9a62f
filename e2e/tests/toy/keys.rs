//! The operator's keys, in a Secret that outlives the release.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{Fixture, exclusive, kubectl, pods, poll, release};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::json;

const SECRET: &str = "phpprof-operator-keys";

async fn keys(fixture: &Fixture) -> Result<BTreeMap<String, ByteString>> {
    let secrets: Api<Secret> = Api::namespaced(fixture.client.clone(), release::NAMESPACE);
    Ok(secrets.get(SECRET).await?.data.unwrap_or_default())
}

/// A request over the relay, which needs the keys: they sign its grant, and one of them is the key
/// of the relay's certificate.
async fn relayed(fixture: &Fixture) -> Result<()> {
    let spec = json!({"target": {"podName": "web"}, "durationSeconds": 1, "uploadMode": "Relay"});
    fixture.completed(spec).await.map(drop)
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn removed_keys_are_made_anew_and_stay() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            relayed(fixture).await?;
            let before = keys(fixture).await?;
            let patch = r#"--patch=[{"op": "remove", "path": "/data"}]"#;
            let named = ["--namespace", release::NAMESPACE, "patch", "secret", SECRET];
            kubectl(&[&named[..], &["--type=json", patch]].concat()).await?;
            let made = async || Ok(Some(keys(fixture).await?).filter(|keys| !keys.is_empty()));
            let after = poll("new keys", Duration::from_secs(15), made).await?;
            for name in ["access", "grants", "certificate"] {
                let [before, after] = [&before, &after].map(|keys| keys.get(name));
                ensure!(
                    before.context("no key")? != after.context("no new key")?,
                    "{name}"
                );
            }
            relayed(fixture).await?;
            release::uninstall().await?;
            ensure!(
                keys(fixture).await? == after,
                "the keys went with the release"
            );
            release::install(&[]).await?;
            relayed(fixture).await?;
            ensure!(
                keys(fixture).await? == after,
                "the keys are new after the next install"
            );
            Ok(())
        })
    }
}
