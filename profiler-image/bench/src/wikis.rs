//! Compares profiles of DokuWiki and MediaWiki under php-fpm with the calls in Xdebug's function
//! traces of the same pages.
//!
//! `XDEBUG` names the extension. A second php-fpm, with the same configuration and Xdebug, is asked
//! for the pages until each sampled stack has occurred or is explained, at most [`ROUNDS`] times;
//! from the second time on with other clients, which hold locks and fill caches. A stack that ends
//! in `[unstable]` must occur up to there.

mod calls;
mod explained;
mod held;
mod names;
mod traced;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use calls::CallsByPath;
use held::{ProfileParts, RunProfile, broken};
use nix::unistd::Pid;
use phpprof_bench::cells::BenchCell;
use phpprof_bench::target::BenchTarget;
use phpprof_bench::workload::{BenchWorkload, DOKUWIKI, MEDIAWIKI, WorkloadKind};
use traced::Traced;

use crate::running::pin;
use crate::sampled::{full_names, options, record};
use crate::{BenchArguments, CPUS};

const RATES: [u32; 2] = [999, 99];
/// Calls that depend on chance or on a cache's age differ between the rounds.
const ROUNDS: usize = 8;
/// A limit that is only printed.
const WANTED_UNSTABLE_PERCENT: f64 = 1.0;
const COLUMNS: &str = "php,application,rate_hz,samples,unstable,stacks,edges,unknown_edges,unknown_stacks,unknown_samples,unexplained_samples";

/// One row of the table.
struct WikiRow {
    /// The version of the sampled PHP.
    php: String,
    rate: u32,
    label: String,
    profile: RunProfile,
}

/// The rows that break their limits, in words.
pub fn run(asked: &BenchArguments) -> Result<Vec<String>> {
    let xdebug = std::env::var_os("XDEBUG").context("XDEBUG names no extension")?;
    let xdebug = PathBuf::from(xdebug);
    let mut csv = format!("{COLUMNS}\n");
    let mut failures = Vec::new();
    for workload in [DOKUWIKI, MEDIAWIKI] {
        let label = |rate| format!("{} {rate} Hz", workload.name);
        let rates = RATES.map(|rate| (rate, label(rate)));
        let rates = rates.into_iter().filter(|(_, label)| asked.wants(label));
        let rows = sample(workload, rates.collect(), asked.full)?;
        if rows.is_empty() {
            continue;
        }
        let calls = trace(workload, &rows, &xdebug)?;
        for row in &rows {
            let held = ProfileParts::of(&row.profile, &calls);
            print(workload, row, &held, &mut csv)?;
            let broken = broken(&row.profile, &held);
            if !broken.is_empty() {
                failures.push(format!("{}: {}", row.label, broken.join("; ")));
            }
        }
    }
    asked.write(&csv)?;
    Ok(failures)
}

/// Samples an application at these rates.
fn sample(workload: BenchWorkload, rates: Vec<(u32, String)>, full: bool) -> Result<Vec<WikiRow>> {
    if rates.is_empty() {
        return Ok(Vec::new());
    }
    let mut target = start(workload, 4)?;
    let master = target.pids().first().copied().context("no php-fpm runs")?;
    let duration = Duration::from_secs(if full { 120 } else { 10 });
    let mut rows = Vec::new();
    for (rate, label) in rates {
        let recording = record(&options(Pid::from_raw(master), rate, duration, false)?)?;
        target.check()?;
        let mut profile = RunProfile::default();
        for stack in full_names(&recording) {
            profile.add(&stack.names(), u64::try_from(stack.sum.samples)?);
        }
        rows.push(WikiRow {
            php: recording.facts.engine.version.to_string(),
            rate,
            label,
            profile,
        });
    }
    Ok(rows)
}

/// Starts an application of which one of so many workers is busy, on the CPU that the sampler does
/// not use.
pub fn start(workload: BenchWorkload, workers: usize) -> Result<BenchTarget> {
    let cell = BenchCell {
        workload,
        workers,
        busy: 1,
        rate: 0,
        mem: false,
    };
    // php-fpm and its clients inherit the CPU.
    pin(Pid::from_raw(0), CPUS[1])?;
    let target = BenchTarget::start(&cell);
    pin(Pid::from_raw(0), CPUS[0])?;
    target
}

/// Traces the application's pages until all sampled stacks are found.
fn trace(workload: BenchWorkload, rows: &[WikiRow], xdebug: &Path) -> Result<CallsByPath> {
    let WorkloadKind::Fpm(application) = workload.kind else {
        bail!("{} is no application", workload.name);
    };
    let traced = Traced::start(application, xdebug)?;
    let mut calls = CallsByPath::default();
    let mut others: Option<BenchTarget> = None;
    for round in 1..=ROUNDS {
        let read = traced.read(&mut calls)?;
        let unexplained = rows
            .iter()
            .map(|row| ProfileParts::of(&row.profile, &calls).unexplained())
            .sum::<u64>();
        println!(
            "{}, traced {round} times: {read} calls, {} call paths; {unexplained} samples are on none",
            workload.name,
            calls.len()
        );
        if unexplained == 0 {
            break;
        }
        match &mut others {
            Some(others) => others.check()?,
            None => others = Some(start(workload, 4)?),
        }
    }
    Ok(calls)
}

fn print(
    workload: BenchWorkload,
    row: &WikiRow,
    held: &ProfileParts,
    csv: &mut String,
) -> Result<()> {
    let WikiRow {
        php,
        rate,
        label,
        profile,
    } = row;
    let unstable = profile.unstable_percent();
    println!(
        "{label}: {} samples, {} stacks, {} edges; {} edges and {} stacks are not in the traces; {unstable:.2} % unstable{}",
        profile.samples,
        profile.stacks.len(),
        held.edges,
        held.unknown_edges,
        held.stacks(),
        if unstable < WANTED_UNSTABLE_PERCENT {
            String::new()
        } else {
            format!(", {WANTED_UNSTABLE_PERCENT} % wanted")
        }
    );
    for exception in &held.exceptions {
        println!("    {exception}");
    }
    for words in broken(profile, held) {
        println!("    BROKEN: {words}");
    }
    writeln!(
        csv,
        "{php},{},{rate},{},{},{},{},{},{},{},{}",
        workload.name,
        profile.samples,
        profile.unstable,
        profile.stacks.len(),
        held.edges,
        held.unknown_edges,
        held.stacks(),
        held.samples(),
        held.unexplained()
    )?;
    Ok(())
}
