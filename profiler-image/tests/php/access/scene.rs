//! A PHP process and a sampler, each with the identity that a test chooses. It requires root,
//! setpriv and unshare.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::programs;

/// Runs as long as a test may take.
const BUSY: &str = "<?php $end = time() + 60; while (time() < $end) { str_repeat('x', 1000); }";

/// A folder that everybody may use, with the tests' programs.
pub struct Scene {
    folder: TempDir,
}

/// A process that ends with the test, and its children with it.
pub struct Target {
    child: Child,
    pub pid: u32,
}

/// The output of a sampler.
#[derive(Debug)]
pub struct Said {
    pub exit_code: Option<i32>,
    pub receipt: String,
    pub stderr: String,
}

impl Scene {
    pub fn new() -> Result<Self> {
        let mut builder = tempfile::Builder::new();
        let folder = builder.prefix("phpprof-access-").tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        let scene = Self { folder };
        scene.copy(env!("CARGO_BIN_EXE_phpprof"), "phpprof")?;
        fs::write(scene.path("busy.php"), BUSY)?;
        Ok(scene)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn copy(&self, from: impl AsRef<Path>, name: &str) -> Result<PathBuf> {
        let to = self.path(name);
        programs::copy(from, &to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        Ok(to)
    }

    /// Compiles a file next to this one.
    pub fn compile(&self, name: &str, flags: &[&str]) -> Result<PathBuf> {
        let source = format!("{}/tests/php/access/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let to = self.path(name);
        run(Command::new("cc")
            .args(flags)
            .arg("-o")
            .arg(&to)
            .arg(source))?;
        Ok(to)
    }

    /// Starts the busy script with this PHP, by a command such as `setpriv …`.
    pub fn busy(&self, before: &str, php: impl AsRef<Path>) -> Result<Target> {
        let mut command = behind(before, php.as_ref());
        let target = Target::start(command.arg(self.path("busy.php")))?;
        target.wait_until_busy()?;
        Ok(target)
    }

    /// Records a process for a second, by a command such as `setpriv …`.
    pub fn record(&self, before: &str, pid: u32) -> Result<Said> {
        let (receipt, output) = (self.path("receipt"), self.path("out.pb.gz"));
        let _ = fs::remove_file(&receipt);
        let _ = fs::remove_file(&output);
        let ended = behind(before, &self.path("phpprof"))
            .args(["record", "-d1", "--pid", &pid.to_string(), "--receipt"])
            .args([&receipt, Path::new("-o"), &output])
            .output()?;
        Ok(Said {
            exit_code: ended.status.code(),
            receipt: fs::read_to_string(&receipt).unwrap_or_default(),
            stderr: String::from_utf8(ended.stderr)?,
        })
    }
}

impl Target {
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdout(Stdio::null()).spawn()?;
        let pid = child.id();
        Ok(Self { child, pid })
    }

    /// Waits until the process has used some CPU time: then the wrapper has become the program,
    /// which has left the loader.
    pub fn wait_until_busy(&self) -> Result<()> {
        let began = Instant::now();
        while cpu_ticks(self.pid)? < 5 {
            ensure!(
                began.elapsed() < Duration::from_secs(10),
                "process {} does nothing",
                self.pid
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The first child, once it has changed to this user.
    pub fn wait_for_child_of(&self, user: u32) -> Result<u32> {
        let began = Instant::now();
        let path = format!("/proc/{pid}/task/{pid}/children", pid = self.pid);
        while began.elapsed() < Duration::from_secs(10) {
            if let Some(child) = fs::read_to_string(&path)?.split_ascii_whitespace().next() {
                let status = fs::read_to_string(format!("/proc/{child}/status"))?;
                if status.contains(&format!("\nUid:\t{user}\t")) {
                    return Ok(child.parse()?);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("process {} has no child of user {user}", self.pid)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // php-fpm ends its workers at SIGTERM; a process that ignores that is killed.
        let _ = Command::new("kill").arg(self.pid.to_string()).status();
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < Duration::from_secs(2)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that is started by a command such as `setpriv …`.
fn behind(before: &str, program: &Path) -> Command {
    let mut words = before.split_ascii_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            command
        }
    }
}

/// Runs a program that must succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let ended = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        ended.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&ended.stderr)
    );
    Ok(())
}

/// User time, field 14 of `/proc/PID/stat`.
fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no command in stat")?;
    let field = fields.split_ascii_whitespace().nth(11);
    Ok(field.context("stat is cut")?.parse()?)
}
