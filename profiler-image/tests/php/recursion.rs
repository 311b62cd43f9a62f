//! A recursion with several call sites, on this machine's PHP 8.2: nearly each sample has a call
//! path of its own, and no table may lose them (`../shared/cases/c-05`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::record;
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Lookup, decode};
use phpprof_testing::Running;

use crate::options::options;

/// Two call sites and a depth of 22: four million call paths. After some seconds it also runs what
/// nobody has seen before.
const WALK: &str = r"
function mix($seed) { return crc32(str_repeat(chr(65 + ($seed & 15)), 200)) & 7; }
function walk($depth, $seed) {
    if ($depth === 0) { return mix($seed); }
    $left = walk($depth - 1, $seed * 3 + 1 & 0xffff);
    $right = walk($depth - 1, $seed * 5 + 2 & 0xffff);
    return $left ^ $right;
}
function later() { return walk(22, mt_rand() & 0xffff); }
$until = microtime(true) + 9;
while (microtime(true) < $until) { walk(22, mt_rand() & 0xffff); }
while (true) { later(); }
";

#[test]
fn recursion_fills_no_table() -> Result<()> {
    let mut command = std::process::Command::new("/usr/bin/php8.2");
    let target = Running::start(command.args(["-r", WALK]))?;
    let scope = Scope::Pids(vec![target.pid()]);
    let recording = record(&options(scope, 999, Duration::from_secs(14)))?;
    let snapshot = recording.snapshot();
    let bytes = output(&snapshot, &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let (mut all, mut with_walk, mut with_later, mut lost) = (0, 0, 0, 0);
    for sample in &profile.sample {
        let count = *sample.value.first().context("no values")?;
        let has = |name: &str| lookup.frames(sample).any(|frame| frame.name == name);
        all += count;
        with_walk += if has("walk") { count } else { 0 };
        with_later += if has("later") { count } else { 0 };
        lost += if has("[over the memory cap]") {
            count
        } else {
            0
        };
    }
    ensure!(lost == 0, "{lost} of {all} samples are over the memory cap");
    ensure!(
        with_walk * 100 >= all * 98,
        "{with_walk} of {all} samples are in walk"
    );
    ensure!(
        with_later * 10 >= all,
        "{with_later} of {all} samples are in later"
    );
    ensure!(
        recording.sampler.quality.folded > 0,
        "the table has not filled"
    );
    Ok(())
}
