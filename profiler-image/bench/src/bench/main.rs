//! `make bench`: the cost of sampling, for phpprof and other profilers in turn on the same running
//! targets.
//!
//! Usage: `bench RESULTS.csv PLOT.svg [WORDS]`: a line for each profiler and cell on the screen and
//! in the file; with WORDS, such as "dokuwiki 1 of 4", only cells that have them in their label.
//! `BENCH=smoke`: a few cells, and limits on counts (never on time); a broken limit is a failure.
//! `PEERS="phpspy=/path pfp=/path phpprof-before=/path"`: other profilers. `bench record JSON` is
//! one run of phpprof, `BENCH_SECONDS=1800` one run of that length for each cell. `bench plot
//! RESULTS.csv PLOT.svg` draws a file again; `bench floor` is only the end of a full run: the
//! counts compared with strace, and the kernel's cost.

#![warn(clippy::match_bool)]

mod floor;
mod limits;
mod plot;
mod profiler;
mod record;
mod row;
mod screen;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use cells::{BenchCell, Length};
use phpprof_bench::{cells, edges, peers, target, workload};
use profiler::Profiler;
use row::BenchRow;
use target::BenchTarget;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["record", asked] => record::run(asked).map(|()| Vec::new()),
        ["floor"] => kernel(),
        ["plot", csv, svg] => plot::redraw(Path::new(csv), Path::new(svg)).map(|()| Vec::new()),
        [csv, svg] => bench(Path::new(csv), Path::new(svg), ""),
        [csv, svg, only] => bench(Path::new(csv), Path::new(svg), only),
        _ => Err(anyhow::anyhow!("usage: bench RESULTS.csv PLOT.svg [WORDS]")),
    };
    let failures = result.unwrap_or_else(|error| vec![format!("{error:#}")]);
    for failure in &failures {
        eprintln!("bench: {failure}");
    }
    ExitCode::from(u8::from(!failures.is_empty()))
}

/// Measures all wanted cells, and returns the broken limits.
fn bench(csv: &Path, svg: &Path, only: &str) -> Result<Vec<String>> {
    let is_smoke = std::env::var("BENCH").is_ok_and(|form| form == "smoke");
    let profilers = Profiler::all(&std::env::var("PEERS").unwrap_or_default())?;
    let (mut cells, length) = if is_smoke {
        cells::smoke()
    } else {
        cells::full()
    };
    let length = length.of(std::env::var("BENCH_SECONDS").ok().as_deref())?;
    cells.retain(|cell| cell.label().contains(only));
    ensure!(!cells.is_empty(), "no cell has {only:?} in its label");
    for path in [csv, svg] {
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    }
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    println!("{}", screen::HEAD);
    for cell in &cells {
        let mut measured = measure(cell, &profilers, &length);
        if is_smoke
            && measured
                .as_ref()
                .is_ok_and(|rows| rows.iter().any(limits::may_be_chance))
        {
            println!("    once more");
            measured = measure(cell, &profilers, &length);
        }
        match measured {
            Ok(measured) => rows.extend(measured),
            Err(error) => failures.push(format!("{}: {error:#}", cell.label())),
        }
        // The results so far are kept if the rest is interrupted.
        let lines: Vec<String> = rows.iter().map(BenchRow::csv).collect();
        fs::write(csv, format!("{}\n{}\n", row::COLUMNS, lines.join("\n")))?;
    }
    if !is_smoke && only.is_empty() {
        failures.extend(kernel()?);
    }
    plot::redraw(csv, svg)?;
    println!("{}\n{}", csv.display(), svg.display());
    if is_smoke {
        failures.extend(rows.iter().flat_map(limits::broken));
    }
    Ok(failures)
}

/// Compares the counts with strace, and measures the kernel's cost; returns the differences.
fn kernel() -> Result<Vec<String>> {
    let wrong = limits::against_strace()?;
    floor::print()?;
    Ok(wrong)
}

/// All profilers in turn on one running target: A B A B.
fn measure(cell: &BenchCell, profilers: &[Profiler], length: &Length) -> Result<Vec<BenchRow>> {
    let mut target = BenchTarget::start(cell)?;
    let profilers: Vec<&Profiler> = profilers.iter().filter(|one| one.can(cell)).collect();
    let mut slices = vec![Vec::new(); profilers.len()];
    for _ in 0..length.rounds {
        for (profiler, slices) in profilers.iter().zip(&mut slices) {
            let slice = profiler.run(cell, &target, length);
            slices.push(slice.with_context(|| profiler.name().to_owned())?);
            target.check()?;
        }
    }
    let seconds = length.slice.as_secs_f64();
    let mut rows = Vec::new();
    for (profiler, slices) in profilers.iter().zip(&slices) {
        let row = BenchRow::of(cell, profiler.name(), slices, seconds);
        println!("{}", screen::line(&row));
        rows.push(row);
    }
    Ok(rows)
}
