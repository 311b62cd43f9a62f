//! Samples a process in a process of its own, which can be refused a system call:
//! `truth balance --sample PID RATE SECONDS MODE`.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;
use phpprof_bench::refused::refuse_process_vm_readv;

use super::profile::ShareProfile;
use crate::sampled::{full_names, options, record, short};

pub const USAGE: &str = "usage: truth balance --sample PID RATE SECONDS call|mem|remote";

/// A way to read the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadBy {
    /// As usual.
    Call,
    /// By `/proc/PID/mem`.
    Mem,
    /// Without quiescent reads: the reader may not use the target's CPU.
    Remote,
}

impl ReadBy {
    fn word(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Mem => "mem",
            Self::Remote => "remote",
        }
    }
}

/// Samples, and prints the stacks: names, count, and nanoseconds of wall time.
pub fn run(words: &[String]) -> Result<()> {
    let [pid, rate, seconds, reads] = words else {
        bail!(USAGE);
    };
    if reads == ReadBy::Mem.word() {
        refuse_process_vm_readv()?;
    }
    let options = options(
        Pid::from_raw(pid.parse().context(USAGE)?),
        rate.parse().context(USAGE)?,
        Duration::from_secs(seconds.parse().context(USAGE)?),
        reads == ReadBy::Remote.word(),
    )?;
    let stacks: Vec<(Vec<String>, i64, i64)> = full_names(&record(&options)?)
        .iter()
        .map(|stack| {
            let names = stack.names().into_iter().map(str::to_owned).collect();
            (names, stack.sum.samples, stack.sum.wall_nanoseconds)
        })
        .collect();
    println!("{}", serde_json::to_string(&stacks)?);
    Ok(())
}

/// The samples of a process and its children.
pub fn sample(
    pid: Pid,
    rate: u32,
    seconds: u64,
    reads: ReadBy,
    is_short: bool,
) -> Result<ShareProfile> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["balance", "--sample", &pid.to_string(), &rate.to_string()])
        .args([&seconds.to_string(), reads.word()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().context("starting the sampler")?;
    ensure!(
        output.status.success(),
        "the sampler ended with {}",
        output.status
    );
    let stacks: Vec<(Vec<String>, u64, f64)> =
        serde_json::from_slice(&output.stdout).context("the sampler's stacks are JSON")?;
    let mut profile = ShareProfile::default();
    for (names, count, weight) in stacks {
        let name = |name: String| if is_short { short(&name) } else { name };
        profile.add(names.into_iter().map(name).collect(), count, weight);
    }
    Ok(profile)
}
