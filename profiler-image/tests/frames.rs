//! Frames that no ordinary call pushes, in profiles of this machine's PHP 8.2: fibers, code that opcache has preloaded, and
//! scripts that are changed while they run.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::request::asked::Asked;
use phpprof::run::stop::Stop;
use phpprof::run::{Options, record};
use phpprof::target::Scope;
use phpprof_profile::{Limits, Lookup, decode};
use tempfile::TempDir;

/// One fiber runs another, and both continue after they were suspended.
const FIBERS: &str = r#"<?php
function work() { return md5(str_repeat('x', 50000)); }
function inner() { Fiber::suspend(); work(); }
function outer() { $fiber = new Fiber('inner'); $fiber->start(); Fiber::suspend(); work(); $fiber->resume(); }
while (true) { $fiber = new Fiber('outer'); $fiber->start(); $fiber->resume(); }
"#;

const PRELOADED: &str = "<?php
final class Preloaded { static function work() { return md5(str_repeat('x', 50000)); } }
";

const INCLUDES: &str = r#"<?php
function before() { return md5(str_repeat('x', 50000)); }
function after() { return sha1(str_repeat('x', 50000)); }
while (true) { (include __DIR__ . '/part.php')(); }
"#;

/// A target that is ended with the test.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Puts the main script into the folder, and starts it with these settings.
fn start(folder: &TempDir, script: &str, settings: &[&str]) -> Result<Target> {
    let path = folder.path().join("main.php");
    fs::write(&path, script)?;
    let settings = settings.iter().flat_map(|setting| ["-d", setting]);
    let child = Command::new("php8.2")
        .args(settings)
        .arg(&path)
        .stdout(Stdio::null())
        .spawn()
        .context("starting php8.2")?;
    // Until the compiler has run.
    std::thread::sleep(Duration::from_millis(200));
    Ok(Target(child))
}

/// Samples by their stack, root first, without the folder of files.
fn sampled(target: &Target, folder: &Path) -> Result<HashMap<String, i64>> {
    let recording = record(&Options {
        scope: Scope::Pids(vec![i32::try_from(target.0.id())?]),
        samples_per_second: 499,
        duration: Duration::from_secs(2),
        max_samples: None,
        unpaced: false,
        include_idle: false,
        only_running: false,
        heap: false,
        of_program: false,
        cpu_budget_percent: Some(25),
        quiescent_cpus: None,
        stop: Stop::default(),
        checkpoints: None,
        requests: Asked::default(),
    })?;
    let profile = decode(
        &output(&recording.snapshot(), &[], OfSampler::default()).bytes,
        &Limits::default(),
    )?;
    let lookup = Lookup::new(&profile);
    let mut stacks = HashMap::new();
    for sample in &profile.sample {
        let mut names: Vec<&str> = lookup.frames(sample).map(|frame| frame.name).collect();
        names.reverse();
        let stack = names
            .join(";")
            .replace(&format!("{}/", folder.display()), "");
        *stacks.entry(stack).or_default() += sample.value[0];
    }
    Ok(stacks)
}

/// Checks that each of the stacks has at least that many samples.
fn check(stacks: &HashMap<String, i64>, expected: &[&str], at_least: i64) -> Result<()> {
    for stack in expected {
        let samples = stacks.get(*stack).copied().unwrap_or(0);
        ensure!(
            samples >= at_least,
            "{samples} samples of {stack}: {stacks:?}"
        );
    }
    Ok(())
}

/// Checks that no stack has one of these calls.
fn check_without(stacks: &HashMap<String, i64>, calls: &[&str]) -> Result<()> {
    let has = |stack: &&String| calls.iter().any(|call| stack.contains(call));
    let wrong: Vec<_> = stacks.keys().filter(has).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

#[test]
fn a_fiber_is_called_by_what_has_started_or_resumed_it() -> Result<()> {
    let folder = TempDir::new()?;
    let target = start(&folder, FIBERS, &[])?;
    let stacks = sampled(&target, folder.path())?;
    check(
        &stacks,
        &[
            "{main};Fiber::resume;outer;work;md5",
            "{main};Fiber::resume;outer;Fiber::resume;inner;work;md5",
        ],
        50,
    )?;
    check_without(
        &stacks,
        &[
            "{main};outer",
            "{main};inner",
            "{main};work",
            "outer;inner",
            "{main};Fiber::resume;inner",
            "{main};Fiber::start;inner",
            "Fiber::start;outer;work",
            "Fiber::start;inner;work",
            "Fiber::start;outer;Fiber::resume",
            "Fiber::start;outer;Fiber::suspend;inner",
        ],
    )
}

#[test]
fn preloaded_code_is_named_as_any_other() -> Result<()> {
    let folder = TempDir::new()?;
    let preloaded = folder.path().join("preloaded.php");
    fs::write(&preloaded, PRELOADED)?;
    let target = start(
        &folder,
        "<?php while (true) { Preloaded::work(); }",
        &[
            "opcache.enable_cli=1",
            &format!("opcache.preload={}", preloaded.display()),
            "opcache.preload_user=root",
        ],
    )?;
    let stacks = sampled(&target, folder.path())?;
    check(&stacks, &["{main};Preloaded::work;md5"], 100)?;
    check_without(&stacks, &["{main};md5"])
}

#[test]
fn a_script_that_is_changed_while_it_runs_has_the_names_of_its_time() -> Result<()> {
    for enabled in ["opcache.enable_cli=0", "opcache.enable_cli=1"] {
        let folder = TempDir::new()?;
        let part = folder.path().join("part.php");
        fs::write(&part, "<?php return function () { return before(); };")?;
        let settings = [
            enabled,
            "opcache.revalidate_freq=0",
            "opcache.file_update_protection=0",
        ];
        let target = start(&folder, INCLUDES, &settings)?;
        let change = std::thread::spawn(move || -> Result<()> {
            std::thread::sleep(Duration::from_millis(1100));
            // In one step, as a deployment does.
            let next = part.with_extension("next");
            fs::write(&next, "<?php\n\nreturn function () { return after(); };")?;
            Ok(fs::rename(next, part)?)
        });
        let stacks = sampled(&target, folder.path())?;
        change.join().ok().context("the change has failed")??;
        check(
            &stacks,
            &[
                "{main};{closure:part.php:1};before;md5",
                "{main};{closure:part.php:3};after;sha1",
            ],
            50,
        )?;
        check_without(
            &stacks,
            &["{closure:part.php:1};after", "{closure:part.php:3};before"],
        )?;
    }
    Ok(())
}
