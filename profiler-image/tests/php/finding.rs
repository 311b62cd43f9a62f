//! Engines that are hard to find: deleted binaries, programs that start or do an `execve` during a
//! run, and a PHP without symbols. With this machine's PHP 8.2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::options::options;
use crate::programs;
use anyhow::{Context, Result, bail, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::{RecordError, Recording, RecordingOptions, RunEnd, record};
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, decode};
use phpprof_testing::Running;
use phpprof_zend::engine::EngineRefusal;
use tempfile::TempDir;

const PHP: &str = "/usr/bin/php8.2";
/// A script with a function of the given name.
const SPIN: &str = "<?php function NAME() { return md5('x'); } while (true) NAME();";

struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Result<Self> {
        Ok(Self {
            folder: TempDir::new()?,
        })
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    fn script(&self, function: &str) -> Result<PathBuf> {
        self.file(&format!("{function}.php"), &SPIN.replace("NAME", function))
    }

    fn run(&self, program: impl AsRef<Path>, arguments: &[&Path]) -> Result<Running> {
        let program = program.as_ref();
        let child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Running(child))
    }
}

fn sampled(scope: Scope, seconds: u64) -> Result<Recording, RecordError> {
    record(&RecordingOptions {
        cpu_budget_percent: Some(25),
        ..options(scope, 99, Duration::from_secs(seconds))
    })
}

/// A target and its descendants.
fn only(target: &Running) -> Scope {
    Scope::Pids(vec![target.pid()])
}

/// Samples a scope, and checks that its profile has these functions.
fn check(scope: Scope, seconds: u64, functions: &[&str]) -> Result<()> {
    let recording = sampled(scope, seconds).map_err(|error| anyhow::anyhow!("{error:?}"))?;
    let profile = decode(
        &output(&recording.snapshot(), &[], OfSampler::default()).bytes,
        &DecodeLimits::default(),
    )?;
    for function in functions {
        ensure!(
            profile.string_table.iter().any(|text| text == function),
            "{function} is not among {:?}",
            profile.string_table
        );
    }
    Ok(())
}

#[test]
fn deleted_or_replaced_binary_is_read_from_memory() -> Result<()> {
    let scene = Scene::new()?;
    let php = scene.folder.path().join("php");
    programs::copy(PHP, &php)?;
    let target = scene.run(&php, &[&scene.script("spin")?])?;
    std::thread::sleep(Duration::from_millis(200));
    fs::remove_file(&php)?;
    check(only(&target), 1, &["spin"])?;
    fs::write(&php, "another program")?;
    check(only(&target), 1, &["spin"])
}

#[test]
fn all_php_is_sampled_without_a_choice() -> Result<()> {
    let scene = Scene::new()?;
    let _targets = [
        scene.run(PHP, &[&scene.script("first")?])?,
        scene.run(PHP, &[&scene.script("second")?])?,
    ];
    check(Scope::All, 2, &["first", "second"])
}

#[test]
fn starting_php_is_waited_for() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.script("late")?;
    let start = scene.file(
        "start.sh",
        &format!("sleep 0.3; exec {PHP} {}", script.display()),
    )?;
    let target = scene.run("/bin/sh", &[&start])?;
    check(only(&target), 1, &["late"])
}

#[test]
fn program_replacing_itself_is_sampled_twice() -> Result<()> {
    let scene = Scene::new()?;
    let after = scene.script("after")?;
    let before = scene.file(
        "before.php",
        &format!(
            "<?php function before() {{ return md5('x'); }} $end = microtime(true) + 1; while (microtime(true) < $end) before();\n\
             pcntl_exec({PHP:?}, [{:?}]);",
            after.display()
        ),
    )?;
    let target = scene.run(PHP, &[&before])?;
    check(only(&target), 3, &["before", "after"])
}

/// A static binary has no `.dynsym`; this one has the text by which a PHP is recognised.
#[test]
fn php_without_symbols_is_refused_by_name() -> Result<()> {
    let scene = Scene::new()?;
    let source = scene.file(
        "static.c",
        "#include <unistd.h>\nconst char *version = \"X-Powered-By: PHP/8.2.99\";\n\
         int main(void) { write(1, version, 8); for (;;) pause(); }\n",
    )?;
    let program = scene.folder.path().join("static-php");
    let status = Command::new("cc")
        .args(["-static", "-o"])
        .args([&program, &source])
        .status()?;
    ensure!(status.success(), "cc failed");
    let target = scene.run(&program, &[])?;
    match sampled(only(&target), 1) {
        Err(RecordError::NoPhp(Some(refused))) => {
            ensure!(
                matches!(&refused.refusal, EngineRefusal::NoEngineSymbols(path) if path.ends_with("static-php")),
                "{refused:?}"
            );
            Ok(())
        }
        other => bail!("{other:?}"),
    }
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn a_run_ends_soon_after_its_target() -> Result<()> {
        let scene = Scene::new()?;
        let target = scene.run(PHP, &[&scene.script("short")?])?;
        let scope = only(&target);
        let end = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(2));
            drop(target);
        });
        let began = Instant::now();
        let recording = sampled(scope, 60).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        ensure!(
            recording.ended == RunEnd::WorkersGone,
            "{:?}",
            recording.ended
        );
        ensure!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        ensure!(end.join().is_ok());
        Ok(())
    }
}
