//! Requests of a schedule's account, which a sampler that stays in the pod serves.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::pods::ephemeral_containers;
use e2e::release::{RESIDENT_LEASE, RESIDENT_USER};
use e2e::requests::{failed_with, holds, only_target, status};
use e2e::users::Right;
use e2e::{ENABLED, Fixture, exclusive, is_long_form, pods, poll, promised, release, say, shared};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use phpprof_crds::{
    NAMESPACE_DISABLED, NAMESPACE_LABEL, ProfileRequest, RequestReason, TargetReason, TargetState,
    condition,
};
use serde_json::{Value, json};

const FIRST: &str = "phpprof-resident-0-";
const SECOND: &str = "phpprof-resident-1-";
/// The longest time until a run begins.
const HEARD: Duration = Duration::from_secs(2);
/// The longest time until a busy cluster notices a change.
const NOTICED: Duration = Duration::from_secs(30);
/// The memory limit of an idle resident sampler.
const IDLE_KIB: u64 = 2048;
const IDLE_CORE_PERCENT: f64 = 0.1;
/// How long the relay keeps a poll open by default.
const HELD: f64 = 25.0;

fn spec(seconds: i32) -> Value {
    json!({"target": {"podName": "web"}, "durationSeconds": seconds})
}

/// Starts a pod that runs PHP, in a namespace where the schedule's account may profile.
async fn start(fixture: &Fixture) -> Result<()> {
    let rights = ["create", "profile"].map(|verb| Right {
        verb,
        resource: "profilerequests",
    });
    fixture.grant_to(RESIDENT_USER, &rights).await?;
    fixture.start(&[pods::php("web")]).await
}

async fn scheduled(fixture: &Fixture, seconds: i32) -> Result<ProfileRequest> {
    fixture.apply_as(RESIDENT_USER, spec(seconds)).await
}

async fn web(fixture: &Fixture) -> Result<Pod> {
    Ok(fixture.api::<Pod>().get("web").await?)
}

/// Kills PHP, and waits until its container runs again.
async fn restart(fixture: &Fixture) -> Result<()> {
    let before = pods::restarts(&web(fixture).await?);
    // The workers end with the master process, maybe before they are killed themselves.
    fixture
        .on_node("kill -KILL $pids || true", &web(fixture).await?)
        .await?;
    poll("PHP runs again", NOTICED, async || {
        let pod = web(fixture).await?;
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let is_ready = |it: &k8s_openapi::api::core::v1::PodCondition| {
            it.type_ == "Ready" && it.status == "True"
        };
        let is_ready = conditions.iter().any(is_ready);
        Ok((is_ready && pods::restarts(&pod) > before).then_some(()))
    })
    .await
}

#[test]
fn scheduled_requests_share_one_container() -> Result<()> {
    shared(ENABLED, async |fixture| {
        start(fixture).await?;
        let count = if is_long_form("60 scheduled requests") {
            60
        } else {
            8
        };
        let begin = Instant::now();
        let requests = try_join_all((0..count).map(|_| scheduled(fixture, 1))).await?;
        let ended = try_join_all(requests.iter().map(|request| fixture.ended(request))).await?;
        say(&format!("{count} requests took {:?}", begin.elapsed()));
        let mut keys = Vec::new();
        for request in &ended {
            holds(request, condition::COMPLETE)?;
            let target = only_target(request)?;
            ensure!(
                target.ephemeral_container_name.starts_with(FIRST),
                "{target:?}"
            );
            ensure!(target.resident && target.samples > Some(0), "{target:?}");
            keys.push(target.object_key);
        }
        keys.sort();
        keys.dedup();
        ensure!(keys.len() == count, "{keys:?}");
        let containers = ephemeral_containers(&web(fixture).await?);
        ensure!(containers == 1, "{containers} ephemeral containers");
        says_who_asked(fixture).await?;
        takes_next_to_nothing(fixture).await?;
        // A request of another user gets its own sampler.
        let other = only_target(&fixture.completed(spec(1)).await?)?;
        ensure!(!other.resident, "{other:?}");
        let refused = json!({"target": {"podName": "web"}, "samplerMode": "Resident"});
        let refused = fixture.ended(&fixture.apply(refused).await?).await?;
        let reason = &holds(&refused, condition::FAILED)?.reason;
        ensure!(
            *reason == RequestReason::ResidentNotAllowed.to_string(),
            "{reason}"
        );
        ends_with_the_namespaces_label(fixture).await
    })
}

async fn says_who_asked(fixture: &Fixture) -> Result<()> {
    let events = fixture.api::<Event>().list(&ListParams::default()).await?;
    let notes = events
        .items
        .iter()
        .filter_map(|event| event.message.clone());
    let notes: Vec<String> = notes.collect();
    let says = |note: &String| note.contains(RESIDENT_USER);
    ensure!(notes.iter().any(says), "{notes:?}");
    Ok(())
}

/// Reads CPU time and memory from the kernel, on the node, for the first process, which stays. The
/// sampler's own tests measure the process that makes each poll, which takes some milliseconds
/// every ten seconds here.
async fn takes_next_to_nothing(fixture: &Fixture) -> Result<()> {
    let pod = web(fixture).await?;
    let id = sampler_id(&pod)?;
    const SECONDS: f64 = 8.0;
    let line = format!(
        "set -- $(grep -ls {id} /proc/[0-9]*/cgroup | cut -d/ -f3 | sort -n); [ $# -ge 1 ] || exit 9; \
         cut -d' ' -f1 /proc/$1/schedstat; sleep {SECONDS}; cut -d' ' -f1 /proc/$1/schedstat; \
         grep -E 'VmRSS|RssAnon' /proc/$1/status"
    );
    let said = fixture.on_node(&line, &pod).await?;
    let numbers: Vec<u64> = said
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [before, after, resident, anonymous] = numbers[..] else {
        anyhow::bail!("the node said {said}");
    };
    // It wakes up for its polls, which the relay keeps open for half of the lease here.
    let as_set = RESIDENT_LEASE.as_secs_f64() / 2.0 / HELD;
    let percent = (after - before) as f64 / (SECONDS * 1e9) * 100.0 * as_set;
    say(&format!(
        "a resident sampler that waits: {resident} KiB, {anonymous} of them its own; {percent:.4} % of a core"
    ));
    ensure!(resident <= IDLE_KIB, "{resident} KiB");
    // The limit of a time is three times the promise.
    ensure!(percent <= 3.0 * IDLE_CORE_PERCENT, "{percent} %");
    Ok(())
}

/// The container ID of the first resident sampler.
fn sampler_id(pod: &Pod) -> Result<String> {
    let statuses = pod.status.clone().unwrap_or_default();
    let statuses = statuses.ephemeral_container_statuses.unwrap_or_default();
    let first = statuses
        .into_iter()
        .find(|status| status.name.starts_with(FIRST));
    let id = first.and_then(|status| status.container_id);
    let id = id.context("the sampler has no id")?;
    Ok(id.rsplit('/').next().unwrap_or_default().to_owned())
}

async fn wait_for_end(fixture: &Fixture, receipt: &str) -> Result<()> {
    poll("the resident sampler ends", NOTICED, async || {
        let statuses = web(fixture).await?.status.unwrap_or_default();
        let statuses = statuses.ephemeral_container_statuses.unwrap_or_default();
        let first = statuses
            .into_iter()
            .find(|status| status.name.starts_with(FIRST));
        let ended = first.and_then(|status| status.state?.terminated);
        let Some(ended) = ended else { return Ok(None) };
        let message = ended.message.unwrap_or_default();
        ensure!(message.contains(receipt), "{message}");
        Ok(Some(()))
    })
    .await
}

async fn ends_with_the_namespaces_label(fixture: &Fixture) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let label = json!({"metadata": {"labels": {NAMESPACE_LABEL: NAMESPACE_DISABLED}}});
    let (params, begin) = (PatchParams::default(), Instant::now());
    namespaces
        .patch(&fixture.namespace, &params, &Patch::Merge(label))
        .await?;
    wait_for_end(fixture, "LeaseEnded").await?;
    promised(
        "the end of a resident sampler where the namespace's label stops profiling",
        Duration::from_secs(5),
        begin.elapsed(),
    )
}

#[test]
fn a_resident_sampler_is_succeeded_after_its_container() -> Result<()> {
    shared(ENABLED, async |fixture| {
        start(fixture).await?;
        let first = fixture.ended(&scheduled(fixture, 1).await?).await?;
        holds(&first, condition::COMPLETE)?;
        restart(fixture).await?;
        let second = fixture.ended(&scheduled(fixture, 1).await?).await?;
        holds(&second, condition::COMPLETE)?;
        let target = only_target(&second)?;
        ensure!(
            target.ephemeral_container_name.starts_with(SECOND),
            "{target:?}"
        );
        restart(fixture).await?;
        let third = fixture.ended(&scheduled(fixture, 1).await?).await?;
        let failed = holds(&third, condition::FAILED)?;
        let expected = RequestReason::ResidentSamplerBackOff.to_string();
        ensure!(failed.reason == expected, "{failed:?}");
        ensure!(status(&third).targets.is_empty(), "{third:?}");
        Ok(())
    })
}

#[test]
fn a_deleted_pod_ends_its_resident_run() -> Result<()> {
    shared(ENABLED, async |fixture| {
        start(fixture).await?;
        let running = scheduled(fixture, 30).await?;
        let sampling = |it: &ProfileRequest| {
            let condition = status(it).conditions.into_iter().next();
            condition.is_some_and(|it| it.reason == RequestReason::Sampling.to_string())
        };
        fixture.until(&running, "samples", sampling).await?;
        tokio::time::sleep(HEARD).await;
        let now = DeleteParams::default().grace_period(0);
        fixture.api::<Pod>().delete("web", &now).await?;
        let ended = fixture.ended(&running).await?;
        let target = only_target(&ended)?;
        ensure!(
            target.reason == Some(TargetReason::PodDeleted),
            "{target:?}"
        );
        // The kubelet sends SIGTERM and kills a moment later: what can be stored until then is
        // kept.
        match target.state {
            TargetState::Uploaded => {
                holds(&ended, condition::COMPLETE)?;
                let is_part = target.message.starts_with("the profile has the first ");
                ensure!(is_part && target.samples > Some(0), "{target:?}");
            }
            _ => drop(failed_with(&ended, TargetReason::PodDeleted)?),
        }
        Ok(())
    })
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_resident_sampler_ends_with_its_lease() -> Result<()> {
        exclusive(async |fixture| {
            start(fixture).await?;
            let first = fixture.ended(&scheduled(fixture, 1).await?).await?;
            holds(&first, condition::COMPLETE)?;
            let begin = Instant::now();
            release::scale(0).await?;
            wait_for_end(fixture, "LeaseEnded").await?;
            promised(
                "the end of a resident sampler without an operator",
                RESIDENT_LEASE + Duration::from_secs(5),
                begin.elapsed(),
            )?;
            release::scale(1).await?;
            let again = fixture.ended(&scheduled(fixture, 1).await?).await?;
            holds(&again, condition::COMPLETE)?;
            let container = only_target(&again)?.ephemeral_container_name;
            ensure!(container.starts_with(SECOND), "{container}");
            Ok(())
        })
    }
}
