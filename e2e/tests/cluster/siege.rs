//! A pod attacks the relay: a thousand silent connections, uploads that never end, a flood of
//! invalid grants.
//!
//! The script bounds everything, and all stays between pods of the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{Sampler, only_target, status};
use e2e::{ENABLED, Fixture, operator, pods, poll, promised, release, say, shared};
use phpprof_crds::{ProfileRequest, TargetReason, UploadRoute};
use serde::Deserialize;
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("../../src/siege.php");
/// Each grant allows four uploads at the same time.
const GRANTS: usize = 5;
const SECONDS: i32 = 5;
/// Longer than the attack: the relay takes nothing for a request that is over.
const RUNS_SECONDS: i32 = 60;

/// The script's report.
#[derive(Debug, Deserialize)]
struct SiegeSeen {
    opened: usize,
    ended: usize,
    trickling: usize,
    answers: BTreeMap<String, BTreeMap<String, usize>>,
}

#[test]
fn the_relay_serves_despite_1000_hostile_connections() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture
            .start(&[
                pods::php("web"),
                besieger(pods::without_php("hostile")),
                besieger(pods::idle_php("accomplice")),
            ])
            .await?;
        let operator = release::operator(&fixture.client).await?;
        let operator = operator.context("no operator")?;
        let grants = grants(fixture).await?.to_string();
        let siege = ["php", "-d", "memory_limit=-1", "-r", SCRIPT];
        let siege = fixture.exec("hostile", &siege, grants.as_bytes());
        let (seen, ()) = tokio::try_join!(siege, honest(fixture))?;
        let seen: SiegeSeen = serde_json::from_slice(&seen).context("the script says no JSON")?;
        check_siege(&seen)?;
        operator::keeps_within_its_memory(fixture, &operator).await
    })
}

/// The same pod, as a target of the requests whose grants the attack uses.
fn besieger(mut pod: Value) -> Value {
    pod["metadata"]["labels"]["app"] = json!("besieger");
    pod
}

/// Valid grants, of requests that still run in another pod. A pod can read them from samplers of
/// its own that have not used them.
async fn grants(fixture: &Fixture) -> Result<Value> {
    let selector = json!({"matchLabels": {"app": "besieger"}});
    let target = json!({"selector": selector, "containerName": "fpm"});
    let spec = json!({"target": target, "durationSeconds": RUNS_SECONDS});
    let mut requests = Vec::new();
    for _ in 0..GRANTS {
        requests.push(fixture.apply(spec.clone()).await?);
    }
    let mut grants = Vec::new();
    for request in &requests {
        let of_hostile = |now: &ProfileRequest| {
            let targets = status(now).targets.into_iter();
            let mut hostile = targets.filter(|it| it.pod_name == "hostile");
            hostile.find(|it| it.reason == Some(TargetReason::NoPhpFound))
        };
        let what = "knows that a pod has no PHP";
        let request = fixture.until(request, what, |now| of_hostile(now).is_some());
        let target = of_hostile(&request.await?).context("the pod has PHP")?;
        let call = fixture.sampler(&target).await?.grant(UploadRoute::Relay)?;
        grants.push(json!({"url": call.url, "authorization": call.headers["authorization"]}));
    }
    Ok(grants.into())
}

/// Makes a request during the attack.
async fn honest(fixture: &Fixture) -> Result<()> {
    let besieging = async || {
        let there = ["sh", "-c", "ls /tmp"];
        let files = fixture.exec("hostile", &there, &[]).await?;
        Ok(String::from_utf8(files)?
            .contains("besieging")
            .then_some(()))
    };
    poll("the relay is besieged", Duration::from_secs(60), besieging).await?;
    let request = fixture
        .completed(json!({"target": {"podName": "web"}, "durationSeconds": SECONDS, "uploadMode": "Relay"}))
        .await;
    fixture
        .exec("hostile", &["touch", "/tmp/over"], &[])
        .await?;
    let target = only_target(&request?)?;
    ensure!(
        target.upload_mode == Some(UploadRoute::Relay) && target.samples > Some(0),
        "{target:?}"
    );
    let took = after_sampling(&fixture.sampler(&target).await?)?;
    promised(
        "an upload over a besieged relay",
        Duration::from_secs(10),
        took,
    )
}

/// The time that a sampler took in addition to its sampling, to the second.
fn after_sampling(sampler: &Sampler) -> Result<Duration> {
    let started = sampler.started_at().context("it did not start")?;
    let ended = sampler.ended_at().context("it did not end")?;
    let lived = Duration::try_from(ended.duration_since(started))?;
    Ok(lived.saturating_sub(Duration::from_secs(SECONDS.unsigned_abs().into())))
}

/// Checks that the attack was one: silent connections were ended, uploads with valid grants were
/// slow, and nobody else was let in.
fn check_siege(seen: &SiegeSeen) -> Result<()> {
    say(&format!("{seen:?}"));
    ensure!(
        seen.opened >= 1000 && seen.ended >= 500 && seen.trickling == 4 * GRANTS,
        "{seen:?}"
    );
    let strange = seen.answers.get("strange").context("nobody was refused")?;
    ensure!(
        strange.get("403") > Some(&20) && strange.keys().all(|it| it == "403" || it == "cut"),
        "{seen:?}"
    );
    Ok(())
}
