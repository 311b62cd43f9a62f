//! Processes that a test starts. Invariant: each ends with its value, and its children with it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::wait::wait_for;

/// php-fpm ends its workers at SIGTERM. This long a process may take for that.
const TAKES: Duration = Duration::from_secs(2);

/// A process that is ended with its test, whatever comes of the test.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    /// Starts it without standard input.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self(
            child.with_context(|| format!("starting {command:?}"))?,
        ))
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        // The kernel's numbers are at most 2^22 (`PID_MAX_LIMIT`).
        i32::try_from(self.0.id()).unwrap_or(i32::MAX)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The kernel's.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid()), signal)?)
    }

    /// Its exit code, once it has ended; none if a signal has ended it.
    ///
    /// # Errors
    /// If it does not end.
    pub fn exit_code(&mut self) -> Result<Option<i32>> {
        let status = wait_for("end of the process", || Ok(self.0.try_wait()?))?;
        Ok(status.code())
    }

    fn children(&self) -> Vec<i32> {
        let pid = self.pid();
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        list.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if has_ended(&mut self.0) {
            return;
        }
        let _ = self.signal(Signal::SIGTERM);
        // One that is stopped gets it now.
        let _ = self.signal(Signal::SIGCONT);
        if ends_soon(&mut self.0) {
            return;
        }
        let children = self.children();
        let _ = self.0.kill();
        let _ = self.0.wait();
        for child in children {
            let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
        }
    }
}

fn has_ended(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// Whether a process ends as it was asked to.
fn ends_soon(child: &mut Child) -> bool {
    let began = Instant::now();
    while !has_ended(child) && began.elapsed() < TAKES {
        std::thread::sleep(Duration::from_millis(5));
    }
    has_ended(child)
}

/// A process with a group of its own, for servers whose workers outlive the first process.
#[derive(Debug)]
pub struct RunningGroup(Child);

impl RunningGroup {
    /// Starts it without standard input.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).process_group(0).spawn();
        Ok(Self(
            child.with_context(|| format!("starting {command:?}"))?,
        ))
    }

    /// The number of the first process, which is the group's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How the first process has ended, if it has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for RunningGroup {
    fn drop(&mut self) {
        let Ok(group) = i32::try_from(self.0.id()).map(Pid::from_raw) else {
            return;
        };
        // RoadRunner ends its workers, which are in groups of their own, at SIGTERM.
        let _ = killpg(group, Signal::SIGTERM);
        ends_soon(&mut self.0);
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_there(pid: i32) -> bool {
        kill(Pid::from_raw(pid), None).is_ok()
    }

    #[test]
    fn running_ends_with_its_value() -> Result<()> {
        let running = Running::start(Command::new("sleep").arg("600"))?;
        let pid = running.pid();
        assert!(is_there(pid));
        running.signal(Signal::SIGSTOP)?;
        drop(running);
        assert!(!is_there(pid));
        Ok(())
    }

    #[test]
    fn running_group_ends_with_all_its_processes() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("phpprof-group-{}", std::process::id()));
        let script = format!(
            "trap '' TERM; sleep 600 & echo $! >{0}.part; mv {0}.part {0}; wait",
            folder.display()
        );
        let group = RunningGroup::start(Command::new("sh").args(["-c", &script]))?;
        let child = wait_for("child", || Ok(fs::read_to_string(&folder).ok()))?;
        let child = child.trim().parse()?;
        fs::remove_file(&folder)?;
        drop(group);
        // Whoever adopts it reaps it a moment later.
        crate::wait_until("end of the child", || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            Ok(!is_there(child) || stat.contains(") Z "))
        })
    }

    #[test]
    fn exit_code_is_that_of_the_program() -> Result<()> {
        let mut running = Running::start(Command::new("sh").args(["-c", "exit 7"]))?;
        assert_eq!(running.exit_code()?, Some(7));
        Ok(())
    }
}
