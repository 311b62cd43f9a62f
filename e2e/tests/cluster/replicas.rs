//! Two replicas of the operator: one looks after requests, and the other goes on when it ends, is killed or hangs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::requests::status;
use e2e::{Scene, alone, is_long_form, kubectl, pods, poll, release, say};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use phpprof_crds::{ProfileRequest, TargetState};
use serde_json::json;

/// Three times what is promised: 2 seconds after a holder that is asked to end, 15 after one that is gone.
const HANDED_OVER: Duration = Duration::from_secs(6);
const TAKEN_OVER: Duration = Duration::from_secs(45);

fn operators(scene: &Scene) -> Api<Pod> {
    Api::namespaced(scene.client.clone(), release::NAMESPACE)
}

/// The name of the pod that holds the lease; none while nobody does.
async fn holder(scene: &Scene) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(scene.client.clone(), release::NAMESPACE);
    let spec = leases.get(release::SERVICE).await?.spec.unwrap_or_default();
    Ok(spec.holder_identity.filter(|holder| !holder.is_empty()))
}

/// The pod that leads while both are there.
async fn leader(scene: &Scene) -> Result<Pod> {
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
        let found = operators(scene).list(&ours).await?.items;
        let holder = holder(scene).await?;
        let led = found
            .iter()
            .find(|pod| Some(pod.name_any()) == holder)
            .cloned();
        Ok(led.filter(|_| found.iter().filter(|pod| is_ready(pod)).count() == 2))
    };
    poll("two operators, of which one leads", TAKEN_OVER * 2, both).await
}

/// Waits until another pod than this one holds the lease, and says how long that took.
async fn succeeded_by_another(scene: &Scene, before: &Pod, limit: Duration) -> Result<Duration> {
    let begin = Instant::now();
    let name = before.name_any();
    let another = async || Ok(holder(scene).await?.filter(|holder| *holder != name));
    poll("another holder of the lease", limit, another).await?;
    Ok(begin.elapsed())
}

/// Asks for a profile of both pods, does something to the leader once samplers run, and holds that each pod had one sampler and is in the profile.
async fn profiled_while(
    scene: &Scene,
    what: &str,
    act: impl AsyncFnOnce(&Pod) -> Result<()>,
) -> Result<()> {
    let leader = leader(scene).await?;
    // What it takes to reach its processes is there before the moment comes.
    scene.on_node("true", &leader).await?;
    let target = json!({"selector": {"matchLabels": {"app": "web"}}, "containerName": "fpm"});
    let spec = json!({"target": target, "durationSeconds": 3, "uploadMode": "Relay"});
    let request = scene.apply(spec).await?;
    let samples = |now: &ProfileRequest| {
        let targets = status(now).targets;
        targets
            .iter()
            .any(|target| target.state == TargetState::Sampling)
    };
    let request = scene.until(&request, "samples", samples).await?;
    act(&leader).await?;
    let request = scene.ended(&request).await?;
    let status = status(&request);
    ensure!(status.succeeded == 2, "{what}: {status:?}");
    let name = format!("phpprof-{}-", &request.uid().unwrap_or_default()[..8]);
    for target in &status.targets {
        let pod: Pod = scene.api().get(&target.pod_name).await?;
        let containers = pod.spec.and_then(|spec| spec.ephemeral_containers);
        let containers = containers.unwrap_or_default();
        let ours = containers
            .iter()
            .filter(|container| container.name.starts_with(&name));
        ensure!(ours.count() == 1, "{what}: pod {}", target.pod_name);
    }
    Ok(())
}

#[test]
fn of_two_replicas_the_other_goes_on_when_the_leader_ends_is_killed_or_hangs() -> Result<()> {
    alone(async |scene| {
        release::install(&["replicas=2"]).await?;
        scene
            .start(&[pods::php("web-a"), pods::php("web-b")])
            .await?;
        profiled_while(scene, "asked to end", async |leader| {
            let pods = operators(scene);
            pods.delete(&leader.name_any(), &DeleteParams::default())
                .await?;
            let took = succeeded_by_another(scene, leader, HANDED_OVER).await?;
            say(&format!("handed over within {:.1} s", took.as_secs_f64()));
            Ok(())
        })
        .await?;
        let kills = match is_long_form("twenty kills of the leader") {
            true => 20,
            false => 0,
        };
        for _ in 0..kills {
            // Kubernetes waits longer before each restart; new pods start anew.
            release::renew().await?;
            profiled_while(scene, "killed", async |leader| {
                scene.on_node("kill -KILL $pids", leader).await?;
                Ok(())
            })
            .await?;
        }
        profiled_while(scene, "hangs", async |leader| {
            scene.on_node("kill -STOP $pids", leader).await?;
            let took = succeeded_by_another(scene, leader, TAKEN_OVER).await?;
            say(&format!("taken over within {:.1} s", took.as_secs_f64()));
            // It comes back in the middle of the request that it had begun.
            scene.on_node("kill -CONT $pids", leader).await?;
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
        // Of each request two pods' profiles, the merged one and the manifest.
        let keys = scene.keys().await?;
        ensure!(keys.len() == (2 + kills) * 4, "{keys:?}");
        Ok(())
    })
}
