//! `phpprof record`, as a user would run it on this machine.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof_profile::proto::Profile;
use phpprof_profile::{DecodeLimits, decode};
use tempfile::TempDir;

/// A recording in progress; it is ended when this is dropped.
pub struct Recorder {
    child: Child,
    folder: TempDir,
}

/// Open descriptors and resident bytes of a process.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub descriptors: usize,
    pub resident_bytes: u64,
}

impl Recorder {
    /// Begins to sample these processes and their descendants.
    pub fn start(pids: &[u32], samples_per_second: u32, seconds: u32) -> Result<Self> {
        let labels = "--labels=Method,Route,Script,RequestAge";
        Self::start_with(pids, samples_per_second, seconds, &[labels])
    }

    /// The same, with these arguments.
    pub fn start_with(
        pids: &[u32],
        samples_per_second: u32,
        seconds: u32,
        arguments: &[&str],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let child = Command::new(env!("CARGO_BIN_EXE_phpprof"))
            .arg("record")
            .args(pids.iter().map(|pid| format!("--pid={pid}")))
            .args(["-F", &samples_per_second.to_string()])
            .args(arguments)
            .args(["-d", &seconds.to_string(), "-o"])
            .arg(folder.path().join("profile.pb.gz"))
            .stdin(Stdio::null())
            .stderr(File::create(folder.path().join("said"))?)
            .spawn()
            .context("starting phpprof")?;
        Ok(Self { child, folder })
    }

    /// Its current usage.
    pub fn usage(&mut self) -> Result<Usage> {
        if let Some(status) = self.child.try_wait()? {
            bail!("phpprof has ended with {status}: {}", self.said());
        }
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let resident = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse()?;
        Ok(Usage {
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            resident_bytes: kibibytes * 1024,
        })
    }

    /// Ends it as Ctrl-C does.
    pub fn interrupt(&self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?);
        Ok(kill(pid, Signal::SIGINT)?)
    }

    /// Waits for its end, and reads its profile.
    pub fn finish(mut self) -> Result<Profile> {
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "phpprof ended with {status}: {}",
            self.said()
        );
        let path = self.file("profile.pb.gz");
        let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(decode(&bytes, &DecodeLimits::default())?)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.file("said")).unwrap_or_default()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
