//! Stores as they are: what the operator finds out about them, and what it does with a store that
//! overwrites objects.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::release;
use e2e::requests::{holds, only_target, status};
use e2e::store::{Call, sha256};
use e2e::{ENABLED, Fixture, exclusive, outage, pods, poll, shared};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::PostParams;
use phpprof_crds::{RequestReason, UploadRoute, condition};
use serde_json::{Value, json};

/// How the operator finds its store.
async fn told(fixture: &Fixture) -> Result<Value> {
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client.clone(), release::NAMESPACE);
    let map = maps.get("phpprof-operator-status").await?;
    let told = map.data.unwrap_or_default().remove("store");
    Ok(serde_json::from_str(&told.context("nothing is told yet")?)?)
}

/// Waits until the operator has probed its store with this result.
async fn probed(fixture: &Fixture, status: &str, reason: &str) -> Result<()> {
    poll("the probe's result", Duration::from_secs(60), async || {
        let told = told(fixture).await.unwrap_or_default();
        let found = (told["status"].as_str(), told["reason"].as_str());
        Ok((found == (Some(status), Some(reason))).then_some(()))
    })
    .await
}

#[test]
fn doctor_repeats_what_the_store_probe_found() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::idle_php("web")]).await?;
        probed(fixture, "True", "Refused").await?;
        let user = fixture.administrator()?;
        let report = user.run("doctor pod/web -o json").await?.well()?;
        ensure!(report.contains("last success 20"), "{report}");
        // The probe has left nothing.
        let keys = fixture.keys().await?;
        ensure!(keys.iter().all(|key| !key.contains(".probe")), "{keys:?}");
        Ok(())
    })
}

/// The release with such a store.
async fn install(fixture: &Fixture, name: &str, allow: &str) -> Result<()> {
    let endpoint = format!(
        "store.endpoint=http://{name}.{}.svc:9000",
        fixture.namespace
    );
    let allow = format!("store.allowOverwrite={allow}");
    let values = [
        &endpoint,
        "store.allowInsecure=true",
        "store.caBundle=",
        &allow,
    ];
    release::install(&values).await
}

/// Checks what the store does with checksums of presigned PUTs: a wrong `Content-MD5` is refused,
/// and so is any unsigned header `x-amz-…`, which is why there is no other checksum.
async fn check_checksums(fixture: &Fixture, grant: &Call) -> Result<()> {
    let sha256 = "ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=";
    let md5_of_a = "DMF1ucDxtqgxw5niaXcmYQ==";
    let md5_of_b = "kutf/uauL+w61xx3dTFXjw==";
    let with = |name: &str, value: &str| grant.clone().header(name, value).body(b"a", 1);
    let calls = [
        with("content-md5", md5_of_b),
        with("content-md5", "none"),
        with("x-amz-checksum-sha256", sha256),
        with("content-md5", md5_of_a),
    ];
    let answers = fixture.call("idle", &calls).await?;
    let expected = [
        (400, "BadDigest"),
        (400, "InvalidDigest"),
        (403, "AccessDenied"),
        (200, ""),
    ];
    for (answer, (status, code)) in answers.iter().zip(expected) {
        let body = String::from_utf8_lossy(&answer.body);
        ensure!(
            answer.status == status && body.contains(code),
            "{status} {code}: HTTP {} {body}",
            answer.status
        );
    }
    Ok(())
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn a_damaged_direct_upload_is_refused_and_repeated() -> Result<()> {
        exclusive(async |fixture| {
            release::install(&["store.directChecksum=MD5"]).await?;
            let pods = [pods::idle_php("web"), pods::without_php("idle")];
            fixture.start(&pods).await?;
            outage::inject_faults(fixture, &["/web.fpm.=damage"]).await?;
            let spec = |pod: &str| {
                let target = json!({"podName": pod, "containerName": "fpm"});
                json!({"target": target, "durationSeconds": 1, "uploadMode": "Direct", "includeIdle": true})
            };
            let target = only_target(&fixture.completed(spec("web")).await?)?;
            ensure!(
                target.upload_mode == Some(UploadRoute::Direct),
                "{target:?}"
            );
            let seen = outage::seen().await?;
            let puts = outage::puts(&seen, &target.object_key);
            ensure!(puts == ["400 damaged", "200"], "{puts:?} of {seen}");
            let stored = fixture.read(&target.object_key).await?;
            ensure!(sha256(&stored) == target.sha256, "another object");
            outage::restore().await?;
            let unused = fixture.ended(&fixture.apply(spec("idle")).await?).await?;
            let sampler = fixture.sampler(&only_target(&unused)?).await?;
            ensure!(sampler.variable("PHPPROF_DIRECT_CHECKSUM") == Some("MD5"));
            check_checksums(fixture, &sampler.grant(UploadRoute::Direct)?).await
        })
    }

    /// No real server that can be had here ignores If-None-Match, so this one is a small server in
    /// PHP.
    #[test]
    fn an_overwriting_store_is_refused_unless_allowed() -> Result<()> {
        exclusive(async |fixture| {
            let script = include_str!("odd-store.php");
            for (name, mode, reason) in [
                ("ignores", "ignore", "Overwrites"),
                ("lacks", "501", "NotImplemented"),
            ] {
                let server = pods::odd_store(name, mode, script);
                fixture
                    .start(&[server, pods::php(&format!("web-{name}"))])
                    .await?;
                let service = json!({
                    "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 9000}]},
                });
                let service: Service = serde_json::from_value(service)?;
                fixture
                    .api()
                    .create(&PostParams::default(), &service)
                    .await?;
                install(fixture, name, "false").await?;
                probed(fixture, "False", reason).await?;
                let target = json!({"podName": format!("web-{name}")});
                let spec = json!({"target": target, "durationSeconds": 2});
                let request = fixture.ended(&fixture.apply(spec.clone()).await?).await?;
                let failed = holds(&request, condition::FAILED)?;
                ensure!(
                    failed.reason == RequestReason::StoreOverwrites.to_string(),
                    "{failed:?}"
                );
                ensure!(status(&request).targets.is_empty());
                install(fixture, name, "true").await?;
                probed(fixture, "False", reason).await?;
                let target = only_target(&fixture.completed(spec).await?)?;
                ensure!(target.upload_mode == Some(UploadRoute::Relay), "{target:?}");
            }
            Ok(())
        })
    }
}
