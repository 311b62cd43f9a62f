//! The chart's own store, a volume: profiles reach it over the relay, and users read them by links.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::release::{self, ON_VOLUME};
use e2e::requests::{holds, only_target, status};
use e2e::results::access_key;
use e2e::store::{Call, sha256};
use e2e::{Fixture, exclusive, exclusive_on, line, operator, pods, poll, promised, shared_on};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use phpprof_crds::{ProfileRequest, TargetState, UploadRoute, condition};
use phpprof_profile::{DecodeLimits, decode, total};
use serde_json::{Value, json};

fn spec(duration_seconds: u32) -> Value {
    json!({"target": {"podName": "web"}, "durationSeconds": duration_seconds})
}

/// Checks that each link opens what it names.
async fn check_results(fixture: &Fixture, request: &ProfileRequest) -> Result<()> {
    let (claimed, target) = (
        status(request).profile.context("no merged profile")?,
        only_target(request)?,
    );
    ensure!(
        claimed.url.starts_with("file:///var/lib/phpprof/"),
        "{claimed:?}"
    );
    let links = fixture.links(request).await?;
    let names: Vec<&str> = links.keys().map(String::as_str).collect();
    ensure!(
        names == ["flame", "manifest", "pod/web/fpm", "profile"],
        "{names:?}"
    );
    let merged = fixture.get(&links["profile"]).await?;
    ensure!(merged.status == 200, "{}", merged.text());
    ensure!(
        merged.body.len() as i64 == claimed.size_bytes,
        "{claimed:?}"
    );
    let merged = decode(&merged.body, &DecodeLimits::default())?;
    ensure!(total(&merged, "samples") == claimed.samples, "{claimed:?}");
    let pods = fixture.get(&links["pod/web/fpm"]).await?;
    ensure!(sha256(&pods.body) == target.sha256, "another profile");
    let manifest = fixture.get(&links["manifest"]).await?;
    let manifest: Value = serde_json::from_slice(&manifest.body)?;
    ensure!(manifest["targets"] == json!([target]), "{manifest}");
    let page = fixture.get(&links["flame"]).await?;
    ensure!(page.status == 200, "{}", page.text());
    ensure!(
        page.header("content-type").starts_with("text/html") && page.text().contains("Cart::price"),
        "no page"
    );
    let policy = page.header("content-security-policy");
    ensure!(policy.contains("default-src 'none'"), "{policy}");
    let opener = format!("/r/{}/{}", fixture.namespace, request.name_any());
    let opener = fixture.get(&opener).await?;
    ensure!(
        opener.status == 200 && opener.text().contains("<script>"),
        "{}",
        opener.text()
    );
    Ok(())
}

/// Checks that links for another request or time open nothing, and that the answer says how to get
/// a valid one.
async fn check_refusals(
    fixture: &Fixture,
    request: &ProfileRequest,
    other: &ProfileRequest,
) -> Result<()> {
    const FILE: &str = "merged.pb.gz";
    let (now, live) = (Timestamp::now().as_second(), fixture.links(request).await?);
    let live = &live["profile"];
    // The test signs as the operator does. Its own link opens, so an old one is refused because of
    // its age.
    let own = fixture.signed_link(request, FILE, now + 60).await?;
    let answer = fixture.get(&own).await?;
    ensure!(answer.status == 200, "{own}: {}", answer.text());
    let of_other = live.replace(&request.name_any(), &other.name_any());
    let forged = match live.strip_prefix("/l/") {
        Some(rest) => format!("/l/9{rest}"),
        None => String::new(),
    };
    for (what, link) in [
        (
            "an expired link",
            fixture.signed_link(request, FILE, now - 1).await?,
        ),
        ("a link with another end", forged),
        ("a link of another request", of_other),
        (
            "a link of another file",
            live.replace(FILE, "manifest.json"),
        ),
    ] {
        let answer = fixture.get(&link).await?;
        let said = answer.text();
        ensure!(answer.status == 403, "{what}: {} {said}", answer.status);
        ensure!(said.contains("get a new one"), "{what}: {said}");
    }
    for wrong in [access_key(other)?, String::new(), "x".repeat(43)] {
        let answer = fixture.open(request, &wrong).await?;
        let said = answer.text();
        ensure!(answer.status == 403, "{wrong:?}: {} {said}", answer.status);
        ensure!(said.contains(".status.profile.accessKey"), "{said}");
    }
    Ok(())
}

fn bent(grant: &Call, from: &str, to: &str) -> Result<Call> {
    ensure!(grant.url.contains(from), "no {from} in {}", grant.url);
    let mut bent = grant.clone();
    bent.url = bent.url.replace(from, to);
    Ok(bent)
}

/// Makes calls from inside the profiled pod, and checks their status.
async fn expect(fixture: &Fixture, calls: &[(&str, Call, u16)]) -> Result<()> {
    let (made, expected): (Vec<Call>, Vec<(&str, u16)>) = calls
        .iter()
        .map(|(what, call, status)| (call.clone(), (*what, *status)))
        .unzip();
    for ((what, status), answer) in expected.iter().zip(fixture.call("web", &made).await?) {
        ensure!(
            answer.status == *status,
            "{what}: HTTP {} instead of {status}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
    }
    Ok(())
}

/// Checks that the request is complete with its pod's profile, and that the volume has it as the
/// receipt says.
async fn check_stored_once(fixture: &Fixture, request: &ProfileRequest) -> Result<()> {
    holds(request, condition::COMPLETE)?;
    let target = only_target(request)?;
    ensure!(target.state == TargetState::Uploaded, "{target:?}");
    let own = fixture.links(request).await?;
    let own = fixture.get(&own["pod/web/fpm"]).await?.body;
    ensure!(sha256(&own) == target.sha256, "another profile");
    let files = fixture.files().await?;
    ensure!(
        files.len() == 3 && files.contains(&target.object_key),
        "{files:?}"
    );
    Ok(())
}

/// On a release that stores on a volume.
mod on_volume {
    use super::*;

    #[test]
    fn a_relay_grant_writes_its_own_key_only() -> Result<()> {
        shared_on(ON_VOLUME, async |fixture| {
            fixture
                .start(&[pods::php("web"), pods::without_php("idle")])
                .await?;
            let idle = json!({"target": {"podName": "idle"}, "durationSeconds": 1});
            let unused = fixture.ended(&fixture.apply(idle).await?).await?;
            // The relay takes bytes as long as the request runs.
            let request = fixture.sampled(spec(60)).await?;
            let target = only_target(&request)?;
            let grant = fixture.sampler(&target).await?.grant(UploadRoute::Relay)?;
            let other_uid = only_target(&unused)?.pod_uid;
            let own = || grant.clone().digested(b"own");
            let calls = [
                ("its bytes", own(), 200),
                ("the same bytes again", own(), 200),
                ("other bytes", grant.clone().digested(b"other"), 409),
                (
                    "another key",
                    bent(&grant, "web.fpm", "other.fpm")?.digested(b"own"),
                    403,
                ),
                (
                    "another pod's uid",
                    bent(&grant, &target.pod_uid, &other_uid)?.digested(b"own"),
                    403,
                ),
                (
                    "a longer life",
                    bent(&grant, "expires=", "expires=9")?.digested(b"own"),
                    403,
                ),
                (
                    "bytes without their sum",
                    grant.clone().body(b"own", 1),
                    400,
                ),
            ];
            expect(fixture, &calls).await?;
            let files = fixture.files().await?;
            ensure!(files.contains(&target.object_key), "{files:?}");
            let other = |file: &String| file.contains("other.fpm");
            ensure!(!files.iter().any(other), "{files:?}");
            fixture.change(&request, json!({"cancel": true})).await?;
            fixture.ended(&request).await?;
            expect(fixture, &[("bytes for what is over", own(), 403)]).await?;
            let files = fixture.files().await?;
            // An unused grant, after its expiry.
            let sampler = fixture.sampler(&only_target(&unused)?).await?;
            let until: i64 = sampler.flag("--upload-until").context("no end")?.parse()?;
            let left = until + 1 - Timestamp::now().as_second();
            tokio::time::sleep(Duration::from_secs(u64::try_from(left).unwrap_or(0))).await;
            let late = sampler.grant(UploadRoute::Relay)?.digested(b"own");
            expect(fixture, &[("bytes after the end", late, 403)]).await?;
            let now = fixture.files().await?;
            let is_new = |file: &&String| !files.contains(file);
            ensure!(
                !now.iter().any(|file| is_new(&file)),
                "{now:?} after {files:?}"
            );
            fixture.clear_files().await
        })
    }
}

/// These have the second cluster, one by one.
mod alone {
    use super::*;

    #[test]
    fn a_chart_without_values_stores_and_links() -> Result<()> {
        exclusive(async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            let left = fixture.sampled(spec(8)).await?;
            release::uninstall().await?;
            let begin = std::time::Instant::now();
            let requests = fixture.api::<ProfileRequest>();
            let name = left.name_any();
            requests.delete(&name, &DeleteParams::default()).await?;
            let there = requests.get_opt(&name).await?;
            ensure!(there.is_none(), "the removed operator holds a request");
            promised(
                "deleting a request without an operator",
                Duration::from_secs(1),
                begin.elapsed(),
            )?;
            release::install_without_values().await?;
            let (first, second) = (fixture.apply(spec(3)).await?, fixture.apply(spec(1)).await?);
            let (first, second) = (fixture.ended(&first).await?, fixture.ended(&second).await?);
            for request in [&first, &second] {
                holds(request, condition::COMPLETE)?;
                let target = only_target(request)?;
                ensure!(target.upload_mode == Some(UploadRoute::Relay), "{target:?}");
            }
            check_results(fixture, &first).await?;
            check_refusals(fixture, &first, &second).await?;
            fixture.clear_files().await
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn a_profile_arrives_when_the_volume_is_writable() -> Result<()> {
        exclusive_on(ON_VOLUME, async |fixture| {
            fixture.start(&[pods::php("web")]).await?;
            // This starts the helper pod that reads the volume, because it would take too long
            // after the sampler's start.
            fixture.files().await?;
            let request = fixture.sampled(spec(3)).await?;
            fixture.make_read_only(true).await?;
            let retried = fixture.wait_for_retry(&only_target(&request)?).await;
            let files = fixture.files().await;
            fixture.make_read_only(false).await?;
            retried?;
            // The record of the request was written before.
            let written = files?.iter().all(|file| file.ends_with("/accepted.json"));
            ensure!(written, "something was written");
            let request = fixture.ended(&request).await?;
            check_stored_once(fixture, &request).await?;
            fixture.clear_files().await
        })
    }

    #[test]
    #[ignore = "FULL=1 runs it"]
    fn an_operator_killed_before_answering_stores_once() -> Result<()> {
        exclusive_on(ON_VOLUME, async |fixture| {
            release::renew().await?;
            fixture.start(&[pods::php("web")]).await?;
            let operator = fixture.operator().await?;
            line::hold_first_answer(&pods::host(&operator)?).await?;
            let request = fixture.apply(spec(2)).await?;
            let limit = Duration::from_secs(30);
            poll(
                "the profile is stored, and not answered",
                limit,
                async || {
                    let stored = fixture
                        .files()
                        .await?
                        .iter()
                        .any(|file| file.ends_with(".pb.gz"));
                    Ok((stored && line::holds().await?).then_some(()))
                },
            )
            .await?;
            let held = fixture.until(&request, "is there", |_| true).await?;
            let target = only_target(&held)?;
            ensure!(target.state == TargetState::Sampling, "{target:?}");
            operator::kill(fixture, &operator).await?;
            let request = fixture.ended(&request).await?;
            fixture.wait_for_retry(&target).await?;
            line::restore().await?;
            check_stored_once(fixture, &request).await?;
            fixture.clear_files().await
        })
    }
}
