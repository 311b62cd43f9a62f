//! An application that no one here wrote: DokuWiki as Debian installs it, under php-fpm behind nginx.
//!
//! Invariant: what a profile is held against comes from elsewhere: the sources in the container, PHP's own reflection,
//! and what nginx logged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::samples::samples_of;
use e2e::{ENABLED, Scene, application, calm, kubectl, pods, say};
use phpprof_profile::{Lookup, Profile, total};
use serde_json::json;

/// Of the whole, in points.
const TOLERANCE: f64 = 3.0;
const SECONDS: u64 = 10;
/// The most of the samples that may be unstable, in percent: three times what is promised of a minute at the default rate
/// (docs/promises.md).
const UNSTABLE_LIMIT: i64 = 3;

#[test]
fn a_wiki_that_others_wrote_is_profiled_with_opcache() -> Result<()> {
    check_wiki("1")
}

#[test]
fn a_wiki_that_others_wrote_is_profiled_without_opcache() -> Result<()> {
    check_wiki("0")
}

fn check_wiki(opcache: &str) -> Result<()> {
    calm(ENABLED, async |scene| {
        scene.start(&[pods::dokuwiki("web", opcache)]).await?;
        let profile = profiled(scene).await?;
        let samples = total(&profile, "samples");
        let unstable = samples_of(&profile, application::UNSTABLE);
        say(&format!(
            "DokuWiki with opcache.enable={opcache}: {unstable} of {samples} samples are unstable"
        ));
        check_names(scene, &profile).await?;
        ensure!(
            unstable * 100 < samples * UNSTABLE_LIMIT,
            "{unstable} of {samples} samples are unstable"
        );
        if scripts_apart(scene, &profile).await?.is_empty() {
            return Ok(());
        }
        // What nginx logs has the time that a request waited for a CPU before PHP had it: other work on the machine counts.
        say("shares are measured once more");
        let apart = scripts_apart(scene, &profiled(scene).await?).await?;
        ensure!(
            apart.is_empty(),
            "more than {TOLERANCE} points apart, twice: {apart:?}"
        );
        Ok(())
    })
}

/// A profile of the pod, as it comes from the store.
async fn profiled(scene: &Scene) -> Result<Profile> {
    let target = json!({"podName": "web", "containerName": "fpm"});
    let spec = json!({"target": target, "durationSeconds": SECONDS, "samplesPerSecond": 499});
    let request = scene.completed(spec).await?;
    let claimed = request.status.and_then(|status| status.profile);
    let claimed = claimed.context("no merged profile")?;
    scene.profile(scene.store.key_of(&claimed.url)?).await
}

/// Every function of the profile is one of PHP's, or declared in the file and at the line that the profile says.
async fn check_names(scene: &Scene, profile: &Profile) -> Result<()> {
    let lookup = Lookup::new(profile);
    let frames = profile
        .sample
        .iter()
        .flat_map(|sample| lookup.frames(sample));
    // A name in brackets is no function: what PHP itself was doing, or that nobody knows.
    let functions: BTreeSet<_> = frames
        .filter(|frame| !frame.name.starts_with('['))
        .map(|frame| (frame.name, frame.file, frame.start_line))
        .collect();
    ensure!(functions.len() > 100, "only {} functions", functions.len());
    let php = [
        "php",
        "-d",
        "memory_limit=-1",
        "-r",
        include_str!("../../src/names.php"),
    ];
    let missing = scene
        .exec("web", &php, json!(functions).to_string().as_bytes())
        .await?;
    let missing: Vec<String> = serde_json::from_slice(&missing)?;
    say(&format!(
        "{} functions, of which {} do not exist",
        functions.len(),
        missing.len()
    ));
    ensure!(missing.is_empty(), "these do not exist: {missing:#?}");
    Ok(())
}

/// The scripts that have another share of the profile than they have of the time by nginx's log.
async fn scripts_apart(scene: &Scene, profile: &Profile) -> Result<Vec<String>> {
    let began = Duration::from_nanos(u64::try_from(profile.time_nanos)?);
    let took = Duration::from_nanos(u64::try_from(profile.duration_nanos)?);
    let log = ["logs", "web", "--container=nginx", "--namespace"];
    let log = kubectl(&[&log[..], &[scene.namespace.as_str()]].concat()).await?;
    let logged = shares(logged_seconds(
        &log,
        began.as_secs_f64(),
        took.as_secs_f64(),
    ));
    let profiled = shares(profiled_seconds(profile)?);
    ensure!(logged.len() > 3, "{logged:?}");
    let mut apart = Vec::new();
    for script in logged
        .keys()
        .chain(profiled.keys())
        .collect::<BTreeSet<_>>()
    {
        let of = |shares: &BTreeMap<String, f64>| shares.get(script).copied().unwrap_or_default();
        let (logged, profiled) = (of(&logged), of(&profiled));
        say(&format!(
            "{script:<24} {logged:>5.1} % of the log {profiled:>5.1} % of the profile"
        ));
        if (logged - profiled).abs() > TOLERANCE {
            apart.push(script.clone());
        }
    }
    Ok(apart)
}

fn shares(of_scripts: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let whole: f64 = of_scripts.values().sum();
    let share = |(script, part)| (script, 100.0 * part / whole);
    of_scripts.into_iter().map(share).collect()
}

/// How long each script ran between two times, by lines of `end of the request, seconds, status, script`.
fn logged_seconds(log: &str, began: f64, took: f64) -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // What nginx says otherwise begins with no number.
        let [Ok(end), Ok(ran)] = [0, 1].map(|at| words.get(at).unwrap_or(&"").parse::<f64>())
        else {
            continue;
        };
        let inside = end.min(began + took) - (end - ran).max(began);
        if let (4, true) = (words.len(), inside > 0.0) {
            *seconds.entry(words[3].to_owned()).or_default() += inside;
        }
    }
    seconds
}

/// How long each script ran by the profile: the file in which a stack begins.
fn profiled_seconds(profile: &Profile) -> Result<BTreeMap<String, f64>> {
    let index = profile.value_index("wall").context("no wall time")?;
    let lookup = Lookup::new(profile);
    let mut seconds = BTreeMap::new();
    for sample in &profile.sample {
        let Some(main) = lookup
            .frames(sample)
            .find(|frame| frame.name == application::ROOT)
        else {
            continue;
        };
        let script = main.file.strip_prefix("/usr/share/dokuwiki");
        let script = script.with_context(|| format!("{} is no script of it", main.file))?;
        *seconds.entry(script.to_owned()).or_default() += sample.value[index] as f64 / 1e9;
    }
    Ok(seconds)
}
