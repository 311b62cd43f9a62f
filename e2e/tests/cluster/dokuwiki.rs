//! An application of other authors: DokuWiki as Debian installs it, under php-fpm behind nginx.
//!
//! Invariant: the tests compare a profile with independent sources: the source files in the
//! container, PHP's own reflection, and nginx's log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::samples::samples_of;
use e2e::{ENABLED, Fixture, application, kubectl, pods, say, shared};
use kube::ResourceExt as _;
use phpprof_crds::ProfileRequest;
use phpprof_profile::proto::Sample;
use phpprof_profile::{Lookup, Profile, place_name, plain_name, timeline, total};
use serde_json::{Value, json};

/// In percentage points of the total: nginx's times contain the waits of a request until PHP gets
/// it.
const TOLERANCE: f64 = 2.0;
/// Beyond so many standard deviations is one share of a million by chance.
const DEVIATIONS: f64 = 5.0;
const SECONDS: u64 = 10;
/// The largest share of unstable samples, in percent: three times what docs/promises.md promises of
/// a minute at the default rate.
const UNSTABLE_LIMIT: i64 = 3;
/// The largest share of samples without a request, in percent: they run before a request's
/// variables exist, or after PHP has freed them.
const UNLABELLED_LIMIT: i64 = 10;

#[test]
fn dokuwiki_is_profiled_with_opcache() -> Result<()> {
    check_wiki("1")
}

#[test]
fn a_filter_keeps_one_scripts_requests_only() -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::dokuwiki("web", "1")]).await?;
        let filter = json!({"pathPrefix": "/doku", "methods": ["GET"], "scripts": ["doku.php"]});
        let profile = profiled(fixture, 8, filter).await?;
        let lookup = Lookup::new(&profile);
        for sample in &profile.sample {
            let script = script(&lookup, sample)?;
            let is_kept = script.as_deref().is_none_or(|script| script == "/doku.php");
            ensure!(is_kept, "{script:?} is in the profile");
        }
        ensure!(total(&profile, "samples") > 100, "next to nothing is kept");
        let comment = profile.comment.first().context("no receipt")?;
        say(profile.string(*comment));
        Ok(())
    })
}

#[test]
fn dokuwiki_is_profiled_without_opcache() -> Result<()> {
    check_wiki("0")
}

fn check_wiki(opcache: &str) -> Result<()> {
    shared(ENABLED, async |fixture| {
        fixture.start(&[pods::dokuwiki("web", opcache)]).await?;
        let profile = profiled(fixture, SECONDS, Value::Null).await?;
        let samples = total(&profile, "samples");
        let unstable = samples_of(&profile, application::UNSTABLE);
        say(&format!(
            "DokuWiki with opcache.enable={opcache}: {unstable} of {samples} samples are unstable"
        ));
        check_names(fixture, &profile).await?;
        check_labels(&profile)?;
        ensure!(
            unstable * 100 < samples * UNSTABLE_LIMIT,
            "{unstable} of {samples} samples are unstable"
        );
        let apart = scripts_apart(fixture, &profile).await?;
        ensure!(apart.is_empty(), "too far apart: {apart:?}");
        Ok(())
    })
}

/// Profiles the pod, and reads the profile from the store.
async fn profiled(fixture: &Fixture, seconds: u64, filter: Value) -> Result<Profile> {
    let target = json!({"podName": "web", "containerName": "fpm"});
    let labels = ["Method", "Route", "Script"];
    let spec = json!({
        "target": target, "durationSeconds": seconds, "samplesPerSecond": 499, "labels": labels,
        "filter": filter,
    });
    let request = fixture.completed(spec).await?;
    let claimed = request.status.clone().and_then(|status| status.profile);
    let claimed = claimed.context("no merged profile")?;
    let profile = fixture.profile(fixture.store.key_of(&claimed.url)?).await?;
    check_list(fixture, &request, &profile).await?;
    Ok(profile)
}

/// Checks that the list of requests is stored next to the profile, expires with it, and needs the
/// same right.
async fn check_list(fixture: &Fixture, request: &ProfileRequest, profile: &Profile) -> Result<()> {
    let links = fixture.links(request).await?;
    let link = links.get("requests").context("no list of requests")?;
    let reply = fixture.get(link).await?;
    ensure!(reply.status == 200, "{}", reply.text());
    let list = timeline::decode(&reply.body)?;
    ensure!(list.requests.iter().all(|request| request.pod == "web"));
    let slowest = list.requests.first().context("no request is listed")?;
    ensure!(!slowest.moments.is_empty(), "{slowest:?}");
    let cells = list.routes.iter().flat_map(|row| &row.cells);
    let listed: i64 = cells.map(|cell| cell.busy + cell.waiting).sum();
    let wall = total(profile, "wall");
    ensure!(
        (listed - wall).abs() * 100 < wall,
        "{listed} in place of {wall}"
    );
    let manifest = fixture.get(&links["manifest"]).await?;
    let manifest: Value = serde_json::from_slice(&manifest.body)?;
    ensure!(manifest["requests"]["pods"] == 1, "{manifest}");
    let administrator = fixture.administrator()?;
    let verb = format!("requests {} -o json", request.name_any());
    let said = administrator.run(&verb).await?.well()?;
    let said: Value = serde_json::from_str(&said)?;
    ensure!(
        said["requests"][0]["route"] == slowest.route.as_str(),
        "{said}"
    );
    Ok(())
}

/// Checks that every function of the profile is one of PHP's, or is declared at the profile's file
/// and line.
async fn check_names(fixture: &Fixture, profile: &Profile) -> Result<()> {
    let lookup = Lookup::new(profile);
    let frames = profile
        .sample
        .iter()
        .flat_map(|sample| lookup.frames(sample));
    // A name in brackets is not a function: it is what PHP itself did, or what is unknown.
    let functions: BTreeSet<_> = frames
        .filter(|frame| !frame.name.starts_with('['))
        .map(|frame| {
            let name = place_name(frame.name, frame.file, frame.start_line);
            (name, frame.file, frame.start_line)
        })
        .collect();
    ensure!(functions.len() > 100, "only {} functions", functions.len());
    let php = [
        "php",
        "-d",
        "memory_limit=-1",
        "-r",
        include_str!("../../src/names.php"),
    ];
    let missing = fixture
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

/// Checks that each sample's labels match the script of its root frame, and that no query string is
/// in the profile.
fn check_labels(profile: &Profile) -> Result<()> {
    let lookup = Lookup::new(profile);
    let (mut all, mut without) = (0, 0);
    for sample in &profile.sample {
        let Some(script) = script(&lookup, sample)? else {
            continue;
        };
        let label = |key: &str| {
            let found = sample.label.iter().find(|it| profile.string(it.key) == key);
            found.map(|it| profile.string(it.str))
        };
        all += sample.value[0];
        let labels = ["method", "route", "script"].map(label);
        if labels.contains(&None) {
            without += sample.value[0];
            continue;
        }
        let expected = ["GET", &script, script.trim_start_matches('/')].map(Some);
        ensure!(labels == expected, "{labels:?} in {script}");
    }
    say(&format!("{without} of {all} samples have no request"));
    ensure!(without * 100 < all * UNLABELLED_LIMIT, "{without} of {all}");
    let leaked = profile.string_table.iter();
    let leaked: Vec<_> = leaked.filter(|text| text.contains("id=wiki")).collect();
    ensure!(leaked.is_empty(), "{leaked:?}");
    Ok(())
}

/// The script of a stack's root frame, relative to the wiki's folder.
fn script(lookup: &Lookup<'_>, sample: &Sample) -> Result<Option<String>> {
    let main = lookup
        .frames(sample)
        .find(|frame| plain_name(frame.name, frame.file) == application::ROOT);
    let Some(main) = main else {
        return Ok(None);
    };
    let script = main.file.strip_prefix("/usr/share/dokuwiki");
    let script = script.with_context(|| format!("{} is not a script of it", main.file))?;
    Ok(Some(script.to_owned()))
}

/// The scripts whose share of the profile differs from their share of the time in nginx's log.
async fn scripts_apart(fixture: &Fixture, profile: &Profile) -> Result<Vec<String>> {
    let began = Duration::from_nanos(u64::try_from(profile.time_nanos)?);
    let took = Duration::from_nanos(u64::try_from(profile.duration_nanos)?);
    let log = ["logs", "web", "--container=nginx", "--namespace"];
    let log = kubectl(&[&log[..], &[fixture.namespace.as_str()]].concat()).await?;
    let logged = shares(logged_seconds(
        &log,
        began.as_secs_f64(),
        took.as_secs_f64(),
    ));
    let profiled = shares(profiled_seconds(profile)?);
    ensure!(logged.len() > 3, "{logged:?}");
    let samples = total(profile, "samples") as f64;
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
        let part = logged / 100.0;
        let chance = 100.0 * DEVIATIONS * (part * (1.0 - part) / samples).sqrt();
        if (logged - profiled).abs() > TOLERANCE + chance {
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

/// How long each script ran between two times, from lines of `end of the request, seconds, status,
/// script`.
fn logged_seconds(log: &str, began: f64, took: f64) -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        // nginx's other messages do not begin with a number.
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

/// How long each script ran according to the profile, by the file of the root frame.
fn profiled_seconds(profile: &Profile) -> Result<BTreeMap<String, f64>> {
    let index = profile.value_index("wall").context("no wall time")?;
    let lookup = Lookup::new(profile);
    let mut seconds = BTreeMap::new();
    for sample in &profile.sample {
        if let Some(script) = script(&lookup, sample)? {
            *seconds.entry(script).or_default() += sample.value[index] as f64 / 1e9;
        }
    }
    Ok(seconds)
}
