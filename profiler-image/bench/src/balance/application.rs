//! Applications under php-fpm with one worker and one client, compared with stops of the worker.

use std::fs::read_to_string;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;
use phpprof_bench::workload::{BenchWorkload, DOKUWIKI, MEDIAWIKI};

use super::compared::Comparison;
use super::measure::Extent;
use super::profile::ShareProfile;
use super::sample::{ReadBy, sample};
use super::stops::{StopPauses, stops, worth_of_a_sample};
use crate::stopped::ScheduleCounts;
use crate::wikis::start;

pub const APPLICATIONS: [BenchWorkload; 2] = [DOKUWIKI, MEDIAWIKI];
pub const RATES: [u32; 2] = [999, 99];
/// Filling caches is not measured.
const WARM: Duration = Duration::from_secs(10);

impl Extent {
    /// So many that chance makes a distance of two points at most: applications have hundreds of
    /// leaves.
    pub fn of_application(full: bool) -> Self {
        let [stops, samples] = if full {
            [300_000, 300_000]
        } else {
            [6000, 6000]
        };
        Self { stops, samples }
    }
}

/// Compares an application at these rates; the stops are before, between and after the samples.
pub fn measure_application(
    workload: BenchWorkload,
    rates: &[u32],
    extent: Extent,
) -> Result<Vec<(u32, Comparison, [ShareProfile; 2])>> {
    let mut target = start(workload, 1)?;
    let master = target.pids().first().copied().context("no php-fpm runs")?;
    let worker = only_child(master)?;
    std::thread::sleep(WARM);
    let part = extent.stops / (1 + rates.len() as u64);
    let mut truths = vec![stops(worker, part, StopPauses::OF_REQUESTS, 1, false)?];
    let mut sampled = Vec::new();
    for (number, &rate) in rates.iter().enumerate() {
        let begin = ScheduleCounts::of(worker)?;
        let seconds = (extent.samples / u64::from(rate)).clamp(1, 300);
        let ours = sample(Pid::from_raw(master), rate, seconds, ReadBy::Call, false)?;
        let worth = worth_of_a_sample(begin, ScheduleCounts::of(worker)?, ours.count());
        sampled.push((rate, ours, worth));
        truths.push(stops(
            worker,
            part,
            StopPauses::OF_REQUESTS,
            2 + number as u64,
            false,
        )?);
        target.check()?;
    }
    let mut truth = ShareProfile::default();
    truths.iter().for_each(|one| truth.extend(one));
    let halves = [&truths[0], &truths[truths.len() - 1]].map(Clone::clone);
    let compared = |(rate, ours, worth): (u32, ShareProfile, f64)| {
        let label = format!("{} {rate} Hz", workload.name);
        let known = std::collections::BTreeMap::new();
        let comparison = Comparison::of(label, &truth, &ours, worth, &known, 0.0);
        (rate, comparison, halves.clone())
    };
    Ok(sampled.into_iter().map(compared).collect())
}

fn only_child(parent: i32) -> Result<Pid> {
    let children = read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    let child = children
        .split_whitespace()
        .next()
        .context("php-fpm has no worker")?;
    Ok(Pid::from_raw(child.parse()?))
}
