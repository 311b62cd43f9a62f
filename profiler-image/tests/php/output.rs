//! `-o FILE` of the built sampler: a bad path fails at once, a signal keeps the samples so far, and
//! an older file exists until the new one is complete. With this machine's PHP 8.2.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use phpprof_profile::{DecodeLimits, Profile, decode, total};
use phpprof_testing::{Running, wait_for};
use tempfile::TempDir;

const PHP: &str = "/usr/bin/php8.2";
const SPIN: &str = "function spin() { return md5('x'); } while (true) spin();";

fn php() -> Result<Running> {
    Running::start(Command::new(PHP).args(["-r", SPIN]).stdout(Stdio::null()))
}

/// How it ended, within some seconds.
fn ended(running: &mut Running) -> Result<ExitStatus> {
    wait_for("end of the sampler", || Ok(running.0.try_wait()?))
}

/// The sampler. How it handles SIGHUP does not depend on how these tests were started.
fn sampler(hangup: &str, target: &Running, seconds: u32, output: &Path) -> Command {
    let mut command = Command::new("env");
    command
        .arg(format!("--{hangup}-signal=HUP"))
        .arg(env!("CARGO_BIN_EXE_phpprof"))
        .args([
            "record",
            "--pid",
            &target.pid().to_string(),
            "-d",
            &seconds.to_string(),
        ])
        .arg("-o")
        .arg(output)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Waits until it prints that it samples, and then for some samples. Its later output is not read.
fn sampling(command: &mut Command) -> Result<Running> {
    let mut running = Running::start(command)?;
    let said = running.0.stderr.take().context("it says nothing")?;
    let line = BufReader::new(said)
        .lines()
        .next()
        .context("it has ended")??;
    ensure!(line.contains("sampling for"), "{line}");
    std::thread::sleep(Duration::from_millis(700));
    Ok(running)
}

fn profile(bytes: &[u8]) -> Result<Profile> {
    let profile = decode(bytes, &DecodeLimits::default())?;
    ensure!(total(&profile, "samples") > 10, "too few samples");
    Ok(profile)
}

fn names(folder: &TempDir) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder.path())?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

#[test]
fn a_bad_path_fails_before_anything_is_sampled() -> Result<()> {
    let (folder, target) = (TempDir::new()?, php()?);
    let output = folder.path().join("no/out.pb.gz");
    let mut running = Running::start(&mut sampler("default", &target, 60, &output))?;
    ensure!(ended(&mut running)?.code() == Some(2));
    let mut said = String::new();
    let stderr = running.0.stderr.take().context("it says nothing")?;
    BufReader::new(stderr).read_to_string(&mut said)?;
    ensure!(said.contains("create the folder"), "{said}");
    ensure!(!said.contains("sampling"), "{said}");
    Ok(())
}

#[test]
fn signal_keeps_samples_without_listener() -> Result<()> {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let (folder, target) = (TempDir::new()?, php()?);
        let output = folder.path().join("out.pb.gz");
        fs::write(&output, "older")?;
        let mut running = sampling(&mut sampler("default", &target, 60, &output))?;
        ensure!(fs::read(&output)? == b"older");
        running.signal(signal)?;
        let status = ended(&mut running)?;
        ensure!(status.success(), "{signal}: {status}");
        profile(&fs::read(&output)?)?;
        ensure!(names(&folder)? == ["out.pb.gz"]);
    }
    Ok(())
}

#[test]
fn a_run_that_shall_outlive_its_terminal_does() -> Result<()> {
    let (folder, target) = (TempDir::new()?, php()?);
    let output = folder.path().join("out.pb.gz");
    let mut running = sampling(&mut sampler("ignore", &target, 2, &output))?;
    running.signal(Signal::SIGHUP)?;
    ensure!(ended(&mut running)?.success());
    let nanoseconds = profile(&fs::read(&output)?)?.duration_nanos;
    ensure!(nanoseconds > 1_900_000_000, "{nanoseconds} ns");
    Ok(())
}

#[test]
fn killed_or_failed_run_leaves_the_old_file() -> Result<()> {
    let (folder, target) = (TempDir::new()?, php()?);
    let output = folder.path().join("out.pb.gz");
    fs::write(&output, "older")?;
    let mut running = sampling(&mut sampler("default", &target, 60, &output))?;
    running.signal(Signal::SIGKILL)?;
    ensure!(ended(&mut running)?.signal() == Some(9));
    ensure!(fs::read(&output)? == b"older");

    let no_php = Running::start(Command::new("sleep").arg("60"))?;
    let mut running = Running::start(&mut sampler("default", &no_php, 60, &output))?;
    ensure!(ended(&mut running)?.code() == Some(10));
    ensure!(fs::read(&output)? == b"older");
    Ok(())
}

#[test]
fn a_pipe_is_written_to() -> Result<()> {
    let (folder, target) = (TempDir::new()?, php()?);
    let mut command = sampler("default", &target, 1, Path::new("/dev/stdout"));
    let mut running = Running::start(command.stdout(Stdio::piped()))?;
    let mut bytes = Vec::new();
    let mut stdout = running.0.stdout.take().context("no output")?;
    stdout.read_to_end(&mut bytes)?;
    profile(&bytes)?;
    ensure!(ended(&mut running)?.success());

    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU)?;
    let mut running = Running::start(&mut sampler("default", &target, 1, &fifo))?;
    profile(&fs::read(&fifo)?)?;
    ensure!(ended(&mut running)?.success());
    ensure!(names(&folder)? == ["fifo"]);
    Ok(())
}

/// Linux carries `ru_maxrss` over an exec, so a sampler that a large process starts would seem
/// large.
#[test]
fn the_peak_of_memory_is_the_samplers_own() -> Result<()> {
    let (folder, target) = (TempDir::new()?, php()?);
    let output = folder.path().join("out.pb.gz");
    let large = std::hint::black_box(vec![1_u8; 256 << 20]);
    let mut running = Running::start(&mut sampler("default", &target, 1, &output))?;
    ensure!(ended(&mut running)?.success());
    drop(large);
    let profile = profile(&fs::read(&output)?)?;
    let receipt = profile.comments().next().context("no receipt")?;
    let receipt: serde_json::Value = serde_json::from_str(receipt)?;
    let peak = receipt["samplerPeakBytes"].as_u64();
    ensure!(
        peak.is_some_and(|peak| (1..128 << 20).contains(&peak)),
        "{receipt}"
    );
    Ok(())
}
