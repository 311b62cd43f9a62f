//! Comparisons of an application with itself: how often a verdict alarms, how often its intervals
//! have the true change, which is none, and which planted change it finds in which time.
//!
//! An application runs under php-fpm with one client, and is recorded in many runs. Each comparison
//! draws its two sides from the cells of all runs, and no cell is on both sides ([`drawn`]). So
//! what changes slowly on the machine is the same on both sides, and everything else is as in two
//! runs: how much requests differ, and how alike those of one slice and the samples of one request
//! are.

mod drawn;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use drawn::{CellPool, PlantedCost};
use nix::unistd::Pid;
use phpprof::deliver::timeline::timeline;
use phpprof::request::asked::SampleLabel;
use phpprof::run::RecordingOptions;
use phpprof_bench::workload::{BenchWorkload, DOKUWIKI, MEDIAWIKI};
use phpprof_profile::Profile;
use phpprof_profile::change::{
    ChangeMeasure, ChangeReport, ChangeSettings, ChangeSide, ChangeVerdict, compare,
};
use phpprof_profile::timeline::CellTable;

use crate::BenchArguments;
use crate::balance::draws::Draws;
use crate::sampled::{options, record};
use crate::wikis::start;

const COLUMNS: &str = "application,measure,runs,seconds,change_percent,comparisons,alarms,undecided,of_total,of_routes,found,smallest_percent";
const RATE_HZ: u32 = 99;
/// php-fpm's workers, of which one is busy at a time.
const WORKERS: usize = 4;
/// As long as users record by default, twice.
const RUN: Duration = Duration::from_secs(60);
const RUNS: u32 = 24;
/// Comparisons of a row.
const COMPARISONS: u32 = 200;
/// The most alarms of them.
const MOST_ALARMS: u32 = 4;
/// The parts of the intervals of routes that have the true change.
const COVERED: [f64; 2] = [0.9, 0.98];
/// The seconds of a side.
const SECONDS: [u64; 4] = [30, 60, 120, 240];
/// How many times as expensive the planted function is.
const FACTORS: [f64; 2] = [1.5, 2.0];
/// Its share of a request is next to this one.
const PLANTED_SHARE: f64 = 0.02;

/// What the comparisons of a row came to.
#[derive(Default)]
struct VerdictCounts {
    comparisons: u32,
    /// `Worse` or `Better`.
    alarms: u32,
    /// `Inconclusive`.
    undecided: u32,
    /// Intervals of the time of a request that have the true change.
    of_total: u32,
    /// The same of single routes, and all of these.
    of_routes: [u32; 2],
    /// `Worse`, with the planted function.
    found: u32,
    /// The sum of the smallest changes that could have been seen.
    smallest_percent: f64,
}

impl VerdictCounts {
    fn add(&mut self, report: &ChangeReport, planted: &PlantedCost) {
        self.comparisons += 1;
        let is_worse = report.verdict == ChangeVerdict::Worse;
        self.alarms += u32::from(is_worse || report.verdict == ChangeVerdict::Better);
        self.undecided += u32::from(report.verdict == ChangeVerdict::Inconclusive);
        let true_change = planted.nanoseconds;
        let has = |[low, high]: [f64; 2]| low <= true_change && true_change <= high;
        self.of_total += u32::from(has(report.time.interval()));
        if planted.is_none() {
            for route in &report.routes {
                self.of_routes[0] += u32::from(has(route.time.interval()));
                self.of_routes[1] += 1;
            }
        }
        let mut functions = report.functions.iter();
        self.found += u32::from(is_worse && functions.any(|it| it.name == planted.function));
        self.smallest_percent += report.smallest_percent();
    }

    fn part(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.comparisons.max(1))
    }

    /// `None` with a change: that of a single route is not known.
    fn of_routes(&self) -> Option<f64> {
        let [covered, all] = self.of_routes;
        (all > 0).then(|| f64::from(covered) / f64::from(all))
    }

    /// The limits that comparisons without a change break.
    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.alarms > MOST_ALARMS {
            broken.push(format!("{} alarms, {MOST_ALARMS} allowed", self.alarms));
        }
        let [least, most] = COVERED;
        let covered = self.of_routes().unwrap_or(0.0);
        if covered < least || covered > most {
            broken.push(format!(
                "{:.1} % of the intervals of routes have the true change, {:.0} to {:.0} allowed",
                100.0 * covered,
                100.0 * least,
                100.0 * most
            ));
        }
        broken
    }
}

/// The rows that break their limits, in words.
pub fn run(asked: &BenchArguments) -> Result<Vec<String>> {
    let mut csv = format!("{COLUMNS}\n");
    let mut failures = Vec::new();
    println!(
        "{:<16} {:>4} {:>4} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "comparisons of",
        "s",
        "runs",
        "change",
        "alarms",
        "undecided",
        "of total",
        "of routes",
        "found",
        "smallest"
    );
    for workload in [DOKUWIKI, MEDIAWIKI] {
        if !asked.wants(workload.name) {
            continue;
        }
        let tables = recorded(workload)?;
        for measure in [ChangeMeasure::Wall, ChangeMeasure::Cpu] {
            let pool = CellPool::of(&tables, measure);
            let rows = rows(&pool);
            for (seconds, planted) in rows {
                let counts = compared(&pool, measure, seconds, &planted);
                let label = format!("{} {}", workload.name, measure.name());
                print(&label, tables.len(), seconds, &planted, &counts);
                write_row(
                    &mut csv,
                    workload,
                    measure,
                    tables.len(),
                    seconds,
                    &planted,
                    &counts,
                )?;
                if planted.is_none() {
                    let broken = counts.broken();
                    failures.extend(broken.iter().map(|it| format!("{label} {seconds} s: {it}")));
                }
            }
        }
    }
    asked.write(&csv)?;
    Ok(failures)
}

/// The seconds and the change of each row of an application.
fn rows(pool: &CellPool) -> Vec<(u64, PlantedCost)> {
    let seconds = SECONDS.into_iter().filter(|it| pool.has_room(*it));
    let changes = |seconds: u64| {
        let planted = FACTORS.map(|factor| pool.planted(PLANTED_SHARE, factor));
        let all = [PlantedCost::default()].into_iter().chain(planted);
        all.map(move |planted| (seconds, planted))
    };
    seconds.flat_map(changes).collect()
}

/// The cells of all runs of an application.
fn recorded(workload: BenchWorkload) -> Result<Vec<CellTable>> {
    let runs = match std::env::var("VERDICT_RUNS") {
        Ok(runs) => runs.parse().context("VERDICT_RUNS is a number")?,
        Err(_) => RUNS,
    };
    let mut target = start(workload, WORKERS)?;
    let master = target.pids().first().copied().context("no php-fpm runs")?;
    let mut tables = Vec::new();
    for run in 0..=runs {
        let mut options: RecordingOptions = options(Pid::from_raw(master), RATE_HZ, RUN, false)?;
        options.requests.labels[SampleLabel::Route as usize] = true;
        options.requests.labels[SampleLabel::Method as usize] = true;
        let mut recording = record(&options)?;
        target.check()?;
        let snapshot = recording.snapshot();
        let recorder = recording
            .recorder
            .take()
            .context("no requests were recorded")?;
        let cells = timeline(recorder, &snapshot).cells;
        // The first run fills caches.
        if run > 0 {
            tables.push(cells.context("a list without cells")?);
        }
    }
    ensure!(!tables.is_empty(), "VERDICT_RUNS is 0");
    Ok(tables)
}

fn compared(
    pool: &CellPool,
    measure: ChangeMeasure,
    seconds: u64,
    planted: &PlantedCost,
) -> VerdictCounts {
    let settings = ChangeSettings {
        measure,
        ..ChangeSettings::default()
    };
    // Callers are not compared.
    let profile = Profile::default();
    let mut draws = Draws::new(7);
    let mut counts = VerdictCounts::default();
    for _ in 0..COMPARISONS {
        let [before, after] = pool.sides(seconds, planted, &mut draws);
        let side = |cells| ChangeSide {
            profile: &profile,
            cells: Some(cells),
            requests: None,
        };
        let report = compare(side(&before), side(&after), &settings);
        counts.add(&report, planted);
    }
    counts
}

fn print(label: &str, runs: usize, seconds: u64, planted: &PlantedCost, counts: &VerdictCounts) {
    let percent = |part: f64| 100.0 * part;
    let of_routes = counts.of_routes();
    let of_routes = of_routes.map_or_else(|| "-".to_owned(), |it| format!("{:.1}%", percent(it)));
    println!(
        "{label:<16} {seconds:>4} {runs:>4} {:>7.2}% {:>6.1}% {:>8.1}% {:>8.1}% {of_routes:>9} {:>8.1}% {:>8.2}%",
        planted.percent,
        percent(counts.part(counts.alarms)),
        percent(counts.part(counts.undecided)),
        percent(counts.part(counts.of_total)),
        percent(counts.part(counts.found)),
        counts.smallest_percent / f64::from(counts.comparisons.max(1)),
    );
}

fn write_row(
    csv: &mut String,
    workload: BenchWorkload,
    measure: ChangeMeasure,
    runs: usize,
    seconds: u64,
    planted: &PlantedCost,
    counts: &VerdictCounts,
) -> Result<()> {
    writeln!(
        csv,
        "{},{},{runs},{seconds},{:.3},{},{},{},{:.4},{},{},{:.3}",
        workload.name,
        measure.name(),
        planted.percent,
        counts.comparisons,
        counts.alarms,
        counts.undecided,
        counts.part(counts.of_total),
        counts
            .of_routes()
            .map_or_else(String::new, |it| format!("{it:.4}")),
        counts.found,
        counts.smallest_percent / f64::from(counts.comparisons.max(1)),
    )?;
    Ok(())
}
