//! Compares sampled CPU time with that of programs that work and wait in turn and measure it
//! themselves, in processes and in threads.
//!
//! The threads are FrankenPHP's: `FRANKENPHP` names the program, and `FFI` the extension by which
//! its PHP reads a thread's clock; without them there are no such rows.

mod account;
mod crowd;
mod partner;
mod program;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use account::{FUNCTIONS, MIN_SLICE_MILLISECONDS, ThreadAccount, ThreadRecord, sampled};
use anyhow::{Context, Result};
use crowd::{Crowd, CrowdedRow, crowded_rows};
use nix::unistd::Pid;
use partner::{Partner, Wait};
use program::{CpuProgram, ThreadedServer};

use crate::BenchArguments;
use crate::running::PhpProgram;
use crate::sampled::{options, record, stacks, time};

const COLUMNS: &str = "php,workers,wait,slice_ms,pause_us,beside,cpus,rate_hz,samples,delay_percent,true_cpu_ms,sampled_cpu_ms,chance_points,true_counting,counting,true_hashing,hashing,true_waiting,waiting";
/// How long a target runs before and after it is sampled.
const AROUND: Duration = Duration::from_millis(1000);

/// One row of the table.
#[derive(Debug, Clone, Copy)]
struct CpuRow {
    threads: bool,
    wait: Wait,
    slice_milliseconds: u32,
    rate_hz: u32,
    seconds: f64,
    /// Beside other programs, with pauses of another length.
    crowded: Option<CrowdedRow>,
}

/// The rows that break their limits, in words; in the short form those that break them twice,
/// because the machine may be busy.
pub fn run(asked: &BenchArguments) -> Result<Vec<String>> {
    let server = ThreadedServer::from_environment();
    if server.is_none() {
        println!("no threads: FRANKENPHP and FFI name no programs");
    }
    let mut csv = format!("{COLUMNS}\n");
    println!(
        "{:<34} {:>7} {:>6} {:>15} {:>8} {:>7} {:>13} {:>13} {:>13}",
        "CPU time of",
        "samples",
        "delay",
        "ms: true",
        "sampled",
        "chance",
        "counting, %",
        "hashing, %",
        "waiting, %"
    );
    let mut failures = Vec::new();
    for row in rows(asked.full)
        .iter()
        .filter(|row| asked.wants(&label(row)))
        .filter(|row| server.is_some() || !row.threads)
    {
        let mut broken = judge(asked, server.as_ref(), row, &mut csv)?;
        if !broken.is_empty() && !asked.full {
            println!("    once more");
            broken = judge(asked, server.as_ref(), row, &mut csv)?;
        }
        if !broken.is_empty() {
            failures.push(format!("{}: {}", label(row), broken.join("; ")));
        }
    }
    asked.write(&csv)?;
    Ok(failures)
}

/// Measures a row, prints it, and returns the limits that it breaks.
fn judge(
    asked: &BenchArguments,
    server: Option<&ThreadedServer>,
    row: &CpuRow,
    csv: &mut String,
) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let measured = measure(&asked.php, server, row)?;
    for outcome in measured.threads {
        print(row, &measured.php, &outcome, csv)?;
        let broken = match row.crowded {
            Some(_) => outcome.broken_beside(1e9 / f64::from(row.rate_hz)),
            None => outcome.broken(row.slice_milliseconds, asked.full),
        };
        for words in &broken {
            println!("    BROKEN: {words}");
        }
        if broken.is_empty() && outcome.is_busy() && row.crowded.is_none() {
            println!("    the machine is busy: shares are not judged");
        }
        all.extend(broken);
    }
    Ok(all)
}

/// All rows, or those of the short form: each wait once, threads that take turns, and the low rate.
fn rows(full: bool) -> Vec<CpuRow> {
    let row = |threads, wait, slice_milliseconds, rate_hz, seconds| CpuRow {
        threads,
        wait,
        slice_milliseconds,
        rate_hz,
        seconds,
        crowded: None,
    };
    let crowded = crowded_rows(full).map(|(crowded, rate_hz, seconds)| CpuRow {
        crowded: Some(crowded),
        ..row(false, Wait::Usleep, 1, rate_hz, seconds)
    });
    if !full {
        let mut rows = vec![
            row(false, Wait::Usleep, 5, 999, 2.0),
            row(false, Wait::Pipe, 20, 999, 2.0),
            row(false, Wait::Socket, 5, 999, 2.0),
            row(false, Wait::Flock, 20, 999, 2.0),
            row(false, Wait::Usleep, 20, 99, 8.0),
            row(true, Wait::Turns, 5, 999, 2.0),
        ];
        rows.extend(crowded);
        return rows;
    }
    let mut rows: Vec<_> = crowded.collect();
    for threads in [false, true] {
        for wait in [
            Wait::Usleep,
            Wait::Pipe,
            Wait::Socket,
            Wait::Flock,
            Wait::Turns,
        ] {
            // It takes two threads to take turns.
            for slice in [1, 5, 20, 100]
                .into_iter()
                .filter(|_| threads || wait != Wait::Turns)
            {
                // Rows that are only printed are short. The fewer samples, the longer: long enough
                // to keep chance within the limits.
                let long = slice >= MIN_SLICE_MILLISECONDS;
                let seconds = if long { [15.0, 45.0] } else { [5.0, 15.0] };
                rows.push(row(threads, wait, slice, 999, seconds[0]));
                rows.push(row(threads, wait, slice, 99, seconds[1]));
            }
        }
    }
    rows
}

/// What was measured of a row.
struct MeasuredRow {
    /// The version of the sampled PHP, which is not that of the command if it is FrankenPHP's.
    php: String,
    threads: Vec<ThreadAccount>,
}

fn measure(php: &PhpProgram, server: Option<&ThreadedServer>, row: &CpuRow) -> Result<MeasuredRow> {
    let partner = Partner::start(row.wait)?;
    let sampling = Duration::from_secs_f64(row.seconds);
    let mut asked = format!(
        "wait={}&slice={}&seconds={}&path={}",
        row.wait.name(),
        row.slice_milliseconds,
        (sampling + AROUND).as_secs_f64(),
        partner.path
    );
    if let Some(crowded) = row.crowded {
        write!(asked, "&pause={}", crowded.pause_microseconds)?;
    }
    let program = match server.filter(|_| row.threads) {
        None => CpuProgram::process(php, &asked)?,
        Some(server) if row.wait == Wait::Turns => {
            CpuProgram::threads(server, &[asked.clone(), asked + "&second=1"])?
        }
        Some(server) => CpuProgram::threads(server, &[asked])?,
    };
    let crowd = row
        .crowded
        .map(|crowded| Crowd::start(crowded, program.pid()?));
    let _crowd = crowd.transpose()?;
    let before = delays(program.pid()?)?;
    let options = options(program.pid()?, row.rate_hz, sampling, false)?;
    let recording = record(&options).with_context(|| label(row))?;
    let after = delays(program.pid()?)?;
    let (time, stacks) = (time(&recording)?, stacks(&recording));
    let accounts = sampled(&stacks);
    let outcome = |text: String| -> Result<ThreadAccount> {
        let said = ThreadRecord::parse(&text)?;
        let of_thread = stacks.iter().filter(|stack| stack.tid == said.tid);
        let delay = after.get(&said.tid).unwrap_or(&0) - before.get(&said.tid).unwrap_or(&0);
        let chance = |function| said.chance(&time, 1e9 / f64::from(row.rate_hz), function);
        Ok(ThreadAccount {
            chance: f64::max(chance(0), chance(1)),
            samples: of_thread.map(|stack| stack.sum.samples).sum(),
            delay_percent: 100.0 * delay as f64 / recording.facts.took.as_nanos() as f64,
            truth: said.account(&time),
            sampled: accounts.get(&said.tid).copied().unwrap_or_default(),
        })
    };
    let threads = program.said()?.into_iter().map(outcome);
    Ok(MeasuredRow {
        php: recording.facts.engine.version.to_string(),
        threads: threads.collect::<Result<_>>()?,
    })
}

/// How long each thread of a process has waited for a CPU, in nanoseconds: the second field of
/// `schedstat`. proc(5).
fn delays(pid: Pid) -> Result<HashMap<i32, u64>> {
    let mut delays = HashMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let schedstat = std::fs::read_to_string(task.path().join("schedstat"))?;
        let delay = schedstat
            .split_ascii_whitespace()
            .nth(1)
            .context("a short schedstat")?;
        let tid = task.file_name().to_string_lossy().parse()?;
        delays.insert(tid, delay.parse()?);
    }
    Ok(delays)
}

fn print(row: &CpuRow, php: &str, outcome: &ThreadAccount, csv: &mut String) -> Result<()> {
    let ThreadAccount {
        samples,
        delay_percent,
        truth,
        sampled,
        chance,
    } = outcome;
    let milliseconds = [truth.all / 1e6, sampled.all / 1e6];
    print!(
        "{:<34} {samples:>7} {delay_percent:>5.1}% {:>15.0} {:>8.0} ± {chance:>5.1}",
        label(row),
        milliseconds[0],
        milliseconds[1]
    );
    write!(
        csv,
        "{php},{},{},{},{},{},{},{},{samples},{delay_percent:.2},{:.1},{:.1},{chance:.2}",
        workers(row),
        row.wait.name(),
        row.slice_milliseconds,
        row.crowded
            .map_or(1000 * row.slice_milliseconds, |it| it.pause_microseconds),
        row.crowded.map_or(0, |it| it.programs),
        row.crowded.map_or("other", |it| it.cpus.name()),
        row.rate_hz,
        milliseconds[0],
        milliseconds[1]
    )?;
    for function in 0..FUNCTIONS.len() {
        let (truth, sampled) = (truth.percent(function), sampled.percent(function));
        print!(" {truth:>6.1} {sampled:>6.1}");
        write!(csv, ",{truth:.2},{sampled:.2}")?;
    }
    println!();
    csv.push('\n');
    Ok(())
}

/// A row's name in the table.
fn label(row: &CpuRow) -> String {
    if let Some(crowded) = row.crowded {
        return format!("{}, {} Hz", crowded.label(), row.rate_hz);
    }
    format!(
        "{} {}, {} ms, {} Hz",
        workers(row),
        row.wait.name(),
        row.slice_milliseconds,
        row.rate_hz
    )
}

fn workers(row: &CpuRow) -> &'static str {
    if row.threads { "thread" } else { "process" }
}
