//! What the operator sends out of the cluster: a receiver in a pod replaces Pyroscope and Grafana.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::requests::status;
use e2e::{Fixture, exclusive, kubectl, pods, poll, release, run};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use phpprof_profile::{DecodeLimits, decode, total};
use serde_json::{Value, json};

const SECRET: &str = "phpprof-e2e-grafana";
const TOKEN: &str = "glsa_e2e";
const TOLD: Duration = Duration::from_secs(60);

fn receiver() -> Value {
    let script = STANDARD.encode(include_str!("../../src/receiver.php"));
    let serve = format!(
        "file_put_contents('/tmp/receiver.php', base64_decode('{script}')); passthru('php -S [::]:4040 /tmp/receiver.php');"
    );
    let mut pod = pods::without_php("receiver");
    pod["spec"]["containers"][0]["command"] = json!(["php", "-r", serve]);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": 4040}, "periodSeconds": 1});
    pod
}

async fn install(fixture: &Fixture) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"token": format!("{TOKEN}\n")},
        "metadata": {"name": SECRET, "namespace": release::NAMESPACE},
    });
    let secret = secret.to_string();
    run("kubectl", &["apply", "--filename=-"], secret.as_bytes()).await?;
    let pod: Pod = fixture.api().get("receiver").await?;
    let url = format!("http://{}:4040", pods::host(&pod)?);
    release::install(&[
        &format!("pyroscope.url={url}"),
        "pyroscope.labels.cluster=e2e",
        &format!("grafana.url={url}"),
        "grafana.pyroscopeDatasource=profiles",
        &format!("grafana.annotations.tokenSecret={SECRET}"),
    ])
    .await
}

/// The calls that the receiver has kept, once there are this many.
async fn kept(fixture: &Fixture, calls: usize) -> Result<Vec<Value>> {
    poll("pushes and an annotation", TOLD, async || {
        let show = ["sh", "-c", "cat /tmp/kept 2>/dev/null || true"];
        let kept = String::from_utf8(fixture.exec("receiver", &show, &[]).await?)?;
        let lines: Vec<Value> = kept
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        // The operator also sends what ended a moment ago in other tests.
        let own = lines.into_iter();
        let lines: Vec<Value> = own
            .filter(|call| call.to_string().contains(&fixture.namespace))
            .collect();
        Ok((lines.len() >= calls).then_some(lines))
    })
    .await
}

/// Compares each pushed type with the total of the merged profile in the store.
async fn check_pushes(fixture: &Fixture, request: &ProfileRequest, calls: &[Value]) -> Result<()> {
    let url = status(request).profile.context("no profile")?.url;
    let merged = fixture.profile(fixture.store.key_of(&url)?).await?;
    let pushes = calls
        .iter()
        .filter(|call| call["path"] == "/push.v1.PusherService/Push");
    let mut totals = BTreeMap::new();
    for push in pushes {
        let series = &push["body"]["series"][0];
        let label = |name: &str| {
            let labels = series["labels"].as_array().into_iter().flatten();
            let mut found = labels.filter(|label| label["name"] == name);
            found.find_map(|label| label["value"].as_str().map(str::to_owned))
        };
        let service = format!("{}/web", fixture.namespace);
        ensure!(label("service_name") == Some(service), "{series}");
        ensure!(label("pod").as_deref() == Some("web"), "{series}");
        ensure!(label("cluster").as_deref() == Some("e2e"), "{series}");
        let raw = series["samples"][0]["rawProfile"].as_str();
        let raw = STANDARD.decode(raw.context("no profile")?)?;
        let profile = decode(&raw, &DecodeLimits::default())?;
        let (kind, _) = profile.sample_types().next().context("no type")?;
        let pushed = total(&profile, kind);
        ensure!(pushed == total(&merged, kind), "{kind}: {pushed}");
        totals.insert(label("__name__"), pushed);
    }
    ensure!(totals.len() == 2, "{totals:?}");
    ensure!(totals.values().all(|total| *total > 0), "{totals:?}");
    Ok(())
}

fn check_annotation(request: &ProfileRequest, calls: &[Value]) -> Result<()> {
    let mut annotations = calls
        .iter()
        .filter(|call| call["path"] == "/api/annotations");
    let call = annotations.next().context("no annotation")?;
    ensure!(call["authorization"] == format!("Bearer {TOKEN}").as_str());
    let text = call["body"]["text"].as_str().context("no text")?;
    ensure!(text.contains(&request.name_any()), "{text}");
    ensure!(call["body"]["timeEnd"].as_i64() > call["body"]["time"].as_i64());
    Ok(())
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn pushes_carry_the_stored_profiles_totals() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web"), receiver()]).await?;
            install(fixture).await?;
            let spec = json!({"target": {"podName": "web"}, "durationSeconds": 3});
            let request = fixture.completed(spec).await?;
            let calls = kept(fixture, 3).await?;
            check_pushes(fixture, &request, &calls).await?;
            check_annotation(&request, &calls)?;
            let links = status(&request).links;
            let names: Vec<&str> = links.iter().map(|link| &*link.name).collect();
            let expected = ["Profiles Drilldown", "Explore", "Diff against the baseline"];
            ensure!(names == expected, "{names:?}");
            poll("events of both", TOLD, async || {
                let place = ["--namespace", &fixture.namespace];
                let events = kubectl(&[&place[..], &["get", "events"]].concat()).await?;
                let both = events.contains("Pushed") && events.contains("Annotated");
                Ok(both.then_some(()))
            })
            .await?;
            let secret = [
                "delete",
                "secret",
                SECRET,
                "--namespace",
                release::NAMESPACE,
            ];
            kubectl(&secret).await?;
            Ok(())
        })
    }
}
