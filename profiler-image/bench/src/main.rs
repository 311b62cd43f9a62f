//! `make truth`: samples programs whose calls are known, holds every stack against them, and prints a table.
//!
//! Target and sampler are kept on different CPUs: where they share one, nothing moves and every check passes.
//! Usage: `truth PHP RESULTS.csv [WORDS]`; PHP is a command, whose arguments may follow after spaces. With `FULL=1` all
//! rows with a million samples each, or `SAMPLES`, unpaced; with WORDS, as "paths" or "function remote", only the rows
//! that have them in their label.

mod check;
mod running;
mod targets;

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use check::{Counts, How, broken, sampled_small_percent, small_percent};
use nix::sched::CpuSet;
use nix::time::ClockId;
use nix::unistd::Pid;
use phpprof::run::stop::Stop;
use phpprof::run::{Ended, Options, Recording, own_cpu, record};
use phpprof::target::Scope;
use running::{Engine, Php, Running, pin};
use targets::{TARGETS, Target};

/// The CPU of the sampler, and that of the target.
const CPUS: [usize; 2] = [0, 1];
const COLUMNS: &str = "php,opcache,jit,mode,target,depth,samples,moved,edges,wrong_edges,wrong_path,truncated,unstable,quiet,reads_per_sample";

const ENGINES: [Engine; 4] = [
    Engine {
        opcache: false,
        jit: "off",
    },
    Engine {
        opcache: true,
        jit: "off",
    },
    Engine {
        opcache: true,
        jit: "function",
    },
    Engine {
        opcache: true,
        jit: "tracing",
    },
];

/// One row of the table.
struct Row {
    engine: Engine,
    remote: bool,
    target: &'static Target,
}

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(broken) => {
            eprintln!("truth: {broken} rows break their limits");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("truth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<usize> {
    let mut arguments = std::env::args().skip(1);
    let php = arguments
        .next()
        .context("usage: truth PHP RESULTS.csv [WORDS]")?;
    let results = PathBuf::from(
        arguments
            .next()
            .context("usage: truth PHP RESULTS.csv [WORDS]")?,
    );
    let only = arguments.next();
    let full = std::env::var("FULL").is_ok_and(|value| value == "1");
    let samples = match std::env::var("SAMPLES") {
        Ok(value) => value.parse().context("SAMPLES is a number")?,
        Err(_) if full => 1_000_000,
        Err(_) => 20_000,
    };
    let php = Php::ask(&php)?;
    ensure!(
        std::thread::available_parallelism()?.get() >= 2,
        "two CPUs are needed: one for the target, one for the sampler"
    );
    pin(Pid::from_raw(0), CPUS[0])?;
    let mut csv = format!("{COLUMNS}\n");
    println!(
        "{:<26} {:>9} {:>6} {:>9} {:>5} {:>5} {:>5} {:>9} {:>6} {:>5}",
        "target, PHP, mode",
        "samples",
        "moved",
        "edges",
        "wrong",
        "mixed",
        "trunc",
        "unstable",
        "quiet",
        "reads"
    );
    let mut failures = 0;
    for row in rows(full)
        .iter()
        .filter(|row| php.has_jit || row.engine.jit == "off")
        .filter(|row| php.version >= row.target.since)
        .filter(|row| only.as_deref().is_none_or(|only| label(row).contains(only)))
    {
        let (counts, how, recording) = measure(&php, row, samples, full)?;
        let reads = recording.calls.gathers as f64 / counts.samples.max(1) as f64;
        let quiet = recording.sampler.quality.quiet;
        println!(
            "{:<26} {:>9} {:>5.1}% {:>9} {:>5} {:>5} {:>5} {:>8.3}% {:>6} {:>5.2}",
            label(row),
            counts.samples,
            how.moved_percent,
            counts.edges,
            counts.wrong_edges,
            counts.wrong_path,
            counts.truncated,
            counts.percent(counts.unstable),
            quiet,
            reads
        );
        writeln!(
            csv,
            "{},{},{},{},{},{},{},{:.4},{},{},{},{},{},{},{:.3}",
            recording.engine.version,
            if row.engine.opcache { "on" } else { "off" },
            row.engine.jit,
            mode(row),
            row.target.name,
            row.target.depth,
            counts.samples,
            how.moved_percent / 100.0,
            counts.edges,
            counts.wrong_edges,
            counts.wrong_path,
            counts.truncated,
            counts.unstable,
            quiet,
            reads
        )?;
        if let Some(truth) = how.true_small_percent {
            let share = sampled_small_percent(&counts);
            println!("    small calls {share:.2} % of the sampled time, {truth:.2} % of the true");
        }
        let broken = broken(row.target, how, &counts);
        for words in &broken {
            println!("    BROKEN: {words}");
        }
        failures += usize::from(!broken.is_empty());
    }
    if let Some(folder) = results.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&results, csv).with_context(|| format!("writing {}", results.display()))?;
    println!("{}", results.display());
    Ok(failures)
}

/// Targets whose like is in the short form: `attack` makes and frees closures too.
const LEFT_TO_FULL: [&str; 3] = ["closures", "generators", "magic"];

/// All rows, or those of the short form, as a row takes twenty seconds: most targets once without opcache, small calls of another depth
/// with it and with the tracing JIT, and callbacks, which have most to lose, without the quiescent reader.
fn rows(full: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for remote in [false, true] {
        for engine in ENGINES {
            for target in TARGETS {
                // What 8.2 does not have is tried with the versions that do.
                let is_old = target.since < 80_300;
                let is_30_deep = target.name == "small" && target.depth == 30;
                let is_short = is_old && !is_30_deep && !LEFT_TO_FULL.contains(&target.name);
                let plain = !engine.opcache && !remote && is_short;
                let jit = engine.opcache && !remote && is_30_deep && engine.jit != "function";
                let judgeless = remote && !engine.opcache && target.name == "callbacks";
                if full || plain || jit || judgeless {
                    rows.push(Row {
                        engine,
                        remote,
                        target,
                    });
                }
            }
        }
    }
    rows
}

fn measure(php: &Php, row: &Row, samples: u64, full: bool) -> Result<(Counts, How, Recording)> {
    let mut target = Running::start(php, row.engine, row.target, CPUS[1])?;
    let mut quiescent_cpus = CpuSet::new();
    quiescent_cpus.set(CPUS[0])?;
    if !row.remote {
        quiescent_cpus.set(CPUS[1])?;
    }
    let spent = own_cpu();
    let recording = record(&Options {
        scope: Scope::Pids(vec![target.pid()?.as_raw()]),
        samples_per_second: 999,
        duration: Duration::from_secs(120),
        max_samples: Some(samples),
        unpaced: full,
        include_idle: false,
        cpu_budget_percent: None,
        quiescent_cpus: Some(quiescent_cpus),
        stop: Stop::default(),
        checkpoints: None,
    })
    .with_context(|| format!("sampling {}", row.target.script))?;
    ensure!(
        recording.ended == Ended::Done,
        "{} has ended before it was stopped: {:?}",
        row.target.script,
        recording.ended
    );
    let spent = own_cpu() - spent;
    let turns = target.stop(row.target.states_shares)?;
    let true_small_percent = match turns {
        Some(turns) => {
            let sampled = sampled(&recording)?;
            Some(small_percent(&turns, &sampled).context("the target has not run")?)
        }
        None => None,
    };
    let settled = recording
        .aggregate
        .settle(&recording.sampler.tree, &recording.sampler.edges);
    let (stacks, _) = settled.sum();
    let mut counts = Counts {
        is_7: php.version < 80_000,
        ..Counts::default()
    };
    let mut lines = Vec::new();
    for stack in &stacks {
        settled.lines(stack, &mut lines);
        let sum = stack.sum;
        let names: Vec<String> = lines
            .iter()
            .map(|&(id, _)| short(&recording.sampler.functions.names.get(id).name))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let numbers = lines.iter().map(|&(_, line)| line);
        let placed: Vec<(&str, u32)> = names.iter().copied().zip(numbers).collect();
        counts.add(
            row.target,
            &names,
            u64::try_from(sum.samples)?,
            u64::try_from(sum.wall_nanoseconds)?,
        );
        counts.add_lines(&placed, u64::try_from(sum.samples)?);
    }
    let how = How {
        jit: row.engine.jit != "off",
        remote: row.remote,
        moved_percent: counts.percent(recording.sampler.quality.moved),
        true_small_percent,
        own_cpu_percent: full
            .then(|| 100.0 * spent as f64 / (recording.took.as_nanos() as f64).max(1.0)),
    };
    Ok((counts, how, recording))
}

/// When samples were taken, by the monotonic clock, which targets state their turns in.
fn sampled(recording: &Recording) -> Result<Range<u64>> {
    let now = |clock: ClockId| -> Result<i64> {
        Ok(i64::try_from(Duration::from(clock.now()?).as_nanos())?)
    };
    let apart = now(ClockId::CLOCK_REALTIME)? - now(ClockId::CLOCK_MONOTONIC)?;
    let begin = u64::try_from(recording.began_unix_nanoseconds - apart)?;
    Ok(begin..begin + u64::try_from(recording.took.as_nanos())?)
}

/// A name without the folder of its script.
fn short(name: &str) -> String {
    match (name.split_once('/'), name.rsplit_once('/')) {
        (Some((head, _)), Some((_, tail))) => format!("{head}{tail}"),
        _ => name.to_owned(),
    }
}

/// A row's name in the table.
fn label(row: &Row) -> String {
    format!(
        "{}{} {} {}",
        row.target.name,
        depth(row.target),
        engine(row.engine),
        mode(row)
    )
}

fn depth(target: &Target) -> String {
    if target.name == "small" {
        format!("/{}", target.depth)
    } else {
        String::new()
    }
}

fn engine(engine: Engine) -> &'static str {
    match (engine.opcache, engine.jit) {
        (false, _) => "plain",
        (true, "off") => "opcache",
        (true, jit) => jit,
    }
}

fn mode(row: &Row) -> &'static str {
    if row.remote { "remote" } else { "auto" }
}
