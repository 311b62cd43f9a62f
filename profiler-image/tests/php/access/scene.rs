//! A PHP process and a sampler, each with the identity that a test chooses. It requires root,
//! setpriv and unshare.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use phpprof_testing::{Running, wait_for, wait_until};
use tempfile::TempDir;

use crate::programs;

/// Runs as long as a test may take.
const BUSY: &str = "<?php $end = time() + 60; while (time() < $end) { str_repeat('x', 1000); }";

/// A folder that everybody may use, with the tests' programs.
pub struct Scene {
    folder: TempDir,
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
    pub fn busy(&self, before: &str, php: impl AsRef<Path>) -> Result<Running> {
        let mut command = behind(before, php.as_ref());
        let target = quiet(command.arg(self.path("busy.php")))?;
        wait_until_busy(&target)?;
        Ok(target)
    }

    /// Records a process for a second, by a command such as `setpriv …`.
    pub fn record(&self, before: &str, pid: i32) -> Result<Said> {
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

/// Starts a process that says nothing.
pub fn quiet(command: &mut Command) -> Result<Running> {
    Running::start(command.stdout(Stdio::null()))
}

/// Waits until the process has used some CPU time: then the wrapper has become the program, which
/// has left the loader.
fn wait_until_busy(target: &Running) -> Result<()> {
    wait_until("work of the process", || Ok(cpu_ticks(target.pid())? >= 5))
}

/// The first child of a process, once it has changed to this user.
pub fn wait_for_child_of(parent: &Running, user: u32) -> Result<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children", pid = parent.pid());
    wait_for(&format!("child of user {user}"), || {
        let children = fs::read_to_string(&path)?;
        let Some(child) = children.split_ascii_whitespace().next() else {
            return Ok(None);
        };
        let status = fs::read_to_string(format!("/proc/{child}/status"))?;
        let is_of_user = status.contains(&format!("\nUid:\t{user}\t"));
        Ok(is_of_user.then_some(child.parse()?))
    })
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
fn cpu_ticks(pid: i32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no command in stat")?;
    let field = fields.split_ascii_whitespace().nth(11);
    Ok(field.context("stat is cut")?.parse()?)
}
