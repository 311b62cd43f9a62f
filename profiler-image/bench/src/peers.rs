//! Starts other profilers, and parses their output.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use phpprof::target::Scope;
use phpprof::target::discovery::Discovery;

use crate::cells::BenchCell;
use crate::target::BenchTarget;
use crate::workload::WorkloadKind;

/// What a profiler samples.
#[derive(Debug, Clone, Copy)]
pub struct OneProcess {
    /// Its PID.
    pub pid: i32,
    /// The address of its `executor_globals`.
    pub globals: u64,
}

impl OneProcess {
    /// The PHP with this PID.
    pub fn of(pid: i32) -> Result<Self> {
        Ok(Self {
            pid,
            globals: globals_of(vec![pid])?,
        })
    }
}

/// `phpspy` for one process.
#[must_use]
pub fn phpspy_of(
    program: &Path,
    process: OneProcess,
    rate: u32,
    out: &Path,
    seconds: u64,
) -> Command {
    let mut command = phpspy_command(program, rate, out, seconds);
    command.args(["-p", &process.pid.to_string()]);
    command.args(["-x", &format!("{:x}", process.globals)]);
    command
}

fn phpspy_command(program: &Path, rate: u32, out: &Path, seconds: u64) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-V", "82", "-H", &rate.to_string()])
        .args(["-i", &(seconds * 1000).to_string(), "-o"])
        .arg(out);
    command
}

/// `phpspy`: one process by its PID, several by a pattern, with a thread for each.
pub fn phpspy(
    program: &Path,
    cell: &BenchCell,
    target: &BenchTarget,
    out: &Path,
    seconds: u64,
) -> Result<Command> {
    if cell.workers == 1 {
        let process = OneProcess::of(only(target)?)?;
        return Ok(phpspy_of(program, process, cell.rate, out, seconds));
    }
    let mut command = phpspy_command(program, cell.rate, out, seconds);
    let threads = cell.workers.to_string();
    // A pattern that its own command line does not match.
    let pattern = target.mark.replacen("phpprof", "[p]hpprof", 1);
    command.args(["-T", &threads, "-J", "m", "-b", "65536"]);
    command.args(["-P", &format!("-f {pattern}")]);
    if matches!(cell.workload.kind, WorkloadKind::Fpm(_)) {
        command.args(["-x", &format!("{:x}", executor_globals(target)?)]);
    }
    Ok(command)
}

/// `pfp` for one process. It does not find the version and the globals of Debian's 8.2 by itself.
#[must_use]
pub fn pfp_of(program: &Path, process: OneProcess, rate: u32, out: &Path, seconds: u64) -> Command {
    let mut command = pfp_command(program, rate, out, seconds);
    command.args(["-p", &process.pid.to_string()]);
    command.args(["--executor-globals", &format!("0x{:x}", process.globals)]);
    command
}

fn pfp_command(program: &Path, rate: u32, out: &Path, seconds: u64) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-H", &rate.to_string(), "-d", &seconds.to_string()])
        .args(["-f", "stacks", "--php-version", "8.2", "-o"])
        .arg(out);
    command
}

/// `pfp`: the same as [`phpspy`].
pub fn pfp(
    program: &Path,
    cell: &BenchCell,
    target: &BenchTarget,
    out: &Path,
    seconds: u64,
) -> Result<Command> {
    if cell.workers == 1 {
        let process = OneProcess::of(only(target)?)?;
        return Ok(pfp_of(program, process, cell.rate, out, seconds));
    }
    let mut command = pfp_command(program, cell.rate, out, seconds);
    command.args(["-P", "php", "--cmdline", &target.mark]);
    if matches!(cell.workload.kind, WorkloadKind::Fpm(_)) {
        command.args([
            "--executor-globals",
            &format!("0x{:x}", executor_globals(target)?),
        ]);
    }
    Ok(command)
}

/// The stacks that a peer has printed, root first: a line for each frame, `NUMBER FUNCTION
/// FILE:LINE`, leaf first, and an empty line after each stack.
#[must_use]
pub fn stacks(printed: &str) -> Vec<Vec<String>> {
    let (mut stacks, mut stack) = (Vec::new(), Vec::new());
    for line in printed.lines().chain([""]) {
        let mut words = line.split(' ');
        let number = words.next().unwrap_or("");
        match words.next() {
            Some(name) if number.parse::<u32>().is_ok() => stack.push(name.to_owned()),
            _ if line.is_empty() && !stack.is_empty() => {
                stack.reverse();
                stacks.push(std::mem::take(&mut stack));
            }
            // A comment.
            _ => {}
        }
    }
    stacks
}

fn only(target: &BenchTarget) -> Result<i32> {
    target.pids().first().copied().context("no target")
}

/// The address of the target's globals; it is the same in all workers that one process has forked.
pub fn executor_globals(target: &BenchTarget) -> Result<u64> {
    globals_of(target.pids())
}

fn globals_of(pids: Vec<i32>) -> Result<u64> {
    let mut discovery = Discovery::new(Scope::Pids(pids));
    let found = discovery.scan().new;
    let process = found.first().context("no PHP was found")?;
    Ok(process.engine.executor_globals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_both_peers_are_understood() {
        let printed = "0 usleep <internal>:-1\n1 A::b /x.php:3\n2 <main> /x.php:9\n# comment\n\n0 f /x.php:1\n\n";
        assert_eq!(
            stacks(printed),
            [vec!["<main>", "A::b", "usleep"], vec!["f"]]
        );
    }
}
