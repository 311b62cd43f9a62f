//! The built sampler as a resident one, next to this machine's PHP 8.2 in a container, which is a
//! cgroup here.
//!
//! Invariant: everything that was started ends when its value is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::receipt::base64url;
use phpprof_profile::{DecodeLimits, Profile, decode, total};
pub use phpprof_testing::{Running, wait_for};
use ring::digest;
use serde_json::Value;
use tempfile::TempDir;

use super::relay::Relay;

pub const PHP: &str = "/usr/bin/php8.2";
pub const SPIN: &str = "function spin() { return md5('x'); } while (true) spin();";

/// A container that runs PHP.
pub struct Container {
    pub id: String,
    pub cgroup: PathBuf,
    pub php: Option<Running>,
}

impl Container {
    /// Starts it; each test uses another number.
    pub fn start(number: u32) -> Result<Self> {
        let mut php = Command::new(PHP);
        php.args(["-r", SPIN]);
        Self::start_with(number, php)
    }

    pub fn start_with(number: u32, mut php: Command) -> Result<Self> {
        let id = format!("{:032x}{number:032x}", std::process::id());
        let cgroup = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"]
            .iter()
            .map(|root| Path::new(root).join(&id))
            .find(|path| fs::create_dir(path).is_ok())
            .context("no cgroup can be made")?;
        let php = php.stdout(Stdio::null()).spawn();
        let php = Running(php.context("starting PHP")?);
        fs::write(cgroup.join("cgroup.procs"), php.0.id().to_string())?;
        let php = Some(php);
        Ok(Self { id, cgroup, php })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.php.take());
        // The kernel releases a group a moment after its last process was reaped.
        let _ = wait_for(
            "end of the cgroup",
            || Ok(fs::remove_dir(&self.cgroup).ok()),
        );
    }
}

/// A resident sampler.
pub struct Resident {
    pub process: Running,
    pub folder: TempDir,
}

impl Resident {
    pub fn start(container: &str, ask: &Value, first_answer_seconds: u32) -> Result<Self> {
        let program = env!("CARGO_BIN_EXE_phpprof");
        Self::start_program(program, container, ask, first_answer_seconds)
    }

    pub fn start_program(
        program: &str,
        container: &str,
        ask: &Value,
        first_answer_seconds: u32,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(program);
        command
            .arg("resident")
            .arg(format!("--container-id={container}"))
            .arg(format!("--first-answer-seconds={first_answer_seconds}"))
            .arg(format!(
                "--receipt={}",
                folder.path().join("receipt").display()
            ))
            .env_clear()
            .env("PHPPROF_ASK", ask.to_string())
            .stdin(Stdio::null())
            .stderr(fs::File::create(folder.path().join("log"))?);
        let process = Running(command.spawn()?);
        Ok(Self { process, folder })
    }

    pub fn of(container: &Container, relay: &Relay) -> Result<Self> {
        Self::start(&container.id, &relay.ask(), 10)
    }

    pub fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.process.0.id())?)
    }

    /// Its child process with this command, once there is one.
    pub fn child(&self, command: &str) -> Result<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid()?);
        wait_for(command, || {
            let children = fs::read_to_string(&path)?;
            let pids = children.split_whitespace().map(str::parse);
            for pid in pids.collect::<Result<Vec<i32>, _>>()? {
                let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                if words.split('\0').nth(1) == Some(command) {
                    return Ok(Some(pid));
                }
            }
            Ok(None)
        })
    }

    /// Its child process, once that has sampled for a moment.
    pub fn sampling_run(&self) -> Result<i32> {
        let run = self.child("record")?;
        wait_for("sampling", || {
            Ok(self.log()?.contains("sampling for").then_some(()))
        })?;
        std::thread::sleep(Duration::from_millis(700));
        Ok(run)
    }

    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("log"))?)
    }

    /// Checks its exit code and its receipt.
    #[track_caller]
    pub fn check_ends(&mut self, code: i32, receipt: &str) -> Result<()> {
        let ended = wait_for("end of the resident sampler", || {
            Ok(self.process.0.try_wait()?)
        });
        let log = self.log()?;
        ensure!(!log.contains("SECRET"), "{log}");
        let status = ended.with_context(|| log.clone())?;
        let said = fs::read_to_string(self.folder.path().join("receipt"))?;
        ensure!(status.code() == Some(code), "{status}, {said}: {log}");
        ensure!(said == receipt, "{said}: {log}");
        Ok(())
    }
}

/// The profile of a run. Checks that it belongs to the run, and that its receipt names it.
pub fn profile(relay: &Relay, run: &str) -> Result<Profile> {
    let bytes = relay.object(&format!("{run}.pb.gz"))?;
    let receipt: Value = serde_json::from_str(&relay.receipt(run)?)?;
    let sha256 = base64url(digest::digest(&digest::SHA256, &bytes).as_ref());
    ensure!(receipt["reason"] == "Relayed", "{receipt}");
    ensure!(receipt["sha256"] == sha256, "{receipt}: {sha256}");
    let profile = decode(&bytes, &DecodeLimits::default())?;
    ensure!(total(&profile, "samples") > 10, "too few samples");
    let labels = profile.string_table.iter();
    let labels: Vec<&String> = labels
        .filter(|text| text.starts_with("label-of-"))
        .collect();
    ensure!(labels == [&format!("label-of-{run}")], "{labels:?}");
    Ok(profile)
}
