//! Two phases below a recursion that is deeper than a sample shows, on this machine's PHP 8.2: the
//! outermost frames say which phase each sample is of (`../shared/cases/c-15`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::record;
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Lookup, TRUNCATED, decode};
use phpprof_testing::Running;

use crate::options::options;

/// Twice as long in one phase as in the other; the recursion itself takes equally long in both.
const PHASES: &str = r"
ini_set('memory_limit', '-1');
function descend($left, $seconds) {
    if ($left > 0) { return descend($left - 1, $seconds) + 1; }
    for ($until = microtime(true) + $seconds; microtime(true) < $until;) { md5(str_repeat('x', 2000)); }
    return 0;
}
function parseFile($depth) { return descend($depth, 0.4); }
function analyzeFile($depth) { return descend($depth, 0.2); }
while (true) { parseFile((int) $argv[1]); analyzeFile((int) $argv[1]); }
";

#[test]
fn deep_recursion_keeps_what_it_runs_for() -> Result<()> {
    for depth in ["900", "6000", "50000"] {
        check(depth).with_context(|| format!("{depth} frames"))?;
    }
    Ok(())
}

fn check(depth: &str) -> Result<()> {
    let mut command = std::process::Command::new("/usr/bin/php8.2");
    let target = Running::start(command.args(["-r", PHASES, depth]))?;
    let scope = Scope::Pids(vec![target.pid()]);
    let recording = record(&options(scope, 199, Duration::from_secs(6)))?;
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let (mut all, mut parse, mut analyze, mut left_out) = (0, 0, 0, 0);
    for sample in &profile.sample {
        let count = *sample.value.first().context("no values")?;
        let frames: Vec<_> = lookup.frames(sample).collect();
        let has = |name: &str| frames.iter().any(|frame| frame.name == name);
        ensure!(
            !(has("parseFile") && has("analyzeFile")),
            "both phases in one stack"
        );
        all += count;
        parse += if has("parseFile") { count } else { 0 };
        analyze += if has("analyzeFile") { count } else { 0 };
        let mark = frames.iter().find(|frame| frame.name == TRUNCATED);
        left_out = left_out.max(mark.map_or(0, |frame| frame.line));
    }
    let named = 100 * (parse + analyze) / all;
    // With 50,000 frames, about 1.7 % are `[unstable]` without a caller.
    ensure!(named >= 95, "{named} % of {all} samples have a phase");
    // Of six seconds, one phase of at most 0.4 s is cut at the end: 5 points. A deviation by chance
    // is 1.4 points at most.
    let share = 100 * parse / (parse + analyze);
    ensure!((58..=76).contains(&share), "{share} % in the longer phase");
    let frames: i64 = depth.parse()?;
    let expected = (frames - 4096 - 64).max(0);
    ensure!(
        left_out <= expected && 2 * left_out >= expected,
        "at least {left_out} frames are left out of {frames}"
    );
    Ok(())
}
