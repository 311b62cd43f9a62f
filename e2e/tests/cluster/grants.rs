//! The holder of a grant can write one new object until it expires, and nothing else.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{Sampler, status};
use e2e::store::{Call, sha256};
use e2e::{ENABLED, Fixture, pods, shared};
use jiff::Timestamp;
use phpprof_crds::{RequestReason, TargetStatus, UploadRoute, condition};
use serde_json::json;

/// A modified grant.
fn with_method(mut grant: Call, method: &str) -> Call {
    method.clone_into(&mut grant.method);
    grant
}

fn with_url(mut grant: Call, url: String) -> Call {
    grant.url = url;
    grant
}

/// Each attempt to do more than the grant allows, with its name and the status that refuses it.
fn abuses(grant: &Call) -> Result<Vec<(&'static str, Call, u16)>> {
    let (path, query) = grant
        .url
        .split_once('?')
        .context("the grant has no query")?;
    let (folder, _) = path.rsplit_once('/').context("the grant has no path")?;
    let host: Vec<&str> = path.splitn(5, '/').collect();
    let bucket = host[..4].join("/");
    let mut unconditional = grant.clone();
    unconditional.headers.clear();
    let list = format!("{bucket}?list-type=2&{query}");
    let other = format!("{folder}/other.pb.gz?{query}");
    let longer = grant.url.replace("X-Amz-Expires=", "X-Amz-Expires=9");
    Ok(vec![
        ("an overwrite", grant.clone().body(b"other", 1), 412),
        (
            "an overwrite without the precondition",
            unconditional.body(b"other", 1),
            403,
        ),
        ("a GET", with_method(grant.clone(), "GET"), 403),
        ("a HEAD", with_method(grant.clone(), "HEAD"), 403),
        (
            "a LIST",
            with_method(with_url(grant.clone(), list), "GET"),
            403,
        ),
        ("a DELETE", with_method(grant.clone(), "DELETE"), 403),
        (
            "another key",
            with_url(grant.clone(), other).body(b"other", 1),
            403,
        ),
        (
            "a longer life",
            with_url(grant.clone(), longer).body(b"other", 1),
            403,
        ),
    ])
}

/// Checks that the container has no credentials except the grants: no volume, no token, no other
/// variable.
fn check_sampler(fixture: &Fixture, sampler: &Sampler) -> Result<()> {
    let container = serde_json::to_value(&sampler.container)?;
    for field in ["volumeMounts", "volumeDevices", "envFrom", "command"] {
        ensure!(
            container.get(field).is_none(),
            "{field}: {}",
            container[field]
        );
    }
    let variables = sampler.container.env.as_deref().unwrap_or_default();
    let names: Vec<&str> = variables
        .iter()
        .map(|variable| variable.name.as_str())
        .collect();
    ensure!(
        names
            == [
                "PHPPROF_CONTRACT",
                "PHPPROF_GRANTS",
                "PHPPROF_RELAY_ADDRESSES",
                "PHPPROF_CA_BUNDLE"
            ],
        "{names:?}"
    );
    ensure!(
        variables
            .iter()
            .all(|variable| variable.value_from.is_none()),
        "a variable from elsewhere"
    );
    let pod = serde_json::to_string(&sampler.pod)?;
    ensure!(
        !pod.contains(&fixture.store.files.secret_key),
        "the pod has the store's secret key"
    );
    ensure!(
        sampler.variable("PHPPROF_CA_BUNDLE") == Some(&fixture.store.files.authority),
        "the bundle is not the store's authority"
    );
    Ok(())
}

fn target<'a>(targets: &'a [TargetStatus], pod: &str) -> Result<&'a TargetStatus> {
    let found = targets.iter().find(|target| target.pod_name == pod);
    found.with_context(|| format!("pod {pod} is not a target"))
}

#[test]
fn a_grant_writes_one_object_once_until_expiry() -> Result<()> {
    shared(ENABLED, async |fixture| {
        // Two of the three pods leave their grants unused.
        let names = ["web", "idle-a", "idle-b"];
        fixture
            .start(&[
                pods::php("web"),
                pods::without_php("idle-a"),
                pods::without_php("idle-b"),
            ])
            .await?;
        let selector = json!({"matchLabels": {"app": "web"}});
        let request = fixture
            .completed(json!({"target": {"selector": selector, "containerName": "fpm"}, "durationSeconds": 1}))
            .await?;
        let complete = e2e::requests::holds(&request, condition::COMPLETE)?;
        ensure!(
            complete.reason == RequestReason::SomeTargetsFailed.to_string(),
            "{complete:?}"
        );
        let targets = status(&request).targets;
        let mut grants = Vec::new();
        for name in names {
            let sampler = fixture.sampler(target(&targets, name)?).await?;
            check_sampler(fixture, &sampler)?;
            let until: i64 = sampler.flag("--upload-until").context("no end")?.parse()?;
            grants.push((
                sampler.grant(UploadRoute::Direct)?,
                Timestamp::from_second(until)?,
            ));
        }
        let web = target(&targets, "web")?;
        check_used(fixture, &grants[0].0, web).await?;
        check_unused(
            fixture,
            &grants[1].0,
            &target(&targets, "idle-a")?.object_key,
        )
        .await?;
        let (grant, until) = &grants[2];
        check_expired(fixture, grant, *until, target(&targets, "idle-b")?).await
    })
}

/// Checks from inside the profiled pod that a used grant allows nothing more.
async fn check_used(fixture: &Fixture, grant: &Call, web: &TargetStatus) -> Result<()> {
    let abuses = abuses(grant)?;
    let calls: Vec<Call> = abuses.iter().map(|(_, call, _)| call.clone()).collect();
    let answers = fixture.call("web", &calls).await?;
    for ((what, _, expected), answer) in abuses.iter().zip(answers) {
        ensure!(
            answer.status == *expected,
            "{what}: HTTP {} instead of {expected}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
    }
    ensure!(
        sha256(&fixture.read(&web.object_key).await?) == web.sha256,
        "the profile was changed"
    );
    Ok(())
}

/// Checks that the grant works from any pod, but only once. So a refusal is not caused by the pod.
async fn check_unused(fixture: &Fixture, grant: &Call, key: &str) -> Result<()> {
    let calls = [
        grant.clone().body(b"first", 1),
        grant.clone().body(b"second", 1),
    ];
    let answers = fixture.call("idle-a", &calls).await?;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    ensure!(statuses == [200, 412], "{statuses:?}");
    ensure!(
        fixture.read(key).await? == b"first",
        "the first object was replaced"
    );
    Ok(())
}

/// Checks that an unused grant is refused after the sampler's deadline.
async fn check_expired(
    fixture: &Fixture,
    grant: &Call,
    until: Timestamp,
    idle: &TargetStatus,
) -> Result<()> {
    let left = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(left + Duration::from_secs(1)).await;
    let abuses = abuses(grant)?;
    let calls: Vec<Call> = abuses.iter().map(|(_, call, _)| call.clone()).collect();
    for ((what, ..), answer) in abuses.iter().zip(fixture.call("idle-b", &calls).await?) {
        ensure!(
            answer.status == 403,
            "{what} after the end: HTTP {}",
            answer.status
        );
    }
    let keys = fixture.keys().await?;
    ensure!(!keys.contains(&idle.object_key), "{keys:?}");
    Ok(())
}
