//! Programs that run: PHP as it was asked for, on a CPU of its own.
//!
//! Invariant: a target is ended when its [`Running`] is dropped.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::targets::Target;

/// How PHP runs the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine {
    pub opcache: bool,
    pub jit: &'static str,
}

/// A PHP to run targets with.
pub struct Php {
    /// The program and its first arguments.
    words: Vec<String>,
    /// `PHP_VERSION_ID`.
    pub version: u32,
    pub has_jit: bool,
}

impl Php {
    /// Asks a PHP what it is. Where an extension replaces `zend_execute_ex` or stands in the way otherwise, the JIT is off.
    pub fn ask(command: &str) -> Result<Self> {
        const QUESTION: &str = "echo PHP_VERSION_ID, ' ', (int) extension_loaded('xdebug');";
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let mut php = Self {
            words,
            version: 0,
            has_jit: false,
        };
        let output = php.command()?.args(["-r", QUESTION]).output();
        let output = output.with_context(|| format!("starting {command}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (version, has_xdebug) = said
            .split_once(' ')
            .with_context(|| format!("{command} has said {said:?}"))?;
        php.version = version.parse()?;
        php.has_jit = php.version >= 80_000 && has_xdebug == "0";
        Ok(php)
    }

    /// The command, in the folder of the targets.
    fn command(&self) -> Result<Command> {
        let (program, arguments) = self.words.split_first().context("no PHP is named")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("targets"));
        Ok(command)
    }
}

/// A target that runs; it is ended when this is dropped.
pub struct Running(Child);

impl Running {
    /// Starts a target on this CPU, and lets it get going.
    pub fn start(php: &Php, engine: Engine, target: &Target, cpu: usize) -> Result<Self> {
        let on = |on: bool| if on { "1" } else { "0" };
        let mut command = php.command()?;
        // Scripts younger than two seconds are otherwise not cached.
        command.args([
            "-d",
            &format!("opcache.enable_cli={}", on(engine.opcache)),
            "-d",
            "opcache.file_update_protection=0",
        ]);
        if engine.jit != "off" {
            command.args([
                "-d",
                "opcache.jit_buffer_size=64M",
                "-d",
                &format!("opcache.jit={}", engine.jit),
            ]);
        }
        command
            .arg(target.script)
            .arg(target.depth.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let child = command
            .spawn()
            .with_context(|| format!("starting {:?} {}", php.words, target.script))?;
        let running = Self(child);
        pin(running.pid()?, cpu)?;
        // Compiling and the first loops are not what is measured.
        std::thread::sleep(Duration::from_millis(300));
        Ok(running)
    }

    pub fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.0.id())?))
    }

    /// Ends the target. One that states its shares gives its turns: begin, middle and end, in nanoseconds of the monotonic
    /// clock.
    pub fn stop(&mut self, states_shares: bool) -> Result<Option<Vec<[u64; 3]>>> {
        kill(self.pid()?, Signal::SIGTERM)?;
        let mut said = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said)?;
        }
        self.0.wait()?;
        if !states_shares {
            return Ok(None);
        }
        let turns = serde_json::from_str(&said).context("the target has not stated its shares")?;
        Ok(Some(turns))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Binds a process to one CPU.
pub fn pin(pid: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(pid, &set).with_context(|| format!("binding {pid} to CPU {cpu}"))
}
