//! Requests that wait, and ways to stop all of them: limits of concurrent runs, the administrator's
//! switch, a namespace's label.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{holds, only_target, status};
use e2e::{
    ENABLED, Fixture, exclusive, exclusive_on, kubectl, pods, promised, release, run, shared,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use phpprof_crds::{
    NAMESPACE_DISABLED, NAMESPACE_ENABLED, NAMESPACE_LABEL, ProfileRequest, RequestReason,
    condition,
};
use serde_json::json;

/// Low limits, so that few requests are enough to make others wait.
pub const LIMITS: &[&str] = &["limits.requests=2", "limits.requestsPerNamespace=1"];
const HEARD: Duration = Duration::from_secs(5);
/// People's annotation of the switch.
const SWITCH: &str = "phpprof.dev/profiling";

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
        complete.reason == RequestReason::Cancelled.to_string()
            && complete
                .message
                .starts_with("profiling was stopped; profiled 1 pod"),
        "{complete:?}"
    );
    ensure!(only_target(&ended)?.samples > Some(0), "nothing was kept");
    let held = fixture.apply(spec(1)).await?;
    let held = fixture
        .until(&held, "is held", |it| {
            reason(it) == RequestReason::ProfilingDisabled.to_string()
        })
        .await?;
    let message = &status(&held).conditions[0].message;
    ensure!(message.contains(why), "{message}");
    stop(false).await?;
    let ended = fixture.ended(&held).await?;
    holds(&ended, condition::COMPLETE).map(drop)
}

/// Sets the administrator's switch by the command of docs/guides/tuning.md.
async fn switch(off: bool) -> Result<()> {
    let word = format!("{SWITCH}{}", if off { "=stopped" } else { "-" });
    let namespace = ["--namespace", release::NAMESPACE, "--overwrite"];
    let annotate = ["annotate", "configmap", "phpprof-operator-switch", &word];
    kubectl(&[&annotate[..], &namespace[..]].concat())
        .await
        .map(drop)
}

/// The chart's ConfigMap of the switch for a namespace, as helm renders it.
async fn rendered(namespace: &str, kill: bool) -> Result<String> {
    let chart = release::chart();
    let kill = format!("killSwitch={kill}");
    let template = [
        "template",
        "phpprof",
        &chart,
        "--namespace",
        namespace,
        "--set",
        &kill,
        release::KUBE_VERSION,
        "--show-only=templates/switch.yaml",
    ];
    let text = String::from_utf8(run("helm", &template, &[]).await?)?;
    let map = text
        .split("\n---")
        .find(|it| it.contains("kind: ConfigMap"));
    map.map(str::to_owned).context("the chart has no switch")
}

/// Helm 4 applies on the server's side, as this does: a change of a field that is the chart's fails
/// the next upgrade.
#[test]
fn server_side_apply_keeps_the_switch_annotation() -> Result<()> {
    shared(ENABLED, async |fixture| {
        let namespace = fixture.namespace.as_str();
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("switch.yaml").display().to_string();
        let apply = async |kill: bool| {
            std::fs::write(&file, rendered(namespace, kill).await?)?;
            let apply = [
                "apply",
                "--server-side",
                "--field-manager=helm",
                "-n",
                namespace,
                "-f",
                &file,
            ];
            kubectl(&apply).await.map(drop)
        };
        let change = async |words: &[&str]| {
            let name = ["configmap", "phpprof-operator-switch", "-n", namespace];
            kubectl(&[&words[..1], &name, &words[1..]].concat()).await
        };
        apply(false).await?;
        change(&["annotate", &format!("{SWITCH}=stopped")]).await?;
        apply(true).await?;
        apply(false).await?;
        let kept = change(&[
            "get",
            "-o",
            "jsonpath={.metadata.annotations.phpprof\\.dev/profiling}",
        ])
        .await?;
        ensure!(kept == "stopped", "the upgrade removed the annotation");
        change(&[
            "patch",
            "--type=merge",
            "-p",
            r#"{"data": {"profiling": "stopped"}}"#,
        ])
        .await?;
        let refused = apply(false)
            .await
            .err()
            .context("the changed key is applied over")?;
        ensure!(format!("{refused:#}").contains("conflict"), "{refused:#}");
        Ok(())
    })
}

/// Checks that a request is held while two upgrades of a release of Helm 4 change other things, and
/// that only a key of the chart's is in the way of an upgrade.
async fn check_held_over_upgrades(fixture: &Fixture) -> Result<()> {
    let upgrade = async |requests: u32, flags: &[&str]| {
        let value = format!("limits.requests={requests}");
        release::upgrade_by(release::HELM_4, &value, flags).await
    };
    switch(true).await?;
    let held = fixture.apply(spec(1)).await?;
    upgrade(400, &[]).await?;
    let patch = r#"{"data": {"profiling": "stopped"}}"#;
    let map = [
        "configmap/phpprof-operator-switch",
        "-n",
        release::NAMESPACE,
    ];
    kubectl(&[&["patch", "--type=merge", "-p", patch][..], &map].concat()).await?;
    let refused = upgrade(300, &[]).await.err().context("no conflict")?;
    // As docs/guides/upgrading.md shows it.
    let said =
        r#"Apply failed with 1 conflict: conflict with "kubectl-patch" using v1: .data.profiling"#;
    ensure!(format!("{refused:#}").contains(said), "{refused:#}");
    upgrade(300, &["--force-conflicts"]).await?;
    let key = ["get", "-o", "jsonpath={.data.profiling}"];
    let key = kubectl(&[&key[..], &map].concat()).await?;
    ensure!(key == "running", "the upgrade left {key}");
    let now = fixture.until(&held, "is there", |_| true).await?;
    ensure!(
        reason(&now) == RequestReason::ProfilingDisabled.to_string(),
        "{now:?}"
    );
    switch(false).await?;
    holds(&fixture.ended(&held).await?, condition::COMPLETE).map(drop)
}

#[test]
fn a_namespace_label_stops_runs_within_5_seconds() -> Result<()> {
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

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    fn the_switch_stops_runs_within_5_seconds() -> Result<()> {
        exclusive(async |fixture| {
            let checked =
                check_halt(fixture, switch, "the administrator has stopped profiling").await;
            // It runs even after a failed check, because all other tests need it.
            switch(false).await?;
            checked
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn the_switch_holds_over_upgrades_by_helm_4() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            release::install_anew_by(release::HELM_4).await?;
            let checked = check_held_over_upgrades(fixture).await;
            // The next test upgrades that release by Helm 3.
            switch(false).await?;
            checked
        })
    }

    #[test]
    fn the_queue_is_fair_between_namespaces() -> Result<()> {
        exclusive_on(LIMITS, async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            fixture
                .beside(ENABLED, async |other| {
                    other.start(&[pods::php("web")]).await?;
                    let mut all = Vec::new();
                    // The first namespace's requests come first.
                    for fixture in [fixture, fixture, fixture, other, other] {
                        let request = fixture.apply(spec(2)).await?;
                        // Creation times have a resolution of one second, so requests of one second
                        // have no order.
                        tokio::time::sleep(Duration::from_millis(1100)).await;
                        all.push((fixture, request));
                    }
                    let (last_fixture, last) = all.last().context("there are five")?;
                    let waiting = last_fixture
                        .until(last, "waits", |it| {
                            reason(it) == RequestReason::Queued.to_string()
                        })
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
}
