//! `kubectl phpprof heap`: a planted leak is found by its path, and grows between two looks; no
//! secret of it leaves the pod, and a user without the right to heaps is refused.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::users::{Right, User};
use e2e::{ENABLED, pods, say, shared};
use serde_json::Value;

const CACHE: &str = "Shop\\Cache::$items";
const ORDER: &str = "Shop\\Order";
/// What keys and values of the leak have.
const SECRETS: [&str; 2] = ["secret-", "4111111111111111"];

async fn looked(user: &User, line: &str) -> Result<Value> {
    let said = user.run(&format!("heap pod/leak {line} -o json")).await?;
    let said = said.well()?;
    ensure!(!has_secret(&said), "{said}");
    Ok(serde_json::from_str(&said)?)
}

fn has_secret(text: &str) -> bool {
    SECRETS.iter().any(|secret| text.contains(secret))
}

/// The first path of a report, which must be one of the cache's.
fn first_path(report: &Value) -> Result<&Value> {
    let path = report["paths"].get(0).context("no path")?;
    let words = path["path"].as_str().context("no words")?;
    ensure!(words.starts_with(CACHE), "{report:#}");
    Ok(path)
}

fn orders(report: &Value) -> Result<&Value> {
    let mut classes = report["classes"].as_array().into_iter().flatten();
    let orders = classes.find(|it| it["class"] == ORDER);
    orders.with_context(|| format!("no orders: {report:#}"))
}

#[test]
fn heap_finds_a_planted_leak_by_its_path() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::leaking("leak")]).await?;
        let user = fixture.developer().await?;
        let first = looked(&user, "--name first").await?;
        ensure!(first["read"]["workers"] == 1, "{first:#}");
        first_path(&first)?;
        let before = orders(&first)?["count"].as_i64().context("a number")?;
        ensure!(before > 0, "{first:#}");
        tokio::time::sleep(Duration::from_secs(3)).await;
        let second = looked(&user, "--baseline first --name second").await?;
        let path = first_path(&second)?;
        let grown = path["bytes"].as_i64() > path["before"]["bytes"].as_i64();
        let after = orders(&second)?["count"].as_i64().context("a number")?;
        say(&format!("{before} orders, then {after}"));
        ensure!(grown && after >= before + 1000, "{second:#}");
        for line in [
            "top second",
            "describe second",
            "logs second",
            "download second -o second.folded",
        ] {
            let said = user.run(line).await?;
            ensure!(!has_secret(&said.out) && !has_secret(&said.err), "{line}");
        }
        let stacks = String::from_utf8(user.file("second.folded")?)?;
        ensure!(stacks.contains(ORDER) && !has_secret(&stacks), "{stacks}");
        let diff = user.run("diff first second").await?.well()?;
        ensure!(diff.contains(ORDER) && diff.contains("growth"), "{diff}");
        Ok(())
    })
}

#[test]
fn who_may_only_profile_sees_no_heaps() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::leaking("leak")]).await?;
        let rights = ["create", "profile", "get"].map(|verb| Right {
            verb,
            resource: "profilerequests",
        });
        let user = fixture.with_rights("profiler", &rights).await?;
        for line in ["heap pod/leak", "dump pod/leak --memory"] {
            let refused = user.run(line).await?;
            let words = "need the right to heap profilerequests.phpprof.dev";
            ensure!(
                refused.code == 4 && refused.err.contains(words),
                "{line}: {}: {}",
                refused.code,
                refused.err
            );
        }
        Ok(())
    })
}
