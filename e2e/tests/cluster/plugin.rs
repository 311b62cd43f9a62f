//! `kubectl phpprof` as its users run it: every command, as an administrator, as a developer with
//! the documented roles, and as users without a right.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::status;
use e2e::users::{Right, User};
use e2e::{ENABLED, Fixture, pods, promised, shared};
use phpprof_profile::{DecodeLimits, decode, total};
use serde_json::{Value, json};

#[test]
fn every_verb_works_for_an_administrator() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.deploy("web", 2, pods::php("web")).await?;
        let administrator = fixture.administrator()?;
        ensure!(doctor(&administrator).await?["fit"] == true, "not fit");
        every_verb(fixture, &administrator).await
    })
}

#[test]
fn every_verb_works_with_the_documented_roles() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.deploy("web", 1, pods::php("web")).await?;
        let developer = fixture.developer().await?;
        // The developer may not read the namespace's labels or the operator. `doctor` reports that
        // and continues.
        doctor(&developer).await?;
        every_verb(fixture, &developer).await
    })
}

/// Both run the same application. Whether chance or a busy node makes one slower is not asked.
#[test]
fn a_canary_is_compared_with_the_stable_release() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.deploy("web", 1, pods::busy_php("web")).await?;
        fixture
            .deploy("web-canary", 1, pods::busy_php("web-canary"))
            .await?;
        let developer = fixture.developer().await?;
        let line = "verdict deploy/web --canary deploy/web-canary -c fpm -d 6s -o json";
        let said = developer.run(line).await?;
        let verdict: Value = serde_json::from_str(&said.out).with_context(|| said.err.clone())?;
        let code = match verdict["verdict"].as_str() {
            Some("Worse") => 9,
            Some("Inconclusive") => 10,
            _ => 0,
        };
        ensure!(said.code == code, "{said:?}");
        ensure!(
            verdict["basis"] == "cells" && verdict["unlike"] == json!([]),
            "{verdict}"
        );
        for (side, name) in [("before", "web-"), ("after", "web-canary-")] {
            let of = &verdict[side];
            let is_named = of["profile"].as_str().is_some_and(|it| it.contains(name));
            ensure!(is_named && of["requests"].as_u64() > Some(0), "{verdict}");
        }
        Ok(())
    })
}

async fn doctor(user: &User) -> Result<Value> {
    let said = user.run("doctor deploy/web -o json").await?.well()?;
    Ok(serde_json::from_str(&said)?)
}

async fn every_verb(fixture: &Fixture, user: &User) -> Result<()> {
    let ran = user.run("run deploy/web -c fpm -d 3s --name first").await?;
    ensure!(
        ran.err.contains("Complete") && ran.err.contains("kubectl phpprof flame first"),
        "{ran:?}"
    );
    let table = ran.well()?;
    ensure!(
        table.contains("profilerequest.phpprof.dev/first created"),
        "{table}"
    );
    ensure!(
        table.contains("Demo\\"),
        "no function of the application: {table}"
    );
    check_views(user).await?;
    check_looks(user).await?;
    check_cancel(fixture, user).await
}

/// Tests the commands that show a request.
async fn check_views(user: &User) -> Result<()> {
    for (line, expected) in [
        ("list -o name", "profilerequest.phpprof.dev/first\n"),
        ("list", "first"),
        ("list -o wide", "merged.pb.gz"),
        ("get first -o yaml", "kind: ProfileRequest"),
        ("describe pprof/first", "Complete"),
        ("logs first", "web-"),
        ("explain UserUnknown", "runAsUser"),
        ("version --client", "client"),
        ("completion kubectl", "__complete"),
    ] {
        let said = user.run(line).await?.well()?;
        ensure!(said.contains(expected), "{line}: {said}");
    }
    let got = user.run("get first -o json").await?.well()?;
    let got: Value = serde_json::from_str(&got)?;
    ensure!(got["metadata"]["name"] == "first", "{got}");
    let refused = user.run("get second").await?;
    ensure!(
        refused.code == 3 && refused.err.contains("hint: "),
        "{refused:?}"
    );
    Ok(())
}

/// Tests the commands that read its profile.
async fn check_looks(user: &User) -> Result<()> {
    let said = user.run("top first -o json -t samples").await?.well()?;
    let top: Value = serde_json::from_str(&said)?;
    ensure!(
        top["rows"].as_array().is_some_and(|rows| !rows.is_empty()),
        "{top}"
    );
    let by_pod = user.run("top first --by pod").await?.well()?;
    ensure!(by_pod.contains("web-"), "{by_pod}");
    user.run("diff first first").await?.well()?;
    user.run("download first").await?.well()?;
    let profile = decode(&user.file("first.pb.gz")?, &DecodeLimits::default())?;
    let samples = total(&profile, "samples");
    ensure!(samples > 0, "no samples");
    user.run("download first -t samples -o first.folded")
        .await?
        .well()?;
    let folded = String::from_utf8(user.file("first.folded")?)?;
    let counts = folded
        .lines()
        .filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok());
    ensure!(
        counts.sum::<i64>() == samples,
        "the formats disagree on {samples} samples"
    );
    for name in [
        "first.speedscope.json",
        "callgrind.out.first",
        "first.json.gz",
    ] {
        user.run(&format!("download first -o {name}"))
            .await?
            .well()?;
        ensure!(!user.file(name)?.is_empty(), "{name} is empty");
    }
    for (name, expected) in [("first.html", "<!DOCTYPE html>"), ("first.svg", "<svg")] {
        user.run(&format!("flame first -o {name}")).await?.well()?;
        let page = String::from_utf8(user.file(name)?)?;
        ensure!(
            page.contains(expected) && page.contains("similar_text"),
            "{name}"
        );
    }
    Ok(())
}

/// Checks that a stopped run keeps its profile.
async fn check_cancel(fixture: &Fixture, user: &User) -> Result<()> {
    user.run("run deploy/web -c fpm -d 50s --name long --wait=false")
        .await?
        .well()?;
    let request = fixture.api().get("long").await?;
    fixture
        .until(&request, "is sampling", |now| {
            status(now)
                .targets
                .iter()
                .any(|target| target.state == phpprof_crds::TargetState::Sampling)
        })
        .await?;
    let began = std::time::Instant::now();
    user.run("cancel long").await?.well()?;
    let ended = fixture.ended(&request).await?;
    promised(
        "end after kubectl phpprof cancel",
        Duration::from_secs(8),
        began.elapsed(),
    )?;
    ensure!(
        status(&ended).profile.is_some(),
        "nothing is kept of {:?}",
        status(&ended)
    );
    let again = user.run("cancel long").await?.well()?;
    ensure!(again.contains("has already ended"), "{again}");
    Ok(())
}

const CREATE: Right = right("create", "profilerequests");
const PROFILE: Right = right("profile", "profilerequests");
const GET: Right = right("get", "profilerequests");
const LIST: Right = right("list", "profilerequests");
const PATCH: Right = right("patch", "profilerequests");
const READ: Right = right("get", "services/proxy");
const ASK: Right = right("create", "services/proxy");
const LOG: Right = right("get", "pods/log");

const fn right(verb: &'static str, resource: &'static str) -> Right {
    Right { verb, resource }
}

/// A right, and the commands that name it if it is missing.
const LACKING: [(&str, Right, &[&str]); 8] = [
    ("no-create", CREATE, &["run pod/web -d 1s"]),
    ("no-profile", PROFILE, &["run pod/web -d 1s"]),
    (
        "no-get",
        GET,
        &[
            "get first",
            "describe first",
            "cancel first",
            "logs first",
            "top first",
            "flame first -o x.html",
            "diff first first",
            "download first",
        ],
    ),
    ("no-list", LIST, &["list"]),
    ("no-patch", PATCH, &["cancel long"]),
    ("no-read", READ, &["top first", "download first"]),
    ("no-ask", ASK, &["top first"]),
    ("no-log", LOG, &["logs first"]),
];

#[test]
fn whoever_lacks_a_right_is_told_which() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let administrator = fixture.administrator()?;
        administrator
            .run("run pod/web -c fpm -d 1s --name first")
            .await?
            .well()?;
        administrator
            .run("run pod/web -c fpm -d 60s --name long --wait=false")
            .await?
            .well()?;
        let all = LACKING.map(|(_, right, _)| right);
        for (name, missing, lines) in LACKING {
            let others: Vec<Right> = all.into_iter().filter(|right| *right != missing).collect();
            let user = fixture.with_rights(name, &others).await?;
            for line in lines {
                let said = user.run(line).await?;
                ensure!(
                    said.code == 4
                        && said.err.contains(&missing.words())
                        && said.err.contains("hint: ask for the right"),
                    "{line} without {}: {said:?}",
                    missing.words()
                );
            }
        }
        administrator.run("cancel long").await?.well()?;
        Ok(())
    })
}

#[test]
fn doctor_says_what_stands_in_the_way() -> Result<()> {
    shared(e2e::NOT_ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let said = fixture
            .administrator()?
            .run("doctor pod/web -o json")
            .await?;
        ensure!(said.code == 8, "{said:?}");
        let checks: Value = serde_json::from_str(&said.out)?;
        let failed: Vec<&Value> = checks["checks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|check| check["verdict"] == json!("FAILED"))
            .collect();
        ensure!(
            failed.len() == 1
                && failed[0]["remedy"]
                    .as_str()
                    .is_some_and(|remedy| remedy.contains(phpprof_crds::NAMESPACE_LABEL)),
            "{checks}"
        );
        let nobody = fixture
            .with_rights("nobody", &[])
            .await?
            .run("doctor pod/web")
            .await?;
        ensure!(
            nobody.code == 8 && nobody.out.contains("create profilerequests"),
            "{nobody:?}"
        );
        Ok(())
    })
}
