//! What a program's own clock says: how long a call takes when it is repeated alone, and how long
//! each part of a round takes within the round: pure.
//!
//! Invariant: only medians are used, so that what another program takes of the CPU counts for none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::chance::deviation;
use super::plan::{Callee, Plan, PlannedCall, Via, cost_of_one, cost_of_unit};
use super::profile::ShareProfile;
use super::statement::{Place, made, statement};

/// How often each part is repeated alone before its time is read, in nanoseconds of all.
const ALONE_NANOSECONDS: u64 = 1_000_000;

/// What the clocks said, in nanoseconds.
#[derive(Debug, Deserialize)]
pub struct ClockReadings {
    /// Reading the clock, between two readings.
    pub reading: f64,
    /// A turn of the loop that repeats a call.
    pub turn: f64,
    /// Each call alone, with that turn, by [`key`].
    pub alone: BTreeMap<String, f64>,
    /// The parts of a round, in the order of [`parts`], each with the readings around it; several
    /// times, one after the other.
    pub parts: Vec<Vec<f64>>,
    /// A round without readings.
    pub round: f64,
}

impl ClockReadings {
    /// What a call of a unit takes when it is repeated alone, in nanoseconds.
    pub fn alone(&self, unit: usize) -> Option<f64> {
        let taken = self.alone.get(&key(Callee::Unit(unit)))?;
        Some(taken - self.turn)
    }

    pub fn parse(said: &str) -> Result<Self> {
        serde_json::from_str(said).with_context(|| format!("the program's clocks said {said:?}"))
    }
}

/// A share that clocks and stops should give alike.
#[derive(Debug, Clone, PartialEq)]
pub struct ClockedShare {
    pub name: String,
    /// With the callees, in percent of a round.
    pub by_clock: f64,
    pub by_stops: f64,
    /// The standard deviation of the stops' share.
    pub spread: f64,
}

impl ClockedShare {
    /// How far they are apart beyond what the calls themselves take, which belongs to the caller
    /// and is within the clocks' time, in deviations.
    pub fn deviations(&self) -> f64 {
        let beside = 0.03 * self.by_clock + 0.1;
        ((self.by_stops - self.by_clock).abs() - beside).max(0.0) / self.spread.max(0.01)
    }
}

/// The shares of functions that only the loop of rounds calls, and whose calls take a microsecond
/// at least: a shorter one takes not much longer than its call. An include is prepared by its
/// caller, which takes as long.
pub fn clocked(
    plan: &Plan,
    names: &[String],
    readings: &ClockReadings,
    truth: &ShareProfile,
) -> Vec<ClockedShare> {
    let name = |callee: Callee| match callee {
        Callee::Unit(number) => names[number].as_str(),
        Callee::Internal(internal) => internal.name,
    };
    let of_units = plan.units.iter().flat_map(|unit| &unit.calls);
    let inner: BTreeSet<&str> = of_units.map(|call| name(call.callee)).collect();
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    let mut by_time: Vec<BTreeMap<&str, f64>> = Vec::new();
    for (call, turns) in parts(plan) {
        *calls.entry(name(call.callee)).or_default() += turns * call.times;
    }
    for at_a_time in &readings.parts {
        let mut taken: BTreeMap<&str, f64> = BTreeMap::new();
        for ((call, turns), part) in parts(plan).zip(at_a_time) {
            *taken.entry(name(call.callee)).or_default() += part - turns as f64 * readings.reading;
        }
        by_time.push(taken);
    }
    let shares = truth.shares();
    let share = |(name, calls): (&str, u64)| {
        let by_clock: Vec<f64> = by_time
            .iter()
            .map(|taken| 100.0 * taken.get(name).unwrap_or(&0.0) / taken.values().sum::<f64>())
            .collect();
        let count = by_clock.len().max(1) as f64;
        let mean = by_clock.iter().sum::<f64>() / count;
        let variance = by_clock.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / count;
        let is_long = mean / 100.0 * readings.round / calls as f64 >= 1000.0;
        is_long.then(|| ClockedShare {
            name: name.to_owned(),
            by_clock: mean,
            by_stops: shares.get(name).map_or(0.0, |share| share.total),
            // The machine's speed changes between clocks and stops as it does between clocks.
            spread: (deviation(mean, truth.count(), u64::MAX).powi(2) + variance).sqrt(),
        })
    };
    let is_outer =
        |&(name, _): &(&str, u64)| !inner.contains(name) && !name.starts_with("include ");
    calls
        .into_iter()
        .filter(is_outer)
        .filter_map(share)
        .collect()
}

/// The file that reads the clocks.
pub fn clock_script(seed: u64) -> String {
    format!("p{seed}-clock.php")
}

/// The parts of a round, and how often each is read in it.
pub fn parts(plan: &Plan) -> impl Iterator<Item = (&PlannedCall, u64)> {
    let in_turns = plan.in_turns.iter().map(|call| (call, plan.turns));
    in_turns.chain(plan.once.iter().map(|call| (call, 1)))
}

/// The name of what is repeated alone.
fn key(callee: Callee) -> String {
    match callee {
        Callee::Unit(number) => format!("f{number}"),
        Callee::Internal(internal) => internal.expression(),
    }
}

/// The calls that are repeated alone: each unit, and each call of an internal function.
fn alone(plan: &Plan) -> BTreeMap<String, PlannedCall> {
    let calls = plan.units.iter().flat_map(|unit| &unit.calls);
    let made = calls.chain(&plan.in_turns).chain(&plan.once);
    let once = |callee| PlannedCall {
        callee,
        via: Via::Direct,
        times: 1,
        is_loop: false,
    };
    made.map(|call| (key(call.callee), once(call.callee)))
        .collect()
}

/// The text of the file that reads the clocks.
pub fn clock_text(plan: &Plan) -> String {
    let mut costs = Vec::new();
    for unit in &plan.units {
        costs.push(cost_of_unit(unit, &costs));
    }
    let mut text = format!(
        "<?php\nrequire __DIR__ . '/p{}-kit.php';\n{MEDIANS}$alone = [\n",
        plan.seed
    );
    let repeated = |statement: &str, times: u64| {
        format!(
            "[{times}, static function () {{ $x = 7; $b = hrtime(true); for ($c = 0; $c < {times}; $c++) {{ {statement} }} return hrtime(true) - $b; }}]"
        )
    };
    for (key, call) in alone(plan) {
        let times = (ALONE_NANOSECONDS / cost_of_one(&call, &costs).max(1)).clamp(4, 20_000);
        let statement = statement(plan, &call, &Place::OUTSIDE);
        let _ = writeln!(
            text,
            "    {} => {},",
            quoted(&key),
            repeated(&statement, times)
        );
    }
    let _ = writeln!(text, "    '' => {},\n];", repeated("", 20_000));
    text.push_str(ALONE);
    text.push_str(&round(plan, true));
    text.push_str(&round(plan, false));
    text + ROUNDS
}

/// A function that runs a round, with the clock read around each part, or only around the round.
fn round(plan: &Plan, is_by_part: bool) -> String {
    let name = if is_by_part { "parts" } else { "whole" };
    let count = parts(plan).count();
    let mut text = format!(
        "function {name}(&$x)\n{{\n    $p = array_fill(0, {count}, 0);\n    $a = hrtime(true);\n"
    );
    let _ = writeln!(text, "    for ($t = 0; $t < {}; $t++) {{", plan.turns);
    for (number, (call, _)) in parts(plan).enumerate() {
        if number == plan.in_turns.len() {
            text.push_str("    }\n");
        }
        let call = made(plan, call, &Place::OUTSIDE, "    ");
        if is_by_part {
            let _ = write!(
                text,
                "    $b = hrtime(true);\n{call}    $p[{number}] += hrtime(true) - $b;\n"
            );
        } else {
            text.push_str(&call);
        }
    }
    if plan.once.is_empty() {
        text.push_str("    }\n");
    }
    let result = if is_by_part {
        "$p"
    } else {
        "hrtime(true) - $a"
    };
    text + &format!("    return {result};\n}}\n")
}

/// A string of PHP.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

const MEDIANS: &str = "\
function median($list) { sort($list); return $list[intdiv(count($list), 2)]; }
";

/// The calls in turn, so that a machine that changes its speed changes it for all.
const ALONE: &str = "\
$read = [];
for ($try = 0; $try < 25; $try++) {
    foreach ($alone as $key => [$times, $repeat]) {
        $read[$key][] = $repeat() / $times;
    }
}
$read = array_map('median', $read);
$readings = [];
for ($try = 0; $try < 1000; $try++) {
    $b = hrtime(true);
    $readings[] = hrtime(true) - $b;
}
";

const ROUNDS: &str = "\
$parts = $rounds = [];
$x = 7;
for ($time = 0; $time < 20; $time++) {
    $by_part = [];
    for ($end = hrtime(true) + 100000000; hrtime(true) < $end;) {
        $by_part[] = parts($x);
        $rounds[] = whole($x);
    }
    $parts[] = array_map(fn ($part) => median(array_column($by_part, $part)), array_keys($by_part[0]));
}
$turn = $read[''];
unset($read['']);
echo json_encode([
    'reading' => median($readings),
    'turn' => $turn,
    'alone' => $read,
    'parts' => $parts,
    'round' => median($rounds),
]);
";
