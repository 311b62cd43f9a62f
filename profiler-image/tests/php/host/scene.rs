//! Shared by these tests: programs that end with their test, and phpprof's output.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};
use phpprof_profile::{DecodeLimits, Profile, View, decode};
use phpprof_testing::fpm::{self, Pool};
pub use phpprof_testing::{Running, wait_until};
use tempfile::TempDir;

pub const PHP: &str = "/usr/bin/php8.2";
pub const FPM: &str = "/usr/sbin/php-fpm8.2";

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

/// php-fpm with these pools, each with its number of workers, and further lines of their
/// configuration. They listen at `socket`, or below the pool's name if there are several.
pub fn php_fpm(scene: &Scene, pools: &[(&str, usize)], more: &str) -> Result<Running> {
    let socket = |name: &str| match pools {
        [_] => scene.path("socket"),
        _ => scene.path(name),
    };
    let sockets: Vec<PathBuf> = pools.iter().map(|(name, _)| socket(name)).collect();
    let pools = pools.iter().zip(&sockets);
    let pools: Vec<Pool<'_>> = pools
        .map(|((name, workers), socket)| Pool {
            name,
            socket,
            workers: *workers,
            more,
        })
        .collect();
    fpm::start(FPM, scene.0.path(), &pools, &[])
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
