//! Shared by these tests: programs that end with their test, and phpprof's output.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof_profile::{DecodeLimits, Profile, View, decode};
use tempfile::TempDir;

pub const PHP: &str = "/usr/bin/php8.2";
pub const FPM: &str = "/usr/sbin/php-fpm8.2";
const PATIENCE: Duration = Duration::from_secs(20);

/// A folder for the files of a test.
pub struct Scene(TempDir);

impl Scene {
    pub fn new() -> Result<Self> {
        Ok(Self(TempDir::new()?))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file with this text.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Whether the folder has only these files.
    pub fn has_only(&self, expected: &[&str]) -> Result<bool> {
        let names = fs::read_dir(self.0.path())?.map(|entry| Ok(entry?.file_name()));
        let mut names: Vec<_> = names.collect::<Result<_>>()?;
        names.sort();
        Ok(names == expected)
    }
}

/// A process that is ended with its test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // php-fpm ends its workers at SIGTERM; a process that ignores that, or has no time for it,
        // is killed with its children.
        let _ = self.signal(Signal::SIGTERM);
        let began = Instant::now();
        while matches!(self.0.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = self.pid();
        let is_there = matches!(self.0.try_wait(), Ok(None));
        let list = match is_there {
            true => fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")),
            false => Ok(String::new()),
        };
        let _ = self.0.kill();
        let _ = self.0.wait();
        let list = list.unwrap_or_default();
        for child in list
            .split_ascii_whitespace()
            .filter_map(|it| it.parse().ok())
        {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
    }
}

impl Running {
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self(child.with_context(|| format!("{command:?}"))?))
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap_or(0)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid()), signal)?)
    }

    /// Its exit code, within some seconds.
    pub fn exit_code(&mut self) -> Result<Option<i32>> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status.code());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("it has not ended")
    }
}

/// `phpprof record` with these arguments.
pub fn record(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    command.arg("record").args(arguments).stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn run(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("{command:?}"))
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until this holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < PATIENCE, "{what} does not come to be");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A profile with its receipt.
pub struct Read {
    pub profile: Profile,
    pub receipt: serde_json::Value,
}

impl Read {
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let profile = decode(bytes, &DecodeLimits::default())?;
        let receipt = profile.comments().next().context("there is no receipt")?;
        let receipt = serde_json::from_str(receipt)?;
        Ok(Self { profile, receipt })
    }

    pub fn file(path: &std::path::Path) -> Result<Self> {
        Self::of(&fs::read(path).with_context(|| path.display().to_string())?)
    }

    pub fn samples(&self) -> i64 {
        phpprof_profile::total(&self.profile, "samples")
    }

    /// Its stacks as text, root first, with their time.
    pub fn folded(&self) -> Result<Vec<(String, f64)>> {
        let text =
            phpprof_profile::Format::Folded.write(&self.profile, &View::default(), "", None)?;
        folded(&String::from_utf8(text)?)
    }

    /// The processes that have samples.
    pub fn pids(&self) -> Vec<i32> {
        let labels = self.profile.sample.iter().flat_map(|sample| &sample.label);
        let pids = labels.filter(|label| self.profile.string(label.key) == "pid");
        let mut pids: Vec<_> = pids.filter_map(|label| label.num.try_into().ok()).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

/// Stacks and values of the folded format.
pub fn folded(text: &str) -> Result<Vec<(String, f64)>> {
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').context("a line without a value")?;
        Ok((stack.to_owned(), value.parse()?))
    };
    text.lines().map(line).collect()
}

/// The share of the stacks that contain this frame.
pub fn share(stacks: &[(String, f64)], frame: &str) -> f64 {
    let has = |stack: &str| stack.split(';').any(|part| part == frame);
    let of = |with: bool| -> f64 {
        let kept = stacks.iter().filter(|(stack, _)| !with || has(stack));
        kept.map(|(_, value)| value).sum()
    };
    of(true) / of(false)
}
