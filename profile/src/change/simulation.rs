//! Simulates runs whose truth is known: how often the verdict is wrong, how often intervals have
//! the true change, and which change is seen in which time.
//!
//! A worker serves one request after another. Requests of a cluster are alike (the share of the
//! variance that is between clusters is [`SimulatedLoad::alike`]), and so are the samples of one
//! function in a cluster. Seeds are fixed, so the numbers here are always the same.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use super::clusters::{ClusterPair, ClusterSide, RouteTime};
use super::report::{
    ALARM_LEVEL, ChangeBasis, ChangeReport, ChangeSettings, ChangeVerdict, RouteLimit,
};
use super::samples::next_random;
use super::verdict::CellComparison;
use crate::proto::Profile;

const RATE: f64 = 99.0;

/// What the workers of one side do.
#[derive(Clone, Copy)]
struct SimulatedLoad {
    pods: u32,
    workers: usize,
    /// Slices of a worker, and how long one is in seconds.
    slices: usize,
    slice: f64,
    /// The mean time of a request in seconds, and the standard deviation of its logarithm.
    request: f64,
    spread: f64,
    /// The part of the variance of requests that their clusters have in common.
    alike: f64,
    /// How much the shares of functions vary between clusters (standard deviation of the
    /// logarithm).
    uneven: f64,
    /// How much pods differ from each other (standard deviation of the logarithm).
    pods_differ: f64,
    /// How much the slices of a pod differ for all of its workers and functions (standard deviation
    /// of the logarithm).
    slices_differ: f64,
}

/// A busy pod with four workers for a minute, whose pages take 0.2 seconds.
const BUSY: SimulatedLoad = SimulatedLoad {
    pods: 1,
    workers: 4,
    slices: 24,
    slice: 2.56,
    request: 0.2,
    spread: 0.6,
    alike: 0.1,
    uneven: 0.3,
    pods_differ: 0.0,
    slices_differ: 0.0,
};

/// The shares of the functions of a request; the last one is the rest.
const SHARES: [f64; 24] = [
    0.2, 0.12, 0.08, 0.06, 0.05, 0.04, 0.04, 0.03, 0.03, 0.02, 0.02, 0.02, 0.015, 0.015, 0.01,
    0.01, 0.01, 0.005, 0.005, 0.005, 0.003, 0.003, 0.003, 0.206,
];
/// The function that becomes more expensive: two percent of a request.
const PLANTED: usize = 10;

struct SeededRandom(u64);

impl SeededRandom {
    fn unit(&mut self) -> f64 {
        ((next_random(&mut self.0) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (TAU * self.unit()).cos()
    }

    /// Its mean is 1.
    fn log_normal(&mut self, spread: f64) -> f64 {
        (spread * self.normal() - spread * spread / 2.0).exp()
    }

    fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 30.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0.0);
        while product > limit {
            product *= self.unit();
            count += 1.0;
        }
        count
    }
}

/// One side, with the planted function this many times as expensive.
fn side(load: &SimulatedLoad, factor: f64, random: &mut SeededRandom) -> ClusterSide {
    let clusters = load.pods as usize * load.workers * load.slices;
    let mut row = vec![RouteTime::default(); clusters];
    let mut functions = vec![BTreeMap::new(); SHARES.len()];
    let planted = SHARES[PLANTED] * (factor - 1.0);
    let (between, within) = (load.alike.sqrt(), (1.0 - load.alike).sqrt());
    let per_pod = load.workers * load.slices;
    let mut factors = |count: usize, spread: f64| -> Vec<f64> {
        // Loads without these draw the same numbers as before.
        let draws = 0..if spread > 0.0 { count } else { 0 };
        draws.map(|_| random.log_normal(spread)).collect()
    };
    let of_pods = factors(load.pods as usize, load.pods_differ);
    let of_slices = factors(load.pods as usize * load.slices, load.slices_differ);
    let factor_of = |cluster: usize| {
        let pod = cluster / per_pod;
        let slice = pod * load.slices + cluster % load.slices;
        of_pods.get(pod).unwrap_or(&1.0) * of_slices.get(slice).unwrap_or(&1.0)
    };
    for (cluster, cell) in row.iter_mut().enumerate() {
        let common = factor_of(cluster) * random.log_normal(load.spread * between);
        // A run meets its workers in the middle of a request.
        let mut busy = -load.request * random.unit();
        while busy < load.slice {
            let request = random.log_normal(load.spread * within);
            busy += load.request * common * request * (1.0 + planted);
            cell.requests += 1.0;
        }
        for (function, times) in functions.iter_mut().enumerate() {
            let share = match function {
                PLANTED => SHARES[function] * factor,
                _ => SHARES[function],
            };
            let seconds = load.slice * share / (1.0 + planted) * random.log_normal(load.uneven);
            let time = random.poisson(seconds * RATE) / RATE * 1e9;
            cell.time += time;
            times.insert((0, cluster), time);
        }
    }
    ClusterSide {
        samples: vec![row.iter().map(|it| it.requests * 10.0).sum()],
        routes: vec![row],
        functions,
        pods: (0..clusters).map(|it| (it / per_pod) as u32).collect(),
    }
}

fn report(
    load: &SimulatedLoad,
    factor: f64,
    settings: &ChangeSettings,
    random: &mut SeededRandom,
) -> ChangeReport {
    let before = side(load, 1.0, random);
    let after = side(load, factor, random);
    let name = |index: usize| (format!("f{index}"), "/srv/a.php".to_owned());
    let pair = ClusterPair {
        routes: vec!["/".to_owned()],
        functions: (0..SHARES.len()).map(name).collect(),
        before,
        after,
    };
    let mut report = ChangeReport::empty(settings);
    let empty = Profile::default();
    CellComparison::of(pair, ChangeBasis::Cells).answer([&empty, &empty], &mut report);
    report
}

/// What many comparisons gave, each in parts of one.
#[derive(Debug, Default)]
struct Rates {
    /// Verdicts `Better` or `Worse`.
    alarms: f64,
    /// Intervals of the time of a request that have its true change.
    covered: f64,
    /// Verdicts `Worse` that name the planted function.
    found: f64,
    /// Verdicts `NoChange`.
    unchanged: f64,
    /// The mean of the smallest change that shows in the time of a request, in percent.
    smallest: f64,
}

fn rates(load: &SimulatedLoad, factor: f64, draws: u32, seed: u64) -> Rates {
    rates_with(&ChangeSettings::default(), load, factor, draws, seed)
}

fn rates_with(
    settings: &ChangeSettings,
    load: &SimulatedLoad,
    factor: f64,
    draws: u32,
    seed: u64,
) -> Rates {
    let mut random = SeededRandom(seed);
    let [mut alarms, mut covered, mut found, mut unchanged] = [0_u32; 4];
    let mut smallest = 0.0;
    let planted = format!("f{PLANTED}");
    let change = 1e9 * load.request * SHARES[PLANTED] * (factor - 1.0);
    for _ in 0..draws {
        let report = report(load, factor, settings, &mut random);
        let is_alarm = matches!(report.verdict, ChangeVerdict::Worse | ChangeVerdict::Better);
        let is_named = report.functions.iter().any(|it| it.name == planted);
        let [low, high] = report.time.interval();
        alarms += u32::from(is_alarm);
        covered += u32::from(low <= change && change <= high);
        unchanged += u32::from(report.verdict == ChangeVerdict::NoChange);
        smallest += report.smallest_percent() / f64::from(draws);
        found += u32::from(is_named && report.verdict == ChangeVerdict::Worse);
    }
    let part = |count: u32| f64::from(count) / f64::from(draws);
    Rates {
        alarms: part(alarms),
        covered: part(covered),
        found: part(found),
        unchanged: part(unchanged),
        smallest,
    }
}

/// Two thousand comparisons of a release with itself.
#[track_caller]
fn check_same(load: &SimulatedLoad) {
    let rates = rates(load, 1.0, 2_000, 7);
    assert!(rates.alarms <= ALARM_LEVEL, "{rates:?}");
    assert!((0.94..=0.96).contains(&rates.covered), "{rates:?}");
}

#[test]
fn same_release_alarms_in_one_percent() {
    check_same(&BUSY);
}

#[test]
fn routes_with_limits_alarm_no_more_often() {
    let settings = ChangeSettings {
        routes: vec![RouteLimit {
            route: "/".to_owned(),
            accepted_percent: 0.0,
            accepted_nanoseconds: 0.0,
        }],
        ..ChangeSettings::default()
    };
    let rates = rates_with(&settings, &BUSY, 1.0, 2_000, 7);
    assert!(rates.alarms <= ALARM_LEVEL, "{rates:?}");
}

#[test]
fn few_clusters_alarm_no_more_often() {
    check_same(&SimulatedLoad { slices: 3, ..BUSY });
}

#[test]
fn long_alike_requests_alarm_no_more_often() {
    check_same(&SimulatedLoad {
        request: 1.5,
        slice: 5.12,
        slices: 12,
        alike: 0.3,
        ..BUSY
    });
}

/// The rows of the table in `docs/guides/compare-releases.md`: pods of four busy workers, seconds,
/// the times that a function of two percent of a request takes as long, and the part of such
/// changes that the verdict finds.
const TABLE: [(u32, usize, f64, f64); 6] = [
    (1, 30, 2.0, 0.95),
    (1, 60, 1.5, 0.8),
    (1, 60, 2.0, 0.95),
    (1, 120, 1.5, 0.95),
    (2, 60, 1.5, 0.95),
    (4, 60, 1.5, 0.95),
];

#[test]
fn changes_are_found_as_documented() {
    for (pods, seconds, factor, promised) in TABLE {
        let slices = (seconds as f64 / BUSY.slice).round() as usize;
        // More clusters would become longer slices.
        let doubled = (0..8)
            .rev()
            .find(|it| pods as usize * 4 * (slices >> it) >= 96)
            .unwrap_or(0);
        let load = SimulatedLoad {
            pods,
            slices: slices >> doubled,
            slice: BUSY.slice * f64::from(1 << doubled),
            ..BUSY
        };
        let rates = rates(&load, factor, 200, 7);
        assert!(
            rates.found >= promised,
            "{pods} {seconds} {factor} {rates:?}"
        );
    }
}

/// The limits that `docs/guides/compare-releases.md` names: loads whose clusters are alike in a
/// way that the error does not know, and the part of comparisons that may be an alarm.
#[test]
fn alike_clusters_alarm_as_documented() {
    let pods = |pods: u32| SimulatedLoad {
        pods,
        slices: 24 / pods as usize,
        slice: 2.56 * f64::from(pods),
        pods_differ: 0.08,
        ..BUSY
    };
    let slices = SimulatedLoad {
        slices_differ: 0.2,
        ..BUSY
    };
    for (load, most) in [
        (pods(2), 0.20),
        (pods(4), 0.08),
        (pods(8), 0.05),
        (slices, 0.06),
    ] {
        let rates = rates(&load, 1.0, 400, 7);
        assert!(rates.alarms <= most, "{rates:?}");
    }
}

#[test]
fn unchanged_time_shows_as_documented() {
    let rates = rates(&BUSY, 1.0, 400, 7);
    assert!((14.0..16.0).contains(&rates.smallest), "{rates:?}");
    assert!(rates.unchanged <= 0.02, "{rates:?}");
}
