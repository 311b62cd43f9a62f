//! Runs PHP programs on a CPU of their own.
//!
//! Invariant: a target is ended when its [`RunningTarget`] is dropped.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::targets::KnownProgram;

/// How PHP runs the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhpMode {
    pub opcache: bool,
    pub jit: &'static str,
}

/// A PHP to run targets with.
pub struct PhpProgram {
    /// The program and its first arguments.
    words: Vec<String>,
    /// `PHP_VERSION_ID`.
    pub version: u32,
    pub has_jit: bool,
    /// It has threads (ZTS).
    pub is_thread_safe: bool,
}

impl PhpProgram {
    /// Asks a PHP for its version and extensions. The JIT is off if an extension replaces
    /// `zend_execute_ex` or is otherwise incompatible.
    pub fn ask(command: &str) -> Result<Self> {
        const QUESTION: &str =
            "echo PHP_VERSION_ID, ' ', (int) extension_loaded('xdebug'), ' ', PHP_ZTS;";
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let mut php = Self {
            words,
            version: 0,
            has_jit: false,
            is_thread_safe: false,
        };
        let output = php.command()?.args(["-r", QUESTION]).output();
        let output = output.with_context(|| format!("starting {command}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let words: Vec<&str> = said.split(' ').collect();
        let [version, has_xdebug, is_thread_safe] = words.as_slice() else {
            bail!("{command} has said {said:?}");
        };
        php.version = version.parse()?;
        php.has_jit = php.version >= 80_000 && *has_xdebug == "0";
        php.is_thread_safe = *is_thread_safe == "1";
        Ok(php)
    }

    /// Whether it is the one that most results are of: 8.2 without threads.
    pub fn is_usual(&self) -> bool {
        self.version / 100 == 802 && !self.is_thread_safe
    }

    /// Its version, and whether it has threads: `8.2`, `8.2 zts`.
    pub fn label(&self) -> String {
        let (major, minor) = (self.version / 10_000, self.version / 100 % 100);
        let threads = if self.is_thread_safe { " zts" } else { "" };
        format!("{major}.{minor}{threads}")
    }

    /// The command, in the folder of the targets.
    fn command(&self) -> Result<Command> {
        let (program, arguments) = self.words.split_first().context("no PHP is named")?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(targets());
        Ok(command)
    }
}

/// The folder of the targets.
pub fn targets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("targets")
}

/// A running target, which is ended when this is dropped.
pub struct RunningTarget(Child);

impl RunningTarget {
    /// Starts a target on this CPU, and waits a moment.
    pub fn start(
        php: &PhpProgram,
        engine: PhpMode,
        target: &KnownProgram,
        cpu: usize,
    ) -> Result<Self> {
        let mut command = php.command()?;
        let on = if engine.opcache { "1" } else { "0" };
        // Otherwise scripts younger than two seconds are not cached.
        command.args(["-d", &format!("opcache.enable_cli={on}")]);
        command.args(["-d", "opcache.file_update_protection=0"]);
        if engine.jit != "off" {
            command.args(["-d", "opcache.jit_buffer_size=64M"]);
            command.args(["-d", &format!("opcache.jit={}", engine.jit)]);
        }
        command.arg(target.script).arg(target.depth.to_string());
        Self::spawn(command, cpu).with_context(|| format!("target {}", target.script))
    }

    /// Starts a script with an argument, on this CPU, and waits a moment.
    pub fn script(php: &PhpProgram, script: &str, argument: &str, cpu: usize) -> Result<Self> {
        let mut command = php.command()?;
        command.args([script, argument]);
        Self::spawn(command, cpu).with_context(|| format!("target {script}"))
    }

    /// Starts a script in another folder, on this CPU, and waits a moment. It goes before other
    /// programs, if this user may do that: while it waits for a CPU, it is always at one place.
    pub fn script_in(
        php: &PhpProgram,
        options: &[String],
        folder: &Path,
        script: &str,
        cpu: usize,
    ) -> Result<Self> {
        let mut command = Command::new("nice");
        command.args(["-n", "-5"]).args(&php.words);
        command.current_dir(folder).args(options).arg(script);
        Self::spawn(command, cpu).with_context(|| format!("target {script}"))
    }

    /// Starts a command. Its first thread is bound to this CPU, and so are those that it starts
    /// from then on.
    pub fn spawn(mut command: Command, cpu: usize) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let running = Self(child);
        pin(running.pid()?, cpu)?;
        // Compiling and the first loops are not measured.
        std::thread::sleep(Duration::from_millis(300));
        Ok(running)
    }

    pub fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.0.id())?))
    }

    /// Ends the target. A target that reports its shares returns its turns: begin, middle and end,
    /// in nanoseconds of the monotonic clock.
    pub fn stop(&mut self, states_shares: bool) -> Result<Option<Vec<[u64; 3]>>> {
        kill(self.pid()?, Signal::SIGTERM)?;
        let said = self.finish()?;
        if !states_shares {
            return Ok(None);
        }
        let turns = serde_json::from_str(&said).context("the target has not stated its shares")?;
        Ok(Some(turns))
    }

    /// The output of a target that ends by itself.
    pub fn finish(&mut self) -> Result<String> {
        let mut said = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said)?;
        }
        self.0.wait()?;
        Ok(said)
    }
}

impl Drop for RunningTarget {
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
