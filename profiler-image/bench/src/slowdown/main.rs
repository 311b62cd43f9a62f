//! `make slowdown`: how much profiling slows the program down, from the program's work with and
//! without it, alternating every 0.3 s.
//!
//! Usage: `slowdown PHP PHPPROF RESULTS.csv [WORDS]`; with WORDS only the rows that have them in
//! their label. A row ends when the half width of its confidence interval is 1 %, or after 15
//! minutes, or `SLOWDOWN_SECONDS`: then it is undecided. `EXCIMER`, `XDEBUG` and `TIDEWAYS` name
//! the extensions of these profilers; without one its rows are left out.
//!
//! The sampler is stopped and continued; the target always runs. The target switches Excimer, and
//! the request switches profilers of each call. Where an application is sampled, a turn is some
//! rounds through its pages, because pages take different times.

#![warn(clippy::match_bool)]

mod pairs;
mod program;
mod rows;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::time::ClockId;
use pairs::{Estimate, Log, MIN_COUNTS};
use phpprof_bench::workload::WorkloadKind;
use program::{Counting, Pages, SamplerProcess, ServingProgram, php};
use rows::{ROWS, SlowdownProfiler, SlowdownProgram, SlowdownRow, XDEBUG};

const USAGE: &str = "usage: slowdown PHP PHPPROF RESULTS.csv [WORDS]";
const COLUMNS: &str = "profiler,target,rate_hz,seconds,pairs,slowdown_percent,half_width_percent,nanoseconds_per_call,decided";
const TURN: Duration = Duration::from_millis(300);
const ENOUGH_PERCENT: f64 = 1.0;
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Rounds through all pages of an application in one turn; the first one, with the switch in it, is
/// left out.
const ROUNDS: usize = MIN_COUNTS + 1;

/// What was asked for.
struct SlowdownArguments {
    php: String,
    phpprof: String,
    limit: Duration,
}

/// A row that runs: each step is one turn.
enum RunningRow {
    Sampled {
        target: Counting,
        sampler: SamplerProcess,
    },
    /// The sampler, or a profiler that each request with this cookie switches on.
    Pages {
        pages: Pages,
        sampler: Option<SamplerProcess>,
        cookie: String,
    },
    Itself(Counting),
    ByRequest {
        server: ServingProgram,
        asked: &'static str,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slowdown: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let limit = match std::env::var("SLOWDOWN_SECONDS") {
        Ok(seconds) => {
            Duration::from_secs(seconds.parse().context("SLOWDOWN_SECONDS is a number")?)
        }
        Err(_) => LIMIT,
    };
    let asked = SlowdownArguments {
        php: arguments.next().context(USAGE)?,
        phpprof: arguments.next().context(USAGE)?,
        limit,
    };
    let results = std::path::PathBuf::from(arguments.next().context(USAGE)?);
    let only = arguments.next().unwrap_or_default();
    let mut csv = format!("{COLUMNS}\n");
    println!(
        "{:<40} {:>7} {:>6} {:>22} {:>14}",
        "profiler", "seconds", "pairs", "slowdown of the target", "ns per call"
    );
    if let Some(folder) = results.parent() {
        std::fs::create_dir_all(folder)?;
    }
    for row in ROWS.into_iter().filter(|row| row.label().contains(&only)) {
        let Some(mut run) = RunningRow::start(row, &asked)? else {
            println!("{:<40} is not here", row.label());
            continue;
        };
        let began = Instant::now();
        let estimate = measure(&mut run, asked.limit).with_context(|| row.label())?;
        report(row, began.elapsed().as_secs(), estimate, &mut csv)?;
        // A run of hours that is interrupted keeps the rows that it has.
        std::fs::write(&results, &csv).with_context(|| format!("writing {}", results.display()))?;
    }
    println!("{}", results.display());
    Ok(())
}

/// Takes turns until the interval is narrow enough, or the time is over; `None` if that was too
/// short for any estimate.
fn measure(run: &mut RunningRow, limit: Duration) -> Result<Option<Estimate>> {
    let began = Instant::now();
    let mut log = Log::default();
    for turn in 0_u32.. {
        run.turn(turn % 2 == 1, &mut log)?;
        // After an even number of turns all pairs are complete; the estimate is computed after each
        // five pairs.
        if turn % 10 == 9 || began.elapsed() >= limit {
            let estimate = log.estimate();
            if began.elapsed() >= limit || estimate.is_some_and(is_enough) {
                return Ok(estimate);
            }
        }
    }
    Ok(None)
}

fn is_enough(estimate: Estimate) -> bool {
    estimate.half_width_percent <= ENOUGH_PERCENT
}

impl RunningRow {
    /// `None` if the profiler does not exist.
    fn start(row: SlowdownRow, asked: &SlowdownArguments) -> Result<Option<Self>> {
        let Some(setting) = row.profiler.setting() else {
            return Ok(None);
        };
        let one_cpu = row.program == SlowdownProgram::SmallCallsOnOneCpu;
        let sampler = |pid, rate_hz| SamplerProcess::start(&asked.phpprof, pid, rate_hz, one_cpu);
        if let SlowdownProgram::Pages(workload) = row.program {
            let WorkloadKind::Fpm(application) = workload.kind else {
                bail!("{} has no pages", workload.name);
            };
            let pages = Pages::start(application, &setting)?;
            let sampler = match row.profiler {
                SlowdownProfiler::Phpprof { rate_hz } => Some(sampler(pages.pid()?, rate_hz)?),
                _ => None,
            };
            return Ok(Some(Self::Pages {
                pages,
                sampler,
                cookie: format!(
                    "profiled={}; XDEBUG_TRIGGER=1",
                    row.profiler.rate_hz().unwrap_or(1)
                ),
            }));
        }
        let mut command = php(&asked.php, &setting, one_cpu)?;
        Ok(Some(match row.profiler {
            SlowdownProfiler::Phpprof { rate_hz } => {
                let target = Counting::start(command, "")?;
                let sampler = sampler(target.pid()?, rate_hz)?;
                Self::Sampled { target, sampler }
            }
            SlowdownProfiler::Excimer { rate_hz } => {
                Self::Itself(Counting::start(command, &format!("excimer={rate_hz}"))?)
            }
            SlowdownProfiler::Xdebug => {
                // One file, which each request overwrites.
                command.args(XDEBUG.iter().flat_map(|setting| ["-d", setting]));
                Self::ByRequest {
                    server: ServingProgram::start(command)?,
                    asked: "XDEBUG_TRIGGER=1",
                }
            }
            SlowdownProfiler::Tideways => Self::ByRequest {
                server: ServingProgram::start(command)?,
                asked: "tideways=1",
            },
        }))
    }

    /// One turn, with or without profiling.
    fn turn(&mut self, on: bool, log: &mut Log) -> Result<()> {
        let said = match self {
            Self::Sampled { target, sampler } => {
                sampler.switch(on)?;
                log.switch(monotonic()?, on);
                std::thread::sleep(TURN);
                target.lines()?
            }
            Self::Pages {
                pages,
                sampler,
                cookie,
            } => {
                let cookie = match sampler {
                    None if on => cookie.as_str(),
                    _ => "profiled=0",
                };
                if let Some(sampler) = sampler {
                    sampler.switch(on)?;
                }
                log.switch(monotonic()?, on);
                for _ in 0..ROUNDS {
                    let asked = pages.round(cookie)?;
                    log.count(monotonic()?, asked);
                }
                Vec::new()
            }
            Self::Itself(target) => {
                std::thread::sleep(TURN);
                target.lines()?
            }
            Self::ByRequest { server, asked } => {
                log.request(on);
                let seconds = TURN.as_secs_f64();
                server.ask(&format!(
                    "seconds={seconds}&{}",
                    if on { *asked } else { "" }
                ))?
            }
        };
        said.iter().for_each(|line| log.line(line));
        Ok(())
    }
}

/// The clock of PHP's `hrtime`, in nanoseconds.
fn monotonic() -> Result<u64> {
    Ok(u64::try_from(
        Duration::from(ClockId::CLOCK_MONOTONIC.now()?).as_nanos(),
    )?)
}

fn report(
    row: SlowdownRow,
    seconds: u64,
    estimate: Option<Estimate>,
    csv: &mut String,
) -> Result<()> {
    let rate = row
        .profiler
        .rate_hz()
        .map(|rate| rate.to_string())
        .unwrap_or_default();
    let (profiler, target) = (row.profiler.name(), row.program.name());
    write!(csv, "{profiler},{target},{rate},{seconds},")?;
    print!("{:<40} {seconds:>7} ", row.label());
    let Some(estimate) = estimate else {
        println!("{:>6} undecided", "few");
        csv.push_str("0,,,,undecided\n");
        return Ok(());
    };
    let Estimate {
        pairs,
        slowdown_percent,
        half_width_percent,
        nanoseconds_per_call,
    } = estimate;
    let per_call = nanoseconds_per_call.map_or(String::new(), |cost| format!("{cost:.2}"));
    let decided = if is_enough(estimate) {
        ""
    } else {
        " undecided"
    };
    println!(
        "{pairs:>6} {slowdown_percent:>+11.2} ± {half_width_percent:>5.2} % {per_call:>15}{decided}"
    );
    writeln!(
        csv,
        "{pairs},{slowdown_percent:.3},{half_width_percent:.3},{per_call},{}",
        if is_enough(estimate) {
            "decided"
        } else {
            "undecided"
        }
    )?;
    Ok(())
}
