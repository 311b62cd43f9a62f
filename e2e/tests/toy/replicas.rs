//! Two replicas of the operator: one leads, and the other takes over when the leader ends, is
//! killed, hangs or is cut off.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{self, AuditedCall, calls};
use e2e::requests::status;
use e2e::{Fixture, cut, exclusive, is_long_form, kubectl, pods, poll, release, say};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{ProfileRequest, TargetState};
use serde_json::{Value, json};

/// Three times the promise: 2 seconds after a leader that is stopped, 15 after one that disappears.
const HANDED_OVER: Duration = Duration::from_secs(6);
const TAKEN_OVER: Duration = Duration::from_secs(45);

fn operators(fixture: &Fixture) -> Api<Pod> {
    Api::namespaced(fixture.client.clone(), release::NAMESPACE)
}

/// The name of the pod that holds the lease, if any.
async fn holder(fixture: &Fixture) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(fixture.client.clone(), release::NAMESPACE);
    let spec = leases.get(release::SERVICE).await?.spec.unwrap_or_default();
    Ok(spec.holder_identity.filter(|holder| !holder.is_empty()))
}

/// The leader, once both pods are ready.
async fn leader(fixture: &Fixture) -> Result<Pod> {
    let ours = ListParams::default().labels("app.kubernetes.io/name=phpprof");
    let is_ready = |pod: &Pod| {
        let containers = pod
            .status
            .as_ref()
            .and_then(|it| it.container_statuses.as_ref());
        let ready = containers.is_some_and(|all| all.iter().all(|container| container.ready));
        ready && pod.metadata.deletion_timestamp.is_none()
    };
    let both = async || {
        let found = operators(fixture).list(&ours).await?.items;
        let holder = holder(fixture).await?;
        // After a rollout, a pod that is being deleted may still hold the lease.
        let ready: Vec<&Pod> = found.iter().filter(|pod| is_ready(pod)).collect();
        let led = ready.iter().find(|pod| Some(pod.name_any()) == holder);
        Ok(led.filter(|_| ready.len() == 2).map(|pod| (*pod).clone()))
    };
    poll("two operators, of which one leads", TAKEN_OVER * 2, both).await
}

/// Waits until another pod holds the lease, and prints how long that took.
async fn succeeded_by_another(
    fixture: &Fixture,
    before: &Pod,
    limit: Duration,
) -> Result<Duration> {
    let begin = Instant::now();
    let name = before.name_any();
    let another = async || Ok(holder(fixture).await?.filter(|holder| *holder != name));
    poll("another holder of the lease", limit, another).await?;
    Ok(begin.elapsed())
}

/// Requests a profile of both pods, acts on the leader once samplers run, and checks that each pod
/// had one sampler and is in the profile.
async fn profiled_while(
    fixture: &Fixture,
    what: &str,
    act: impl AsyncFnOnce(&Pod) -> Result<()>,
) -> Result<()> {
    let leader = leader(fixture).await?;
    // The helper pod on the node starts now, because it would take too long at the right moment.
    fixture.on_node("true", &leader).await?;
    let target = json!({"selector": {"matchLabels": {"app": "web"}}, "containerName": "fpm"});
    let spec = json!({"target": target, "durationSeconds": 3, "uploadMode": "Relay"});
    let request = fixture.apply(spec).await?;
    let samples = |now: &ProfileRequest| {
        let targets = status(now).targets;
        targets
            .iter()
            .any(|target| target.state == TargetState::Sampling)
    };
    let request = fixture.until(&request, "samples", samples).await?;
    act(&leader).await?;
    let request = fixture.ended(&request).await?;
    fixture
        .check_each_pod_once(&request, 2)
        .await
        .context(what.to_owned())
}

/// The pods of the request during which the leader is cut off.
const PODS: usize = 8;
/// The leader's bandwidth: adding one sampler sends about 15 kB.
const BYTES_A_SECOND: u32 = 20_000;
/// Longer than TCP waits before it sends a packet again, and twice as long as a replica waits
/// between two reads of the lease.
const BACK: Duration = Duration::from_secs(12);

/// How many pods of the fixture have a sampler.
async fn injected(fixture: &Fixture) -> Result<usize> {
    let all = fixture
        .api::<Pod>()
        .list(&ListParams::default().labels("app=web"))
        .await?;
    Ok(all
        .iter()
        .filter(|pod| pods::ephemeral_containers(pod) > 0)
        .count())
}

/// Requests a profile of all pods, and cuts the leader off when it has added samplers to some.
async fn cut_off_while_it_injects(fixture: &Fixture, leader: &Pod) -> Result<ProfileRequest> {
    cut::slow_down(leader, BYTES_A_SECOND).await?;
    let target = json!({
        "selector": {"matchLabels": {"app": "web"}}, "containerName": "fpm", "maxPods": PODS,
    });
    let request = fixture
        .apply(json!({"target": target, "durationSeconds": 3, "includeIdle": true}))
        .await?;
    let first = async || Ok(Some(injected(fixture).await?).filter(|pods| *pods > 0));
    poll("a first sampler", TAKEN_OVER, first).await?;
    cut::cut(leader).await?;
    let some = injected(fixture).await?;
    say(&format!("cut off after {some} of {PODS} samplers"));
    ensure!(some < PODS, "the leader was done before it was cut off");
    ensure!(
        holder(fixture).await? == leader.metadata.name,
        "it did not lead any more"
    );
    Ok(request)
}

/// The writes of a pod since then, also those that were refused.
fn writes(pod: &Pod, since: Timestamp) -> Result<Vec<AuditedCall>> {
    let writes =
        |call: &AuditedCall| ["create", "update", "patch", "delete"].contains(&call.verb.as_str());
    let mut calls = calls(&audit::log())?;
    calls.retain(|call| call.pod == pod.name_any() && call.received > since && writes(call));
    Ok(calls)
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    fn the_second_replica_takes_over() -> Result<()> {
        exclusive(async |fixture| {
            release::install(&["replicas=2"]).await?;
            fixture
                .start(&[pods::php("web-a"), pods::php("web-b")])
                .await?;
            profiled_while(fixture, "asked to end", async |leader| {
                let pods = operators(fixture);
                pods.delete(&leader.name_any(), &DeleteParams::default())
                    .await?;
                let took = succeeded_by_another(fixture, leader, HANDED_OVER).await?;
                say(&format!("handed over within {:.1} s", took.as_secs_f64()));
                Ok(())
            })
            .await?;
            let kills = if is_long_form("twenty kills of the leader") {
                20
            } else {
                0
            };
            for _ in 0..kills {
                // Kubernetes waits longer before each restart of a pod; a new pod begins without a
                // delay.
                release::renew().await?;
                profiled_while(fixture, "killed", async |leader| {
                    fixture.on_node("kill -KILL $pids", leader).await?;
                    Ok(())
                })
                .await?;
            }
            profiled_while(fixture, "hangs", async |leader| {
                fixture.on_node("kill -STOP $pids", leader).await?;
                let took = succeeded_by_another(fixture, leader, TAKEN_OVER).await?;
                say(&format!("taken over within {:.1} s", took.as_secs_f64()));
                // The leader continues in the middle of the request that it had begun.
                fixture.on_node("kill -CONT $pids", leader).await?;
                Ok(())
            })
            .await?;
            let named = [
                "--namespace",
                release::NAMESPACE,
                "get",
                "pdb",
                release::SERVICE,
            ];
            kubectl(&named).await.context("no PodDisruptionBudget")?;
            // Each request has the profiles of two pods, the merged one and the manifest.
            let keys = fixture.keys().await?;
            ensure!(keys.len() == (2 + kills) * 4, "{keys:?}");
            Ok(())
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_cut_off_leader_is_succeeded_and_silent() -> Result<()> {
        exclusive(async |fixture| {
            release::install(&["replicas=2", "startSlackSeconds=60"]).await?;
            let pods: Vec<Value> = (0..PODS)
                .map(|pod| pods::idle_php(&format!("web-{pod}")))
                .collect();
            fixture.start(&pods).await?;
            let leader = leader(fixture).await?;
            let played = async {
                let request = cut_off_while_it_injects(fixture, &leader).await?;
                let took = succeeded_by_another(fixture, &leader, TAKEN_OVER).await?;
                say(&format!("taken over within {:.1} s", took.as_secs_f64()));
                fixture.ended(&request).await
            };
            let (played, since) = (played.await, Timestamp::now());
            cut::end().await?;
            let request = played?;
            tokio::time::sleep(BACK).await;
            let back = calls(&audit::log())?;
            let back = back
                .iter()
                .filter(|call| call.pod == leader.name_any() && call.received > since);
            ensure!(back.count() > 0, "it is not back");
            // Packets that the kernel had queued before the cut may still arrive. They are refused,
            // because the samplers exist.
            let writes = writes(&leader, since)?;
            let taken: Vec<&AuditedCall> = writes.iter().filter(|call| call.code < 400).collect();
            ensure!(taken.is_empty(), "{taken:#?}");
            let request = fixture.until(&request, "is there", |_| true).await?;
            fixture.check_each_pod_once(&request, PODS as i32).await?;
            let keys = fixture.keys().await?;
            ensure!(keys.len() == PODS + 2, "{keys:?}");
            Ok(())
        })
    }
}
