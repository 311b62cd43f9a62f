//! `kubectl phpprof top --live` shows on a terminal what runs now in a pod. Its sampler ends with
//! it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::requests::{only_target, status};
use e2e::{ENABLED, pods, promised, shared};
use kube::ResourceExt as _;
use phpprof_crds::{ProfileMode, ProfileRequest};
use phpprof_profile::{DecodeLimits, decode, total};

/// From the creation of a request to the first table.
const BEGINS: Duration = Duration::from_secs(20);
/// From the end of a table to the end of its sampler.
const ENDS: Duration = Duration::from_secs(20);

#[test]
fn top_live_shows_saves_and_stops_its_sampler() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let user = fixture.administrator()?;
        let mut table = user
            .on_a_terminal("top pod/web -c fpm --live --duration=50s")
            .await?;
        table.shows("similar_text", BEGINS).await?;
        table.types("4").await?;
        table.shows("DOES", Duration::from_secs(5)).await?;
        table.types("s").await?;
        let said = table.shows(".pb.gz", Duration::from_secs(5)).await?;
        let requests = fixture.api::<ProfileRequest>();
        let requests = requests.list(&Default::default()).await?;
        let request = requests.items.into_iter().next();
        let request = request.context("no request was made")?;
        ensure!(request.spec.mode == ProfileMode::Live, "{:?}", request.spec);
        let name = request.name_any();
        let began = std::time::Instant::now();
        table.types("q").await?;
        let code = table.ends(Duration::from_secs(10)).await?;
        ensure!(code == 0, "exit code {code}");
        let request = fixture.ended(&request).await?;
        promised("the end of a live table", ENDS, began.elapsed())?;
        ensure!(status(&request).profile.is_some(), "{name} has no profile");
        let sampler = fixture.sampler(&only_target(&request)?).await?;
        ensure!(sampler.ended_at().is_some(), "its sampler goes on");
        let file = said
            .split_whitespace()
            .find(|word| word.starts_with("phpprof-top-"))
            .context("no file is named")?;
        let profile = decode(&user.file(file)?, &DecodeLimits::default())?;
        ensure!(total(&profile, "samples") > 0, "nothing was saved");
        // The names come from the operator.
        let names = &profile.string_table;
        ensure!(names.iter().any(|text| text == "web"), "no pod: {names:?}");
        Ok(())
    })
}

/// A killed terminal does not cancel its request. The sampler ends because nobody reads its
/// profiles.
#[test]
fn a_live_sampler_without_viewers_ends() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::php("web")]).await?;
        let spec = serde_json::json!({
            "target": {"podName": "web", "containerName": "fpm"}, "mode": "Live", "durationSeconds": 60,
        });
        let request = fixture.sampled(spec).await?;
        let began = std::time::Instant::now();
        let request = fixture.ended(&request).await?;
        promised(
            "the end of what nobody reads",
            Duration::from_secs(40),
            began.elapsed(),
        )?;
        ensure!(status(&request).profile.is_some(), "no profile");
        Ok(())
    })
}
