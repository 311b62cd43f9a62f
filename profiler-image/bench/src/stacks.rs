//! Compares every stack of programs whose calls are known with these calls: 100,000 samples a row,
//! with `FULL=1` a million, or `SAMPLES`. They are taken without a pause, except in rows that need
//! a schedule, which have fewer.

mod check;

use std::fmt::Write as _;
use std::time::Duration;

use crate::targets::{KnownProgram, TARGETS};
use anyhow::{Context, Result};
use check::{EdgeConditions, EdgeCounts, broken, is_wrong, sampled_small_percent, small_percent};
use phpprof::run::{Recording, RecordingOptions, own_cpu};

use crate::running::{PhpMode, PhpProgram, RunningTarget};
use crate::sampled::{self, options, record, stacks};
use crate::{BenchArguments, CPUS};

/// Samples a second on schedule: not a multiple of any frequency of a program.
const RATE_HZ: u32 = 1999;
const COLUMNS: &str = "php,opcache,jit,mode,target,depth,samples,moved,edges,wrong_edges,wrong_path,truncated,unstable,denied,quiet,reads_per_sample";

const ENGINES: [PhpMode; 4] = [
    PhpMode {
        opcache: false,
        jit: "off",
    },
    PhpMode {
        opcache: true,
        jit: "off",
    },
    PhpMode {
        opcache: true,
        jit: "function",
    },
    PhpMode {
        opcache: true,
        jit: "tracing",
    },
];

/// Samples of a long row.
const MANY: u64 = 1_000_000;
const MANY_PACED: u64 = 100_000;
/// Samples of a short row.
const FEW: u64 = 100_000;
const FEW_PACED: u64 = 12_000;
/// Samples of a short row whose shares of time are compared with the target's own: chance changes
/// them by half a point.
const FEW_WITH_SHARES: u64 = 20_000;

/// One row of the table.
struct EdgeRow {
    engine: PhpMode,
    remote: bool,
    target: &'static KnownProgram,
    is_long: bool,
}

/// The rows that break their limits, in words; a short row breaks those that chance can break only
/// if it does so twice.
pub fn run(asked: &BenchArguments) -> Result<Vec<String>> {
    let &BenchArguments { ref php, full, .. } = asked;
    let samples = match std::env::var("SAMPLES") {
        Ok(value) => Some(value.parse().context("SAMPLES is a number")?),
        Err(_) => None,
    };
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
    let mut failures = Vec::new();
    for row in rows(full)
        .iter()
        .filter(|row| php.has_jit || row.engine.jit == "off")
        .filter(|row| php.version >= row.target.since)
        .filter(|row| asked.wants(&label(row)))
    {
        let (mut broken, counts) = judge(php, row, samples, &mut csv)?;
        let may_be_chance = !broken.is_empty() && !is_wrong(&counts);
        // In one of some thirty runs, a long row has had ten times its usual `[unstable]`.
        if may_be_chance && !full {
            println!("    one short run does not tell: once more");
            (broken, _) = judge(php, row, samples, &mut csv)?;
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
    php: &PhpProgram,
    row: &EdgeRow,
    samples: Option<u64>,
    csv: &mut String,
) -> Result<(Vec<String>, EdgeCounts)> {
    let (counts, how, recording) = measure(php, row, samples)?;
    let quality = &recording.sampler.quality;
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
        quality.quiescent,
        how.reads_per_sample
    );
    writeln!(
        csv,
        "{},{},{},{},{},{},{},{:.4},{},{},{},{},{},{},{},{:.3}",
        recording.facts.engine.version,
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
        quality.denied,
        quality.quiescent,
        how.reads_per_sample
    )?;
    if let Some(truth) = how.true_small_percent {
        let share = sampled_small_percent(&counts);
        println!("    small calls {share:.2} % of the sampled time, {truth:.2} % of the true");
    }
    let broken = broken(row.target, how, &counts);
    for words in &broken {
        println!("    BROKEN: {words}");
    }
    Ok((broken, counts))
}

/// Targets that the short form leaves out, because others are similar: `attack` makes and frees
/// closures too.
const LEFT_TO_FULL: [&str; 3] = ["closures", "generators", "magic"];

/// All rows, or those of the short form, because a row takes up to twenty seconds: most targets
/// once without opcache, small calls of another depth with it and with the tracing JIT, and
/// callbacks, which depend on the quiescent reader most, without it. Generators have to be in step
/// with the sampler for a fault to show, which is rare in a short row: only the long form has them.
/// What 8.2 does not have is tested with 8.4.
fn rows(full: bool) -> Vec<EdgeRow> {
    let mut rows = Vec::new();
    for remote in [false, true] {
        for engine in ENGINES {
            for target in TARGETS {
                let is_30_deep = target.name == "small" && target.depth == 30;
                let is_short = !is_30_deep && !LEFT_TO_FULL.contains(&target.name);
                let plain = !engine.opcache && !remote && is_short;
                let jit = engine.opcache && !remote && is_30_deep && engine.jit != "function";
                let without_quiescent_reads =
                    remote && !engine.opcache && target.name == "callbacks";
                if full || plain || jit || without_quiescent_reads {
                    rows.push(EdgeRow {
                        engine,
                        remote,
                        target,
                        is_long: full,
                    });
                }
            }
        }
    }
    rows
}

fn measure(
    php: &PhpProgram,
    row: &EdgeRow,
    samples: Option<u64>,
) -> Result<(EdgeCounts, EdgeConditions, Recording)> {
    let mut target = RunningTarget::start(php, row.engine, row.target, CPUS[1])?;
    let spent = own_cpu();
    let (unpaced, most) = pace(row);
    let recording = record(&RecordingOptions {
        max_samples: Some(samples.unwrap_or(most)),
        unpaced,
        ..options(target.pid()?, RATE_HZ, Duration::from_secs(120), row.remote)?
    })
    .with_context(|| format!("target {}", row.target.script))?;
    let spent = own_cpu() - spent;
    let turns = target.stop(row.target.states_shares)?;
    let true_small_percent = match turns {
        Some(turns) => {
            let sampled = sampled::time(&recording)?;
            Some(small_percent(&turns, &sampled).context("the target has not run")?)
        }
        None => None,
    };
    let mut counts = EdgeCounts {
        is_7: php.version < 80_000,
        ..EdgeCounts::default()
    };
    for stack in stacks(&recording) {
        let samples = u64::try_from(stack.sum.samples)?;
        let nanoseconds = u64::try_from(stack.sum.wall_nanoseconds)?;
        counts.add(row.target, &stack.names(), samples, nanoseconds);
        counts.add_lines(&stack.lines, samples);
    }
    let how = EdgeConditions {
        jit: row.engine.jit != "off",
        remote: row.remote,
        moved_percent: counts.percent(recording.sampler.quality.moved),
        denied_percent: denied_percent(&recording),
        true_small_percent,
        reads_per_sample: reads_per_sample(&recording, &counts),
        own_cpu_percent: unpaced
            .then(|| 100.0 * spent as f64 / (recording.facts.took.as_nanos() as f64).max(1.0)),
    };
    Ok((counts, how, recording))
}

/// Whether a row is sampled without a pause, and how many samples it has. A short row is on
/// schedule where time counts: its shares of time, and what it costs to read without the quiescent
/// reader.
fn pace(row: &EdgeRow) -> (bool, u64) {
    match (row.is_long, row.target.is_paced) {
        (true, false) => (true, MANY),
        (true, true) => (false, MANY_PACED),
        (false, _) if row.target.states_shares => (false, FEW_WITH_SHARES),
        (false, is_paced) if is_paced || row.remote => (false, FEW_PACED),
        (false, _) => (true, FEW),
    }
}

fn denied_percent(recording: &Recording) -> f64 {
    let quality = &recording.sampler.quality;
    let turns = quality.taken + quality.denied;
    100.0 * quality.denied as f64 / (turns as f64).max(1.0)
}

fn reads_per_sample(recording: &Recording, counts: &EdgeCounts) -> f64 {
    recording.calls.gathers as f64 / counts.samples.max(1) as f64
}

/// A row's name in the table.
fn label(row: &EdgeRow) -> String {
    format!(
        "{}{} {} {}",
        row.target.name,
        depth(row.target),
        engine(row.engine),
        mode(row)
    )
}

fn depth(target: &KnownProgram) -> String {
    if target.name == "small" {
        format!("/{}", target.depth)
    } else {
        String::new()
    }
}

fn engine(engine: PhpMode) -> &'static str {
    match (engine.opcache, engine.jit) {
        (false, _) => "plain",
        (true, "off") => "opcache",
        (true, jit) => jit,
    }
}

fn mode(row: &EdgeRow) -> &'static str {
    if row.remote { "remote" } else { "auto" }
}
