//! Requests that wait, and ways to stop all of them: limits of concurrent runs, the administrator's switch, a namespace's label.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{holds, only_target, status};
use e2e::{ENABLED, Fixture, exclusive, exclusive_on, kubectl, pods, promised, release, shared};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use phpprof_crds::{
    NAMESPACE_DISABLED, NAMESPACE_ENABLED, NAMESPACE_LABEL, ProfileRequest, Reason, condition,
};
use serde_json::json;

/// Low limits, so that few requests are enough to make others wait.
pub const LIMITS: &[&str] = &["limits.requests=2", "limits.requestsPerNamespace=1"];
const HEARD: Duration = Duration::from_secs(5);

fn spec(seconds: i32) -> serde_json::Value {
    json!({"target": {"podName": "web"}, "durationSeconds": seconds})
}

pub fn reason(request: &ProfileRequest) -> String {
    let conditions = status(request).conditions;
    conditions
        .first()
        .map(|it| it.reason.clone())
        .unwrap_or_default()
}

/// Stops what runs in the fixture, checks that a request is held meanwhile, then lets it run.
async fn check_halt(
    fixture: &Fixture,
    stop: impl AsyncFn(bool) -> Result<()>,
    why: &str,
) -> Result<()> {
    fixture.start(&[pods::php("web")]).await?;
    let running = fixture.sampled(spec(60)).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begin = SystemTime::now();
    stop(true).await?;
    let ended = fixture.ended(&running).await?;
    let sampler = fixture.sampler(&only_target(&ended)?).await?;
    ensure!(sampler.ended_at().is_some(), "the sampler runs on");
    promised(
        &format!("the end of a sampler where {why}"),
        HEARD,
        begin.elapsed()?,
    )?;
    let complete = holds(&ended, condition::COMPLETE)?;
    ensure!(
        complete.reason == Reason::Cancelled.to_string()
            && complete
                .message
                .starts_with("profiling was stopped; profiled 1 pod"),
        "{complete:?}"
    );
    ensure!(only_target(&ended)?.samples > Some(0), "nothing was kept");
    let held = fixture.apply(spec(1)).await?;
    let held = fixture
        .until(&held, "is held", |it| {
            reason(it) == Reason::ProfilingDisabled.to_string()
        })
        .await?;
    let message = &status(&held).conditions[0].message;
    ensure!(message.contains(why), "{message}");
    stop(false).await?;
    let ended = fixture.ended(&held).await?;
    holds(&ended, condition::COMPLETE).map(drop)
}

#[test]
fn the_administrators_switch_stops_what_runs_within_5_seconds_and_holds_what_is_asked_for()
-> Result<()> {
    exclusive(async |fixture| {
        let switch = async |off: bool| {
            let word = if off { "stopped" } else { "running" };
            let patch = json!({"data": {"profiling": word}}).to_string();
            let namespace = ["--namespace", release::NAMESPACE];
            let patch = [
                "patch",
                "configmap",
                "phpprof-operator-switch",
                "--type=merge",
                "--patch",
                &patch,
            ];
            kubectl(&[&namespace[..], &patch[..]].concat())
                .await
                .map(drop)
        };
        let checked = check_halt(fixture, switch, "the administrator has stopped profiling").await;
        // It runs even after a failed check, because all other tests need it.
        switch(false).await?;
        checked
    })
}

#[test]
fn a_namespaces_label_stops_what_runs_there_within_5_seconds() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
        let label = async |off: bool| {
            let value = if off {
                NAMESPACE_DISABLED
            } else {
                NAMESPACE_ENABLED
            };
            let patch = Patch::Merge(json!({"metadata": {"labels": {NAMESPACE_LABEL: value}}}));
            let params = PatchParams::default();
            namespaces
                .patch(&fixture.namespace, &params, &patch)
                .await?;
            Ok(())
        };
        let why = format!(
            "the label {NAMESPACE_LABEL}={NAMESPACE_DISABLED} of the namespace has stopped profiling"
        );
        check_halt(fixture, label, &why).await
    })
}

/// When a request was accepted and when it was over.
fn span(request: &ProfileRequest) -> Result<(Timestamp, Timestamp)> {
    let status = status(request);
    let start = status.start_time.context("it was not accepted")?.0;
    Ok((start, status.completion_time.context("it is not over")?.0))
}

#[test]
fn requests_over_the_limit_wait_in_a_line_that_is_fair_between_namespaces() -> Result<()> {
    exclusive_on(LIMITS, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        fixture
            .beside(ENABLED, async |other| {
                other.start(&[pods::php("web")]).await?;
                let mut all = Vec::new();
                // The first namespace's requests come first.
                for fixture in [fixture, fixture, fixture, other, other] {
                    let request = fixture.apply(spec(2)).await?;
                    // Creation times have a resolution of one second, so requests of one second have no order.
                    tokio::time::sleep(Duration::from_millis(1100)).await;
                    all.push((fixture, request));
                }
                let (last_fixture, last) = all.last().context("there are five")?;
                let waiting = last_fixture
                    .until(last, "waits", |it| reason(it) == Reason::Queued.to_string())
                    .await?;
                let message = &status(&waiting).conditions[0].message;
                ensure!(message.starts_with("place "), "{message}");
                let mut spans = Vec::new();
                for (fixture, request) in &all {
                    let ended = fixture.ended(request).await?;
                    holds(&ended, condition::COMPLETE)?;
                    spans.push((ended.namespace(), span(&ended)?));
                }
                check_line(&spans)
            })
            .await
    })
}

fn check_line(spans: &[(Option<String>, (Timestamp, Timestamp))]) -> Result<()> {
    for (index, (namespace, (start, _))) in spans.iter().enumerate() {
        let at_once = |of_namespace: bool| {
            let others = spans.iter().filter(|(other, (began, ended))| {
                began <= start && start < ended && (!of_namespace || other == namespace)
            });
            others.count()
        };
        ensure!(at_once(true) <= 1 && at_once(false) <= 2, "{spans:?}");
        let before = spans[..index]
            .iter()
            .filter(|(other, _)| other == namespace);
        ensure!(
            before.clone().all(|(_, (_, ended))| ended <= start),
            "{spans:?}"
        );
    }
    // The other namespace did not wait for the third request of the first one.
    ensure!(spans[3].1.0 < spans[2].1.0, "{spans:?}");
    Ok(())
}
