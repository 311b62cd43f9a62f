//! The chart's own store, a volume, which profiles reach over the relay and people over links.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::release::{self, ON_VOLUME};
use e2e::requests::{holds, only_target, status};
use e2e::results::access_key;
use e2e::store::{Call, sha256};
use e2e::{Scene, alone, alone_on, calm_on, line, pods, poll, promised};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use phpprof_crds::{ProfileRequest, TargetState, UploadRoute, condition};
use phpprof_profile::{Limits, decode, total};
use serde_json::{Value, json};

fn spec(duration_seconds: u32) -> Value {
    json!({"target": {"podName": "web"}, "durationSeconds": duration_seconds})
}

#[test]
fn a_chart_without_a_value_stores_profiles_and_links_open_them() -> Result<()> {
    alone(async |scene| {
        scene.start(&[pods::php("web")]).await?;
        let left = scene.sampled(spec(8)).await?;
        release::uninstall().await?;
        let begin = std::time::Instant::now();
        let requests = scene.api::<ProfileRequest>();
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
        let (first, second) = (scene.apply(spec(3)).await?, scene.apply(spec(1)).await?);
        let (first, second) = (scene.ended(&first).await?, scene.ended(&second).await?);
        for request in [&first, &second] {
            holds(request, condition::COMPLETE)?;
            let target = only_target(request)?;
            ensure!(target.upload_mode == Some(UploadRoute::Relay), "{target:?}");
        }
        check_results(scene, &first).await?;
        check_refusals(scene, &first, &second).await?;
        scene.clear_files().await
    })
}

/// Each link opens what it names.
async fn check_results(scene: &Scene, request: &ProfileRequest) -> Result<()> {
    let (claimed, target) = (
        status(request).profile.context("no merged profile")?,
        only_target(request)?,
    );
    ensure!(
        claimed.url.starts_with("file:///var/lib/phpprof/"),
        "{claimed:?}"
    );
    let links = scene.links(request).await?;
    let names: Vec<&str> = links.keys().map(String::as_str).collect();
    ensure!(
        names == ["flame", "manifest", "pod/web/fpm", "profile"],
        "{names:?}"
    );
    let merged = scene.get(&links["profile"]).await?;
    ensure!(merged.status == 200, "{}", merged.text());
    ensure!(
        merged.body.len() as i64 == claimed.size_bytes,
        "{claimed:?}"
    );
    let merged = decode(&merged.body, &Limits::default())?;
    ensure!(total(&merged, "samples") == claimed.samples, "{claimed:?}");
    let pods = scene.get(&links["pod/web/fpm"]).await?;
    ensure!(sha256(&pods.body) == target.sha256, "another profile");
    let manifest = scene.get(&links["manifest"]).await?;
    let manifest: Value = serde_json::from_slice(&manifest.body)?;
    ensure!(manifest["targets"] == json!([target]), "{manifest}");
    let page = scene.get(&links["flame"]).await?;
    ensure!(page.status == 200, "{}", page.text());
    ensure!(
        page.header("content-type").starts_with("text/html") && page.text().contains("Cart::price"),
        "no page"
    );
    let policy = page.header("content-security-policy");
    ensure!(policy.contains("default-src 'none'"), "{policy}");
    let opener = format!("/r/{}/{}", scene.namespace, request.name_any());
    let opener = scene.get(&opener).await?;
    ensure!(
        opener.status == 200 && opener.text().contains("<script>"),
        "{}",
        opener.text()
    );
    Ok(())
}

/// What is not for this request and this moment opens nothing, and says how to get what does.
async fn check_refusals(
    scene: &Scene,
    request: &ProfileRequest,
    other: &ProfileRequest,
) -> Result<()> {
    const FILE: &str = "merged.pb.gz";
    let (now, live) = (Timestamp::now().as_second(), scene.links(request).await?);
    let live = &live["profile"];
    // The test signs as the operator does: a link of its own opens, so that an old one is refused for its age.
    let own = scene.signed_link(request, FILE, now + 60).await?;
    let answer = scene.get(&own).await?;
    ensure!(answer.status == 200, "{own}: {}", answer.text());
    let of_other = live.replace(&request.name_any(), &other.name_any());
    let forged = match live.strip_prefix("/l/") {
        Some(rest) => format!("/l/9{rest}"),
        None => String::new(),
    };
    for (what, link) in [
        (
            "an expired link",
            scene.signed_link(request, FILE, now - 1).await?,
        ),
        ("a link with another end", forged),
        ("a link of another request", of_other),
        (
            "a link of another file",
            live.replace(FILE, "manifest.json"),
        ),
    ] {
        let answer = scene.get(&link).await?;
        let said = answer.text();
        ensure!(answer.status == 403, "{what}: {} {said}", answer.status);
        ensure!(said.contains("get a new one"), "{what}: {said}");
    }
    for wrong in [access_key(other)?, String::new(), "x".repeat(43)] {
        let answer = scene.open(request, &wrong).await?;
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

#[test]
fn a_relay_grant_brings_its_own_bytes_to_its_own_key_in_its_own_time_and_nothing_else() -> Result<()>
{
    calm_on(ON_VOLUME, async |scene| {
        scene
            .start(&[pods::php("web"), pods::without_php("idle")])
            .await?;
        let idle = json!({"target": {"podName": "idle"}, "durationSeconds": 1});
        let unused = scene.ended(&scene.apply(idle).await?).await?;
        let request = scene.completed(spec(1)).await?;
        let target = only_target(&request)?;
        let grant = scene.sampler(&target).await?.grant(UploadRoute::Relay)?;
        let stored = scene.links(&request).await?;
        let stored = scene.get(&stored["profile"]).await?.body;
        let own = scene.links(&request).await?;
        let own = scene.get(&own["pod/web/fpm"]).await?.body;
        let other_uid = only_target(&unused)?.pod_uid;
        let calls = [
            ("the same bytes again", grant.clone().digested(&own), 200),
            ("other bytes", grant.clone().digested(&stored[1..]), 409),
            (
                "another key",
                bent(&grant, "web.fpm", "other.fpm")?.digested(&own),
                403,
            ),
            (
                "another pod's uid",
                bent(&grant, &target.pod_uid, &other_uid)?.digested(&own),
                403,
            ),
            (
                "a longer life",
                bent(&grant, "expires=", "expires=9")?.digested(&own),
                403,
            ),
            ("bytes without their sum", grant.clone().body(&own, 1), 400),
        ];
        expect(scene, &calls).await?;
        let files = scene.files().await?;
        ensure!(
            files.len() == 4 && files.contains(&target.object_key),
            "{files:?}"
        );
        // A grant that was never used, after its end.
        let sampler = scene.sampler(&only_target(&unused)?).await?;
        let until: i64 = sampler.flag("--upload-until").context("no end")?.parse()?;
        let left = until + 1 - Timestamp::now().as_second();
        tokio::time::sleep(Duration::from_secs(u64::try_from(left).unwrap_or(0))).await;
        let late = sampler.grant(UploadRoute::Relay)?.digested(&own);
        expect(scene, &[("bytes after the end", late, 403)]).await?;
        ensure!(scene.files().await? == files, "more files than before");
        scene.clear_files().await
    })
}

/// Makes calls from inside the profiled pod.
async fn expect(scene: &Scene, calls: &[(&str, Call, u16)]) -> Result<()> {
    let (made, expected): (Vec<Call>, Vec<(&str, u16)>) = calls
        .iter()
        .map(|(what, call, status)| (call.clone(), (*what, *status)))
        .unzip();
    for ((what, status), answer) in expected.iter().zip(scene.call("web", &made).await?) {
        ensure!(
            answer.status == *status,
            "{what}: HTTP {} instead of {status}: {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
    }
    Ok(())
}

/// The request has completed with the one profile of its pod, which is on the volume as the receipt says.
async fn check_stored_once(scene: &Scene, request: &ProfileRequest) -> Result<()> {
    holds(request, condition::COMPLETE)?;
    let target = only_target(request)?;
    ensure!(target.state == TargetState::Uploaded, "{target:?}");
    let own = scene.links(request).await?;
    let own = scene.get(&own["pod/web/fpm"]).await?.body;
    ensure!(sha256(&own) == target.sha256, "another profile");
    let files = scene.files().await?;
    ensure!(
        files.len() == 3 && files.contains(&target.object_key),
        "{files:?}"
    );
    Ok(())
}

#[test]
fn a_profile_arrives_once_a_volume_that_was_read_only_can_be_written_again() -> Result<()> {
    alone_on(ON_VOLUME, async |scene| {
        scene.start(&[pods::php("web")]).await?;
        // What it takes to reach the volume is there before the sampler is.
        scene.files().await?;
        let request = scene.sampled(spec(3)).await?;
        scene.make_read_only(true).await?;
        let retried = scene.has_retried(&only_target(&request)?).await;
        let files = scene.files().await;
        scene.make_read_only(false).await?;
        retried?;
        // The record of the request was, before.
        let written = files?.iter().all(|file| file.ends_with("/accepted.json"));
        ensure!(written, "something was written");
        let request = scene.ended(&request).await?;
        check_stored_once(scene, &request).await?;
        scene.clear_files().await
    })
}

#[test]
fn an_operator_that_is_killed_before_it_answers_a_put_has_one_object_and_one_complete() -> Result<()>
{
    alone_on(ON_VOLUME, async |scene| {
        release::renew().await?;
        scene.start(&[pods::php("web")]).await?;
        let operator = scene.operator().await?;
        let address = operator.status.clone().and_then(|status| status.pod_ip);
        line::hold_first_answer(&address.context("no address")?).await?;
        let request = scene.apply(spec(2)).await?;
        let limit = Duration::from_secs(30);
        poll(
            "the profile is stored, and not answered",
            limit,
            async || {
                let stored = scene
                    .files()
                    .await?
                    .iter()
                    .any(|file| file.ends_with(".pb.gz"));
                Ok((stored && line::holds().await?).then_some(()))
            },
        )
        .await?;
        let held = scene.until(&request, "is there", |_| true).await?;
        let target = only_target(&held)?;
        ensure!(target.state == TargetState::Sampling, "{target:?}");
        release::kill(scene, &operator).await?;
        let request = scene.ended(&request).await?;
        scene.has_retried(&target).await?;
        line::restore().await?;
        check_stored_once(scene, &request).await?;
        scene.clear_files().await
    })
}
