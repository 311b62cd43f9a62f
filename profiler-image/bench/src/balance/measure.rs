//! Runs a program, stops it, and samples it between the stops.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::clocks::{ClockReadings, clock_script};
use super::compared::Comparison;
use super::mode::Mode;
use super::peer::{Peer, plain_names};
use super::profile::ShareProfile;
use super::program::{DrawnProgram, write_files};
use super::sample::sample;
use super::stops::{StopPauses, stops, worth_of_a_sample};
use super::text::{render_counted, script};
use crate::CPUS;
use crate::running::{PhpProgram, RunningTarget};
use crate::stopped::ScheduleCounts;

/// From 8.4 on the engine calls some functions without a frame.
const FRAMELESS_SINCE: u32 = 80_400;

/// How much of a program is measured.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    pub stops: u64,
    pub samples: u64,
}

impl Extent {
    pub fn of(full: bool) -> Self {
        if full {
            Self {
                stops: 20_000,
                samples: 20_000,
            }
        } else {
            Self {
                stops: 6000,
                samples: 6000,
            }
        }
    }

    /// How long sampling takes at this rate, a hundred seconds at most.
    pub fn seconds(self, rate: u32) -> u64 {
        (self.samples / u64::from(rate)).clamp(1, 100)
    }
}

/// What was found in a program.
pub struct Measured {
    pub program: DrawnProgram,
    pub comparison: Comparison,
    /// The truth before the samples, and after them.
    pub halves: [ShareProfile; 2],
    pub truth: ShareProfile,
    pub clocks: ClockReadings,
    /// Samples of calls without a frame.
    pub frameless: u64,
    /// Comparisons of peers, and ours with their names first; none without peers.
    pub peers: Vec<(String, Comparison)>,
}

/// Measures a program, with these peers in turn.
pub fn measure(
    php: &PhpProgram,
    mode: &Mode,
    seed: u64,
    extent: Extent,
    peers: &[Peer],
) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let program = DrawnProgram::of(seed);
    program.write(folder.path())?;
    count(php, mode, &program, folder.path())?;
    let clocks = read_clocks(php, mode, folder.path(), seed)?;
    let options = mode.options();
    let target = RunningTarget::script_in(php, &options, folder.path(), &script(seed), CPUS[1])?;
    let pid = target.pid()?;
    // The machine gets faster and slower meanwhile, so the samples are between two halves.
    let pauses = StopPauses::of_round(clocks.round);
    let before = stops(pid, extent.stops / 2, pauses, 2 * seed, true)?;
    let begin = ScheduleCounts::of(pid)?;
    let mut ours = sample(pid, mode.rate, extent.seconds(mode.rate), mode.reads, true)?;
    let worth = worth_of_a_sample(begin, ScheduleCounts::of(pid)?, ours.count());
    let mut by_peers = Vec::new();
    for peer in peers {
        let theirs = peer.sample(pid, mode.rate, extent.seconds(mode.rate))?;
        by_peers.push((peer.name.clone(), theirs));
    }
    let after = stops(pid, extent.stops / 2, pauses, 2 * seed + 1, true)?;
    let mut truth = before.clone();
    truth.extend(&after);
    let frameless = if php.version >= FRAMELESS_SINCE {
        ours.fold_frameless(&truth)
    } else {
        0
    };
    let label = format!("program {seed} {}", mode.name);
    let mut comparison = Comparison::of(
        label,
        &truth,
        &ours,
        worth,
        &program.functions,
        clocks.round,
    );
    add_times_alone(&mut comparison, &program, &clocks);
    let peers = compare_peers(seed, by_peers, [&truth, &ours], worth);
    Ok(Measured {
        program,
        comparison,
        halves: [before, after],
        truth,
        clocks,
        frameless,
        peers,
    })
}

/// Adds how long functions take that were looped alone.
fn add_times_alone(comparison: &mut Comparison, program: &DrawnProgram, clocks: &ClockReadings) {
    for function in &mut comparison.functions {
        let mut names = program.text.names.iter();
        let unit = names.position(|name| *name == function.name);
        function.alone = unit.and_then(|unit| clocks.alone(unit));
    }
}

/// The shares of peers, and ours by the names that they have, compared with the truth.
fn compare_peers(
    seed: u64,
    mut by_peers: Vec<(String, ShareProfile)>,
    [truth, ours]: [&ShareProfile; 2],
    worth: f64,
) -> Vec<(String, Comparison)> {
    if !by_peers.is_empty() {
        by_peers.insert(0, ("phpprof".to_owned(), plain_names(ours)));
    }
    let plain_truth = plain_names(truth);
    let by_name = |(name, theirs): (String, ShareProfile)| {
        let label = format!("program {seed} {name}");
        let known = BTreeMap::new();
        let compared = Comparison::of(label, &plain_truth, &theirs, worth, &known, 0.0);
        (name, compared)
    };
    by_peers.into_iter().map(by_name).collect()
}

/// What the program's own clocks say, in the same mode.
fn read_clocks(php: &PhpProgram, mode: &Mode, folder: &Path, seed: u64) -> Result<ClockReadings> {
    let script = clock_script(seed);
    let mut clock = RunningTarget::script_in(php, &mode.options(), folder, &script, CPUS[1])?;
    ClockReadings::parse(&clock.finish()?).with_context(|| script)
}

/// An error if a round of the program calls its units otherwise than it is said to.
fn count(php: &PhpProgram, mode: &Mode, program: &DrawnProgram, folder: &Path) -> Result<()> {
    let folder = folder.join("counted");
    let script = script(program.plan.seed);
    write_files(&folder, &render_counted(&program.plan))?;
    let mut counting = RunningTarget::script_in(php, &mode.options(), &folder, &script, CPUS[1])?;
    let said = counting.finish()?;
    let counted: BTreeMap<usize, u64> = serde_json::from_str(&said)
        .with_context(|| format!("{script} counts its calls as {said:?}"))?;
    let counted: Vec<u64> = counted.into_values().collect();
    let expected = program.plan.counts().units;
    ensure!(
        counted == expected,
        "{script} calls its units {counted:?} times a round, and is said to call them {expected:?} times"
    );
    Ok(())
}
