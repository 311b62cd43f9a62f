//! Writes programs, and the truth of each, for whoever compares another profiler with it:
//! `truth balance --write FOLDER PHP SEED...`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::clocks::{ClockReadings, clock_script};
use super::program::DrawnProgram;
use super::stops::{StopPauses, stops};
use super::text::script;
use crate::CPUS;
use crate::running::{PhpProgram, RunningTarget};

pub const USAGE: &str = "usage: truth balance --write FOLDER PHP SEED...";
const COLUMNS: &str =
    "seed,function,kind,calls_a_round,nanoseconds_a_call,true_self_percent,true_total_percent";

/// Writes the files of these seeds, and `truth.csv`; `STOPS` is the number of stops of each, 20,000
/// by default, 0 for none.
pub fn run(words: &[String]) -> Result<()> {
    let [folder, php, seeds @ ..] = words else {
        anyhow::bail!(USAGE);
    };
    ensure!(!seeds.is_empty(), USAGE);
    let folder = Path::new(folder);
    let php = PhpProgram::ask(php)?;
    let count = match std::env::var("STOPS") {
        Ok(value) => value.parse().context("STOPS is a number")?,
        Err(_) => 20_000,
    };
    let mut csv = format!("{COLUMNS}\n");
    for seed in seeds {
        let seed = seed.parse().context(USAGE)?;
        let program = DrawnProgram::of(seed);
        program.write(folder)?;
        if count > 0 {
            truth(&php, folder, seed, &program, count, &mut csv)?;
        }
    }
    fs::write(folder.join("truth.csv"), csv)?;
    Ok(())
}

fn truth(
    php: &PhpProgram,
    folder: &Path,
    seed: u64,
    program: &DrawnProgram,
    count: u64,
    csv: &mut String,
) -> Result<()> {
    let options = options();
    let clock =
        RunningTarget::script_in(php, &options, folder, &clock_script(seed), CPUS[1])?.finish()?;
    let round = ClockReadings::parse(&clock)?.round;
    let target = RunningTarget::script_in(php, &options, folder, &script(seed), CPUS[1])?;
    let profile = stops(
        target.pid()?,
        count,
        StopPauses::of_round(round),
        seed,
        true,
    )?;
    for (name, share) in profile.shares() {
        let function = program.functions.get(name);
        let calls = function.and_then(|function| function.calls);
        let nanoseconds = calls.map(|calls| share.total / 100.0 * round / calls as f64);
        writeln!(
            csv,
            "{seed},{name},{},{},{},{:.3},{:.3}",
            function.map_or("unknown", |function| function.kind),
            calls.map_or(String::new(), |calls| calls.to_string()),
            nanoseconds.map_or(String::new(), |taken| format!("{taken:.0}")),
            share.own,
            share.total
        )?;
    }
    println!(
        "{seed}: {} stops, a round takes {:.0} µs",
        profile.count(),
        round / 1000.0
    );
    Ok(())
}

/// PHP's options.
fn options() -> Vec<String> {
    let options = ["opcache.enable_cli=1", "opcache.file_update_protection=0"];
    options
        .iter()
        .flat_map(|option| ["-d".to_owned(), (*option).to_owned()])
        .collect()
}
