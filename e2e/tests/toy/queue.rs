//! Two hundred requests of three namespaces wait for two places; a watch sees all changes in order.
//!
//! None is sampled, which would take minutes on two cores: each gets its place, and then Pod
//! Security refuses its sampler.
//!
//! Invariant: a watch misses no change, so what is checked here was true at any moment.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{failed_with, status};
use e2e::{ENABLED, Fixture, exclusive_on, pods, say};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use phpprof_crds::{ProfileRequest, RequestReason, TargetReason};
use serde_json::json;

use crate::halts::{LIMITS, reason};

/// The number of requests of each namespace, in the order of creation.
const COUNTS: [usize; 3] = [100, 60, 40];
const ALL: usize = 200;
const LONGEST: Duration = Duration::from_secs(90);
/// Requests of others that may begin while one waits to be the next of its namespace. It is two or
/// three where the namespaces take turns. It was a hundred where the oldest request was always
/// next.
const OTHERS: usize = 6;

async fn check(fixtures: [&Fixture; 3]) -> Result<()> {
    for fixture in fixtures {
        refusing_pod(fixture).await?;
    }
    let namespaces = fixtures.map(|fixture| fixture.namespace.clone());
    let asked = async {
        for (fixture, count) in fixtures.into_iter().zip(COUNTS) {
            for _ in 0..count {
                let spec = json!({"target": {"podName": "web"}, "durationSeconds": 1});
                fixture.apply(spec).await?;
            }
        }
        Ok(())
    };
    let requests: Api<ProfileRequest> = Api::all(fixtures[0].client.clone());
    let some = ListParams::default().limit(1);
    let now = requests.list_metadata(&some).await?.metadata;
    let now = now.resource_version.context("no version")?;
    let watched = watch(&requests, &now, &namespaces);
    let both = async { tokio::try_join!(watched, asked) };
    let (seen, ()) = tokio::time::timeout(LONGEST, both)
        .await
        .with_context(|| format!("not all were over within {LONGEST:?}"))??;
    check_places(&seen)?;
    check_turns(&seen)?;
    check_words(&seen)
}

/// A pod whose sampler would be root with SYS_PTRACE, in a namespace that forbids that by a label
/// which is set after the pod starts.
async fn refusing_pod(fixture: &Fixture) -> Result<()> {
    fixture.start(&[pods::without_php("web")]).await?;
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
    let label =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let (params, label) = (PatchParams::default(), Patch::Merge(label));
    namespaces
        .patch(&fixture.namespace, &params, &label)
        .await?;
    Ok(())
}

/// All versions of the requests, until all are complete.
async fn watch(
    requests: &Api<ProfileRequest>,
    now: &str,
    namespaces: &[String],
) -> Result<Vec<ProfileRequest>> {
    let changes = requests.watch(&WatchParams::default(), now).await?;
    pin_mut!(changes);
    let (mut seen, mut over) = (Vec::new(), BTreeSet::new());
    while over.len() < ALL {
        let change = changes.next().await.context("the watch has ended")??;
        if let WatchEvent::Added(request) | WatchEvent::Modified(request) = change
            && namespaces.contains(&namespace(&request))
        {
            if status(&request).completion_time.is_some() && over.insert(request.uid()) {
                failed_with(&request, TargetReason::UserUnknown)?;
            }
            seen.push(request);
        }
    }
    Ok(seen)
}

fn namespace(request: &ProfileRequest) -> String {
    request.namespace().unwrap_or_default()
}

/// Checks that never more requests run than allowed.
fn check_places(seen: &[ProfileRequest]) -> Result<()> {
    let mut running: BTreeMap<Option<String>, String> = BTreeMap::new();
    for request in seen {
        let status = status(request);
        if status.start_time.is_some() && status.completion_time.is_none() {
            running.insert(request.uid(), namespace(request));
        } else {
            running.remove(&request.uid());
        }
        let namespaces: BTreeSet<&String> = running.values().collect();
        ensure!(
            running.len() <= 2 && namespaces.len() == running.len(),
            "{running:?}"
        );
    }
    Ok(())
}

/// Checks that requests of a namespace run in their order, and that no namespace is passed over.
fn check_turns(seen: &[ProfileRequest]) -> Result<()> {
    let (mut asked, mut begun) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    let mut passed: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = BTreeMap::new();
    let mut most = 0;
    for request in seen {
        let here = namespace(request);
        if asked.insert(request.uid()) {
            *waiting.entry(here.clone()).or_default() += 1;
        }
        if status(request).start_time.is_none() || !begun.insert(request.uid()) {
            continue;
        }
        *waiting.entry(here.clone()).or_default() -= 1;
        let created = request.creation_timestamp();
        let before = last.insert(here.clone(), created.clone());
        ensure!(before.is_none_or(|before| before <= created), "{here}");
        passed.insert(here.clone(), 0);
        for (other, _) in waiting
            .iter()
            .filter(|(other, count)| **other != here && **count > 0)
        {
            let times = passed.entry(other.clone()).or_default();
            *times += 1;
            most = most.max(*times);
        }
    }
    ensure!(begun.len() == ALL, "{} have begun", begun.len());
    say(&format!(
        "at most {most} requests of others began while a namespace waited"
    ));
    ensure!(
        most <= OTHERS,
        "{most} began while another namespace waited"
    );
    Ok(())
}

/// Checks that a waiting request's message says so, with its place.
fn check_words(seen: &[ProfileRequest]) -> Result<()> {
    let mut queued = BTreeSet::new();
    for request in seen {
        if reason(request) != RequestReason::Queued.to_string() {
            continue;
        }
        let message = &status(request).conditions[0].message;
        let words = message.strip_prefix("place ").and_then(|rest| {
            rest.strip_suffix(" in the queue: the limits on running requests are reached")
        });
        let (place, of) = words
            .and_then(|words| words.split_once(" of "))
            .with_context(|| message.clone())?;
        let (place, of): (usize, usize) = (place.parse()?, of.parse()?);
        ensure!(1 <= place && place <= of && of < ALL, "{message}");
        queued.insert(request.uid());
    }
    ensure!(queued.len() >= ALL / 2, "{} were told", queued.len());
    Ok(())
}

/// Nothing else runs beside these.
mod alone {
    use super::*;

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn none_of_200_queued_requests_starves() -> Result<()> {
        exclusive_on(LIMITS, async |first| {
            first
                .beside(ENABLED, async |second| {
                    let third = async |third: &Fixture| check([first, second, third]).await;
                    first.beside(ENABLED, third).await
                })
                .await
        })
    }
}
