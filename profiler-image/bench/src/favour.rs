//! Checks that no function gets another one's time because that is short, or because its call is
//! hard to prove.
//!
//! Snapshots of the stopped process, in the same run, give the true shares. `[unstable]` counts for
//! the functions that were proven below it.

mod rows;
mod shares;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::stopped::{StoppedStack, Stopper};
use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use rows::{ShareRow, rows};
use shares::{FunctionShare, ShareConditions, broken};

use crate::running::RunningTarget;
use crate::sampled::{UNSTABLE, WorkerStack, options, record, stacks};
use crate::{BenchArguments, CPUS};

const COLUMNS: &str =
    "target,mode,function,snapshots,samples,true_before_percent,true_after_percent,sampled_percent";
const RATE_HZ: u32 = 999;
/// The largest difference of a sampled share, in percentage points.
const TOLERANCE: f64 = 1.0;
/// The same for generators and fibers. If one has been left when its frames are read, after the
/// pointer to them, nothing tells its caller.
const BESIDE_THE_PAGE: f64 = 6.0;
/// One of this many stops may be within the engine's way into a generator or fiber, where the stack
/// does not hold together.
const NOT_WHOLE: usize = 50;
/// How many broken limits of a row are printed; the results have all of them.
const SHOWN: usize = 6;

struct FavourResult {
    how: ShareConditions,
    shares: Vec<FunctionShare>,
    unstable_percent: f64,
}

/// The rows that break their limits, in words.
pub fn run(asked: &BenchArguments) -> Result<Vec<String>> {
    let mut csv = format!("{COLUMNS}\n");
    println!(
        "{:<28} {:>9} {:>8} {:>9}  {:<18} {:>11} {:>10} {:>8}",
        "shares of",
        "snapshots",
        "samples",
        "unstable",
        "farthest off",
        "true before",
        "true after",
        "sampled"
    );
    let mut failures = Vec::new();
    for row in rows(asked.full)
        .iter()
        .filter(|row| asked.php.version >= row.since)
        .filter(|row| asked.wants(&row.label()))
    {
        let outcome = measure(asked, row)?;
        print(row, &outcome, &mut csv)?;
        let broken = broken(outcome.how, &outcome.shares);
        for words in broken.iter().take(SHOWN) {
            println!("    BROKEN: {words}");
        }
        if broken.len() > SHOWN {
            println!("    BROKEN: {} more", broken.len() - SHOWN);
        }
        if let Some(first) = broken.first() {
            let of = broken.len();
            failures.push(format!("{}: {first}; {of} in all", row.label()));
        }
    }
    asked.write(&csv)?;
    Ok(failures)
}

fn measure(asked: &BenchArguments, row: &ShareRow) -> Result<FavourResult> {
    let (snapshots, seconds) = if asked.full { (20_000, 60) } else { (4_000, 3) };
    let target = RunningTarget::script(&asked.php, row.script, "", CPUS[1])?;
    let pid = target.pid()?;
    // The machine gets faster and slower meanwhile, and a function's share with it, so the samples
    // are between two halves of the snapshots.
    let before = true_shares(pid, row, snapshots / 2)?;
    let options = options(pid, RATE_HZ, Duration::from_secs(seconds), row.remote)?;
    let stacks = stacks(&record(&options).with_context(|| row.label())?);
    let after = true_shares(pid, row, snapshots / 2)?;
    let (sampled, unstable_percent) = sampled(&stacks);
    let share = |name: &String| FunctionShare {
        name: name.clone(),
        true_percents: [&before, &after].map(|half| half.get(name).copied().unwrap_or(0.0)),
        sampled_percent: sampled.get(name.as_str()).copied().unwrap_or(0.0),
    };
    Ok(FavourResult {
        how: ShareConditions {
            snapshots,
            tolerance: if row.is_beside_the_page {
                BESIDE_THE_PAGE
            } else {
                TOLERANCE
            },
            samples: stacks.iter().map(|stack| stack.sum.samples).sum(),
            full: asked.full,
        },
        shares: row.functions.iter().map(share).collect(),
        unstable_percent,
    })
}

/// The share of each function's time in snapshots of the stopped process, in percent.
fn true_shares(pid: Pid, row: &ShareRow, snapshots: usize) -> Result<HashMap<String, f64>> {
    let mut stopper = Stopper::of(pid)?;
    let mut percents = HashMap::new();
    let (mut whole, mut not_whole) = (0_u32, 0);
    for _ in 0..snapshots {
        // A pause of random length, so that no program is in step with the snapshots.
        let digits = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
        std::thread::sleep(Duration::from_micros(100 + u64::from(digits % 400)));
        let names = match stopper.stack().with_context(|| row.label())? {
            StoppedStack::Names(names) => names,
            StoppedStack::Torn => {
                not_whole += 1;
                continue;
            }
            StoppedStack::Moved => continue,
        };
        whole += 1;
        for name in names {
            *percents.entry(name).or_default() += 1.0;
        }
    }
    for percent in percents.values_mut() {
        *percent *= 100.0 / f64::from(whole).max(1.0);
    }
    let may_be = if row.is_beside_the_page {
        snapshots / NOT_WHOLE
    } else {
        0
    };
    ensure!(
        not_whole <= may_be,
        "{}: {not_whole} of {snapshots} stopped stacks do not hold together, {may_be} may",
        row.label()
    );
    Ok(percents)
}

/// The share of each function's time, and of the samples with an unproven part, in percent.
fn sampled(stacks: &[WorkerStack]) -> (HashMap<&str, f64>, f64) {
    let all: i64 = stacks.iter().map(|stack| stack.sum.wall_nanoseconds).sum();
    let mut percents = HashMap::new();
    for stack in stacks {
        let percent = 100.0 * stack.sum.wall_nanoseconds as f64 / (all as f64).max(1.0);
        for name in stack.names() {
            *percents.entry(name).or_default() += percent;
        }
    }
    let unstable = percents.get(UNSTABLE).copied().unwrap_or(0.0);
    (percents, unstable)
}

fn print(row: &ShareRow, outcome: &FavourResult, csv: &mut String) -> Result<()> {
    let FavourResult {
        how,
        shares,
        unstable_percent,
    } = outcome;
    let label = row.label();
    let farthest = shares
        .iter()
        .max_by(|one, other| one.off().total_cmp(&other.off()));
    let farthest = farthest.context("nothing to compare")?;
    let [before, after] = farthest.true_percents;
    println!(
        "{label:<28} {:>9} {:>8} {unstable_percent:>8.3}%  {:<18} {before:>10.2}% {after:>9.2}% {:>7.2}%",
        how.snapshots, how.samples, farthest.name, farthest.sampled_percent
    );
    for FunctionShare {
        name,
        true_percents: [before, after],
        sampled_percent,
    } in shares
    {
        writeln!(
            csv,
            "{},{},{name},{},{},{before:.3},{after:.3},{sampled_percent:.3}",
            row.script,
            row.mode(),
            how.snapshots,
            how.samples
        )?;
    }
    Ok(())
}
