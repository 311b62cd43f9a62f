//! `make real`: PHP in common runtimes, sampled with the built binary, and compared with the ground
//! truth.
//!
//! It prints a line for each kind, and its faults. With FULL=1 all kinds; with words, those whose
//! names contain one of them. It does not build runtimes: profiler-image/runtimes/build does.

mod churn;
mod heap;
mod kinds;
mod load;
mod place;
mod profiler;
#[path = "../programs/mod.rs"]
mod programs;
mod refused;
mod runtime;
mod server;
mod truth;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kinds::{KINDS, Kind};
use profiler::Recorder;
use server::{Asking, Running};
use truth::{Calls, Truth, Verdict, check_verdicts, judge};

const CALLS: &str = include_str!("../../runtimes/truth/calls.txt");
const SECONDS: u32 = 4;
/// Many workers take turns to wait for a CPU: chance needs longer to average out.
const SECONDS_OF_MANY: u32 = 8;
const SAMPLES_PER_SECOND: u32 = 499;
/// The lowest share of samples with the route of their request, in percent.
const ROUTED: f64 = 90.0;

fn main() -> ExitCode {
    let full = std::env::var("FULL").is_ok_and(|value| value == "1");
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let wanted = |kind: &&Kind| {
        if words.is_empty() {
            full || !kind.full
        } else {
            words.iter().any(|word| kind.name.contains(word.as_str()))
        }
    };
    println!(
        "{:<36} {:>7} {:>7} {:>27} {:>8} {:>8} {:>6}",
        "kind", "workers", "samples", "points off, of each path", "unstable", "routed", "took"
    );
    let mut failures = 0;
    for fault in check_verdicts(&Calls::parse(CALLS)) {
        println!("    WRONG: {fault}");
        failures += 1;
    }
    for kind in KINDS.iter().filter(wanted) {
        failures += usize::from(!holds(kind));
    }
    let heaps = heap::KINDS.iter().filter(|kind| {
        if words.is_empty() {
            full || !kind.full
        } else {
            words.iter().any(|word| kind.name.contains(word.as_str()))
        }
    });
    for kind in heaps {
        failures += usize::from(!heap::holds(kind));
    }
    let is_named = words
        .iter()
        .any(|word| refused::NAME.contains(word.as_str()));
    if is_named || words.is_empty() && full {
        failures += usize::from(!refused::holds());
    }
    if words.is_empty() || words.iter().any(|word| word == "churn") {
        failures += usize::from(!churned(if full { 10_000 } else { 600 }));
    }
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether a kind agrees with the truth. If shares differ, leaves are unproven, or workers are
/// sampled too rarely, it is measured once more, for longer, because on a busy machine that may be
/// chance. Wrong calls and missing workers are never chance.
fn holds(kind: &Kind) -> bool {
    let seconds = if kind.workers() < 4 {
        SECONDS
    } else {
        SECONDS_OF_MANY
    };
    let faults = measured(kind, seconds).and_then(|mut verdict| {
        if verdict.faults.is_empty() && !verdict.off.is_empty() {
            verdict = measured(kind, 2 * SECONDS_OF_MANY)?;
        }
        Ok([verdict.faults, verdict.off].concat())
    });
    let faults = faults.unwrap_or_else(|error| vec![format!("{}: {error:#}", kind.name)]);
    faults
        .iter()
        .for_each(|fault| println!("    WRONG: {fault}"));
    faults.is_empty()
}

/// Samples a kind for this long, and prints a line.
fn measured(kind: &Kind, seconds: u32) -> Result<Verdict> {
    let begin = Instant::now();
    let verdict = profile(kind, seconds)?;
    let [orders, search, page, journal] = verdict.differences;
    println!(
        "{:<36} {:>7} {:>7} {orders:>+9.1} {search:>+5.1} {page:>+5.1} {journal:>+5.1} {:>6.1} % {:>6.1} % {:>4.1} s",
        kind.name,
        verdict.workers.len(),
        verdict.samples,
        verdict.unstable,
        verdict.routed,
        begin.elapsed().as_secs_f64()
    );
    Ok(verdict)
}

/// Starts and ends this many workers, and returns whether all went well.
fn churned(workers: usize) -> bool {
    match churn::churn(workers) {
        Ok(outcome) => {
            let [before, after] = outcome.resident_bytes.map(|bytes| bytes / 1024);
            println!(
                "churn: {} workers, {} older than 100 ms, {} of them missed; descriptors {} then {}, memory {before} KiB then {after} KiB",
                outcome.workers,
                outcome.old,
                outcome.missed,
                outcome.descriptors[0],
                outcome.descriptors[1]
            );
            outcome
                .faults
                .iter()
                .for_each(|fault| println!("    WRONG: {fault}"));
            outcome.faults.is_empty()
        }
        Err(error) => {
            println!("churn\n    WRONG: {error:#}");
            false
        }
    }
}

/// Samples a kind under load, and compares the profile with the truth.
fn profile(kind: &Kind, seconds: u32) -> Result<Verdict> {
    let start = |target: &kinds::Target| {
        Running::start(target.php, target.server, target.workers, target.file)
    };
    let servers: Vec<Running> = kind.targets.iter().map(start).collect::<Result<_>>()?;
    let pids: Vec<u32> = servers.iter().map(Running::pid).collect();
    let record = || Recorder::start(&pids, SAMPLES_PER_SECOND, seconds);
    let ask = || -> Vec<Asking> {
        let of_each = servers.iter().zip(kind.targets);
        of_each
            .map(|(server, target)| server.ask(target.workers))
            .collect()
    };
    let (recorder, asking) = if kind.is_late() {
        let recorder = record()?;
        std::thread::sleep(Duration::from_millis(300));
        (recorder, ask())
    } else {
        let asking = ask();
        std::thread::sleep(Duration::from_millis(500));
        (record()?, asking)
    };
    let recorded = recorder.finish();
    let mut answers = Vec::new();
    for of_one in asking {
        let shown = || servers.iter().map(Running::log).collect::<String>();
        answers.extend(of_one.stop().with_context(shown)?);
    }
    let recorded = recorded?;
    let mut truth = Truth::of(&recorded)?;
    answers.iter().try_for_each(|answer| truth.add(answer))?;
    let mut verdict = judge(&recorded, &truth, kind.workers(), &Calls::parse(CALLS));
    if kind.tells_routes() && verdict.routed < ROUTED {
        let routed = verdict.routed;
        verdict
            .off
            .push(format!("{routed:.1} % have the route of their request"));
    }
    Ok(verdict)
}
