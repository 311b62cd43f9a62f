//! Compares the shares of time of generated programs with the truth: `truth balance`.
//!
//! The truth is stops of the process at random times; the program's own clocks must agree. `SEEDS`
//! names other programs than the usual ones.

mod application;
mod chance;
mod check;
mod clocks;
mod compared;
mod draw;
pub mod draws;
mod internals;
mod measure;
mod mode;
mod peer;
mod plan;
mod plot;
mod profile;
mod program;
mod report;
mod sample;
mod statement;
mod stops;
mod text;
mod write;

use anyhow::{Context, Result};
use application::{APPLICATIONS, RATES, measure_application};
use check::{closer_peers, deviations, distance_missed, verdict};
use clocks::{ClockedShare, clocked};
use measure::{Extent, measure};
use mode::{Mode, modes};
use nix::unistd::Pid;
use phpprof_bench::workload::BenchWorkload;
use plot::draw_plot;
use report::{COLUMNS, FUNCTION_COLUMNS, RowNames, StopsBeside, conclude, head, report};

use crate::running::pin;
use crate::{BenchArguments, CPUS};

/// Clocks and stops may be so many deviations apart, one of some hundred functions by chance.
const CLOCK_DEVIATIONS: f64 = 4.5;
/// How many missed goals of a mode are printed; the results have all of them.
const SHOWN: usize = 12;

/// What another part of this program runs in a process of its own, or a person by hand; `None` if
/// these words are of the comparison.
pub fn command(words: &[String]) -> Option<Result<()>> {
    let (flag, words) = words.split_first()?;
    let run = match flag.as_str() {
        "--write" => write::run,
        "--sample" => sample::run,
        _ => return None,
    };
    Some(pin(Pid::from_raw(0), CPUS[0]).and_then(|()| run(words)))
}

/// The goals that are missed, in words.
pub fn run(asked: &BenchArguments) -> Result<Vec<String>> {
    let seeds = match std::env::var("SEEDS") {
        Ok(words) => {
            let seeds = words
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>();
            seeds.context("SEEDS are numbers")?
        }
        Err(_) => Vec::new(),
    };
    let mut tables = [format!("{COLUMNS}\n"), format!("{FUNCTION_COLUMNS}\n")];
    let mut failures = Vec::new();
    for mode in modes(asked.php.is_usual(), asked.full, &seeds) {
        let before = tables[0].len();
        failures.extend(compare(asked, &mode, &mut tables)?);
        // What was found is not lost if a later mode fails.
        if tables[0].len() > before {
            write(asked, &tables)?;
        }
    }
    if asked.php.is_usual() && seeds.is_empty() {
        let is_asked = |workload: &&BenchWorkload| asked.full || asked.names(workload.name);
        for &workload in APPLICATIONS.iter().filter(is_asked) {
            failures.extend(compare_application(asked, workload, &mut tables)?);
            write(asked, &tables)?;
        }
    }
    if asked.full {
        asked.draw("functions", &draw_plot(&tables[1])?)?;
    }
    Ok(failures)
}

fn write(asked: &BenchArguments, [programs, functions]: &[String; 2]) -> Result<()> {
    asked.write(programs)?;
    asked.write_beside("functions", functions)
}

/// Compares an application at the rates that are requested.
fn compare_application(
    asked: &BenchArguments,
    workload: BenchWorkload,
    tables: &mut [String; 2],
) -> Result<Vec<String>> {
    let wants = |rate: &u32| asked.wants(&format!("{} {rate} Hz", workload.name));
    let rates: Vec<u32> = RATES.into_iter().filter(wants).collect();
    if rates.is_empty() {
        return Ok(Vec::new());
    }
    head();
    let extent = Extent::of_application(asked.full);
    let mut missed = Vec::new();
    for (rate, comparison, halves) in measure_application(workload, &rates, extent)? {
        let names = RowNames {
            php: &asked.php.label(),
            target: workload.name,
            mode: "php-fpm",
            rate,
        };
        let own = deviations(std::slice::from_ref(&comparison));
        let rows = report(names, &comparison, StopsBeside::of(&halves, &[]), own);
        for (table, rows) in tables.iter_mut().zip(&rows) {
            table.push_str(rows);
        }
        missed.extend(distance_missed(&comparison));
        missed.extend(verdict(&[comparison]).missed);
    }
    show(&missed);
    Ok(missed)
}

fn compare(asked: &BenchArguments, mode: &Mode, tables: &mut [String; 2]) -> Result<Vec<String>> {
    let target = |seed: u64| format!("program {seed}");
    let wants = |seed: &&u64| asked.wants(&format!("{} {}", target(**seed), mode.name));
    let seeds: Vec<u64> = mode.seeds.iter().filter(wants).copied().collect();
    if seeds.is_empty() {
        return Ok(Vec::new());
    }
    // Peers know this PHP only.
    let peers = if asked.php.is_usual() {
        peer::peers()?
    } else {
        Vec::new()
    };
    head();
    let (mut comparisons, mut missed) = (Vec::new(), Vec::new());
    for seed in seeds {
        let measured = measure(&asked.php, mode, seed, Extent::of(asked.full), &peers)
            .with_context(|| format!("{} {}", target(seed), mode.name))?;
        let clocked = clocked(
            &measured.program.plan,
            &measured.program.text.names,
            &measured.clocks,
            &measured.truth,
        );
        let place = format!("{} {}", target(seed), mode.name);
        missed.extend(clocks_missed(&place, &clocked));
        let names = RowNames {
            php: &asked.php.label(),
            target: &target(seed),
            mode: mode.name,
            rate: mode.rate,
        };
        let beside = StopsBeside::of(&measured.halves, &clocked);
        let own = deviations(std::slice::from_ref(&measured.comparison));
        let rows = report(names, &measured.comparison, beside, own);
        for (table, rows) in tables.iter_mut().zip(&rows) {
            table.push_str(rows);
        }
        tell_frameless(measured.frameless);
        for (name, comparison) in &measured.peers {
            let names = RowNames {
                mode: name,
                ..names
            };
            let own = deviations(std::slice::from_ref(comparison));
            // Their functions have other names than ours.
            let [row, _] = report(names, comparison, StopsBeside::default(), own);
            tables[0].push_str(&row);
        }
        missed.extend(closer_peers(&measured.peers));
        comparisons.push(measured.comparison);
    }
    let verdict = verdict(&comparisons);
    conclude(mode.name, &verdict);
    missed.extend(verdict.missed);
    show(&missed);
    Ok(missed)
}

fn tell_frameless(samples: u64) {
    if samples > 0 {
        println!("    {samples} samples of calls without frames are their callers'");
    }
}

/// Functions whose shares by stops and by the program's clock differ.
fn clocks_missed(place: &str, clocked: &[ClockedShare]) -> Vec<String> {
    let differ = |share: &&ClockedShare| share.deviations() > CLOCK_DEVIATIONS;
    let words = |share: &ClockedShare| {
        format!(
            "{place}: {} has {:.2} % by stops, {:.2} % by the program's clock",
            share.name, share.by_stops, share.by_clock
        )
    };
    clocked.iter().filter(differ).map(words).collect()
}

fn show(missed: &[String]) {
    for words in missed.iter().take(SHOWN) {
        println!("    MISSED: {words}");
    }
    if missed.len() > SHOWN {
        println!("    MISSED: {} more", missed.len() - SHOWN);
    }
}
