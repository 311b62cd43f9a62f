//! Rows in which the target competes for its CPUs with programs that always run, and with the
//! sampler.
//!
//! Invariant: the programs end when the [`Crowd`] is dropped.

use std::process::{Child, Command};

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::CPUS;

/// What is different in a row.
#[derive(Debug, Clone, Copy)]
pub struct CrowdedRow {
    /// The average length of a wait. The target works for a millisecond.
    pub pause_microseconds: u32,
    /// How many other programs always run.
    pub programs: usize,
    pub cpus: SharedCpus,
}

/// Where the target and the other programs may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedCpus {
    /// On the sampler's CPU, and on another one.
    Both,
    /// On the sampler's CPU only, so that the sampler displaces the target in each sample.
    OfSampler,
}

impl SharedCpus {
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::OfSampler => "sampler's",
        }
    }

    fn set(self) -> Result<CpuSet> {
        let mut set = CpuSet::new();
        let cpus = match self {
            Self::Both => &CPUS[..],
            Self::OfSampler => &CPUS[..1],
        };
        for &cpu in cpus {
            set.set(cpu)?;
        }
        Ok(set)
    }
}

impl CrowdedRow {
    pub fn label(&self) -> String {
        format!(
            "pause {} us beside {} on {}",
            self.pause_microseconds,
            self.programs,
            self.cpus.name()
        )
    }
}

/// The rows, with their rates in hertz and lengths in seconds: in the short form one.
pub fn crowded_rows(full: bool) -> impl Iterator<Item = (CrowdedRow, u32, f64)> {
    let row = |pause_microseconds, programs, cpus| CrowdedRow {
        pause_microseconds,
        programs,
        cpus,
    };
    let mut rows = Vec::new();
    if full {
        for pause in [200, 1000, 5000] {
            for programs in [0, 2, 20] {
                // The target has a tenth of the CPU time beside many.
                let seconds = if programs > 2 { 60.0 } else { 20.0 };
                rows.push((row(pause, programs, SharedCpus::Both), 999, seconds));
            }
        }
        rows.push((row(200, 0, SharedCpus::OfSampler), 999, 20.0));
        rows.push((row(1000, 2, SharedCpus::OfSampler), 999, 60.0));
        rows.push((row(200, 2, SharedCpus::Both), 99, 120.0));
    } else {
        rows.push((row(200, 4, SharedCpus::Both), 999, 6.0));
    }
    rows.into_iter()
}

/// Programs that always run.
pub struct Crowd(Vec<Child>);

impl Crowd {
    /// Starts the programs, and lets the target run where they do.
    pub fn start(row: CrowdedRow, target: Pid) -> Result<Self> {
        let set = row.cpus.set()?;
        sched_setaffinity(target, &set).context("placing the target")?;
        let mut crowd = Self(Vec::new());
        for _ in 0..row.programs {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            let child = command.spawn().context("starting a busy program")?;
            let pid = Pid::from_raw(i32::try_from(child.id())?);
            crowd.0.push(child);
            sched_setaffinity(pid, &set).context("placing a busy program")?;
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
