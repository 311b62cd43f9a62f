//! The store does not answer during a run, for a while or for good, works badly, or has another
//! certificate. And a webhook that does not answer.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{failed_with, holds, only_target, status};
use e2e::store::sha256;
use e2e::{ENABLED, Fixture, exclusive, outage, pods, poll, release, shared, webhook};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use phpprof_crds::{ProfileRequest, TargetReason, TargetState, condition};
use serde_json::json;

/// Applies a request and stops the store while its samplers run.
async fn sampled_without_store(fixture: &Fixture, duration_seconds: u32) -> Result<ProfileRequest> {
    fixture.start(&[pods::php("web")]).await?;
    let spec = json!({"target": {"podName": "web"}, "durationSeconds": duration_seconds});
    let request = fixture.sampled(spec).await?;
    outage::stop().await?;
    Ok(request)
}

#[test]
fn a_dead_webhook_delays_its_own_pods_only() -> Result<()> {
    shared(ENABLED, async |fixture| {
        webhook::profiled_past_it(fixture).await.map(drop)
    })
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_profile_arrives_when_the_store_returns() -> Result<()> {
        exclusive(async |fixture| {
            let request = sampled_without_store(fixture, 4).await?;
            fixture.wait_for_retry(&only_target(&request)?).await?;
            outage::start().await?;
            let request = fixture.ended(&request).await?;
            holds(&request, condition::COMPLETE)?;
            let target = only_target(&request)?;
            ensure!(
                sha256(&fixture.read(&target.object_key).await?) == target.sha256,
                "another object"
            );
            let keys = fixture.keys().await?;
            ensure!(keys.len() == 3, "{keys:?}");
            Ok(())
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn an_absent_store_fails_with_a_reason() -> Result<()> {
        exclusive(async |fixture| {
            let request = sampled_without_store(fixture, 4).await?;
            let request = fixture.ended(&request).await?;
            let target = failed_with(&request, TargetReason::UploadDeadlineExceeded)?;
            ensure!(
                target.message.contains("could not be stored in time"),
                "{target:?}"
            );
            let sampler = fixture.sampler(&target).await?;
            let until: i64 = sampler.flag("--upload-until").context("no end")?.parse()?;
            let ended = status(&request).completion_time.context("not over")?;
            ensure!(
                ended.0.as_second() <= until + 5,
                "over {} s after the deadline",
                ended.0.as_second() - until
            );
            outage::start().await?;
            // The operator could not delete the record. The next leader deletes it.
            let keys = fixture.keys().await?;
            let is_record = |key: &String| key.ends_with("/accepted.json");
            ensure!(keys.iter().all(is_record), "{keys:?}");
            Ok(())
        })
    }

    #[test]
    fn an_untrusted_store_certificate_fails_with_its_reason() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            // A CA of the cluster, but not the store's.
            let maps = fixture.api::<ConfigMap>();
            let map = poll(
                "the namespace has its authority",
                Duration::from_secs(30),
                async || Ok(maps.get_opt("kube-root-ca.crt").await?),
            );
            let other = map
                .await?
                .data
                .and_then(|mut data| data.remove("ca.crt"))
                .context("no ca.crt")?;
            release::install(&[&format!("store.caBundle={other}")]).await?;
            let request = fixture
            .apply(
                json!({"target": {"podName": "web"}, "durationSeconds": 1, "uploadMode": "Direct"}),
            )
            .await?;
            let target = failed_with(
                &fixture.ended(&request).await?,
                TargetReason::CertificateUntrusted,
            )?;
            ensure!(
                target.message.contains("Set store.caBundle in the chart"),
                "{target:?}"
            );
            let keys = fixture.keys().await?;
            ensure!(keys.is_empty(), "{keys:?}");
            Ok(())
        })
    }

    #[test]
    fn a_faulty_store_ends_in_one_object() -> Result<()> {
        exclusive(async |fixture| {
            const TROUBLES: [(&str, &[&str]); 5] = [
                ("fail", &["500", "500", "200"]),
                ("full", &["507", "507", "200"]),
                ("slow", &["200"]),
                ("cut", &["200 cut", "412"]),
                ("lose", &["200 lost", "412"]),
            ];
            fixture
                .start(&TROUBLES.map(|(trouble, _)| pods::idle_php(trouble)))
                .await?;
            let rules = TROUBLES.map(|(trouble, _)| format!("/{trouble}.fpm.={trouble}"));
            outage::inject_faults(fixture, &rules.each_ref().map(String::as_str)).await?;
            let profiled = TROUBLES.map(async |(trouble, _)| {
            let target = json!({"podName": trouble, "containerName": "fpm"});
            fixture
                .completed(json!({
                    "target": target, "durationSeconds": 1, "uploadMode": "Direct", "includeIdle": true,
                }))
                .await
        });
            for (request, (trouble, expected)) in try_join_all(profiled).await?.iter().zip(TROUBLES)
            {
                let target = only_target(request)?;
                ensure!(target.state == TargetState::Uploaded, "{target:?}");
                let seen = outage::seen().await?;
                let puts = outage::puts(&seen, &target.object_key);
                ensure!(puts == expected, "{trouble}: {puts:?} of {seen}");
                ensure!(
                    sha256(&fixture.read(&target.object_key).await?) == target.sha256,
                    "{trouble}: another object"
                );
            }
            // Each request has its profile, the merged one and the manifest.
            let keys = fixture.keys().await?;
            ensure!(keys.len() == 3 * TROUBLES.len(), "{keys:?}");
            Ok(())
        })
    }
}
