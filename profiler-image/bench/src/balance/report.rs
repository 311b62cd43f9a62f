//! The results in words and as CSV: pure, except that it prints.

use std::fmt::Write as _;

use super::chance::{deviation, independent};
use super::check::{BalanceVerdict, class_name, words};
use super::clocks::ClockedShare;
use super::compared::{CLASSES, ComparedFunction, Comparison, slope};
use super::profile::ShareProfile;
use crate::sampled::UNSTABLE;

pub const COLUMNS: &str = "php,target,mode,rate_hz,functions,stops,samples,independent,unstable_percent,distance_points,chance_points,chance_99_points,worst_function,worst_true_self,worst_our_self,worst_true_total,worst_our_total,worst_beyond_points,slope,clock_deviations,drift_deviations,below_0.1_us_true,below_0.1_us,below_0.3_us_true,below_0.3_us,below_1_us_true,below_1_us,below_3_us_true,below_3_us,below_10_us_true,below_10_us,above_true,above";
pub const FUNCTION_COLUMNS: &str = "php,target,mode,rate_hz,function,kind,nanoseconds_a_call,nanoseconds_alone,true_self,our_self,true_total,our_total,deviation_self,deviation_total";

/// How a comparison was made.
#[derive(Debug, Clone, Copy)]
pub struct RowNames<'name> {
    pub php: &'name str,
    pub target: &'name str,
    pub mode: &'name str,
    pub rate: u32,
}

/// What was found beside the shares.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopsBeside {
    /// The clocks' worst disagreement with the stops.
    pub clock_deviations: f64,
    /// The worst difference between the stops before and after the samples.
    pub drift_deviations: f64,
}

impl StopsBeside {
    pub fn of(halves: &[ShareProfile; 2], clocked: &[ClockedShare]) -> Self {
        Self {
            clock_deviations: clocked
                .iter()
                .map(ClockedShare::deviations)
                .fold(0.0, f64::max),
            drift_deviations: drift(halves),
        }
    }
}

/// The worst difference of two halves of the truth, in deviations.
fn drift(halves: &[ShareProfile; 2]) -> f64 {
    let [before, after] = halves;
    let others = after.shares();
    let mut worst: f64 = 0.0;
    for (name, share) in before.shares() {
        let other = others.get(name).copied().unwrap_or_default();
        for [one, other] in [[share.own, other.own], [share.total, other.total]] {
            let spread = deviation((one + other) / 2.0, before.count(), after.count());
            worst = worst.max((one - other).abs() / spread.max(0.01));
        }
    }
    worst
}

/// Prints a line, and the worst function; returns the rows of both CSV files.
pub fn report(
    names: RowNames,
    comparison: &Comparison,
    beside: StopsBeside,
    deviations: f64,
) -> [String; 2] {
    let functions = &comparison.functions;
    let worst = worst(functions, deviations);
    let [chance, chance_99] = comparison.distance_by_chance();
    let slope = slope(functions.iter());
    let unstable = unstable(functions);
    println!(
        "{:<24} {:>6} {:>7} {:>7} {unstable:>8.3}% {:>8.2} {chance:>6.2} {slope:>6.3} {:>6.1} {:>6.1}  {}",
        comparison.label,
        comparison.stops,
        comparison.samples,
        independent(comparison.samples, comparison.worth),
        comparison.distance(),
        beside.clock_deviations,
        beside.drift_deviations,
        worst.map_or(String::new(), |worst| words(worst, deviations))
    );
    let RowNames {
        php,
        target,
        mode,
        rate,
    } = names;
    let mut row = format!(
        "{php},{target},{mode},{rate},{},{},{},{},{unstable:.3},{:.3},{chance:.3},{chance_99:.3}",
        counted(functions),
        comparison.stops,
        comparison.samples,
        independent(comparison.samples, comparison.worth),
        comparison.distance(),
    );
    if let Some(worst) = worst {
        let _ = write!(
            row,
            ",{},{:.3},{:.3},{:.3},{:.3},{:.3}",
            quoted(&worst.name),
            worst.truth.own,
            worst.ours.own,
            worst.truth.total,
            worst.ours.total,
            worst.beyond(deviations)
        );
    }
    let _ = write!(
        row,
        ",{slope:.4},{:.2},{:.2}",
        beside.clock_deviations, beside.drift_deviations
    );
    for [truth, ours] in comparison.classes() {
        let _ = write!(row, ",{truth:.3},{ours:.3}");
    }
    row.push('\n');
    [row, function_rows(names, functions)]
}

/// The function that is farthest beyond its bound.
fn worst(functions: &[ComparedFunction], deviations: f64) -> Option<&ComparedFunction> {
    let beyond = |function: &ComparedFunction| function.beyond(deviations);
    let functions = functions.iter();
    functions.max_by(|one, other| beyond(one).total_cmp(&beyond(other)))
}

/// How many functions are compared.
fn counted(functions: &[ComparedFunction]) -> usize {
    let functions = functions.iter();
    functions.filter(|function| function.is_counted()).count()
}

/// The share of `[unstable]`.
fn unstable(functions: &[ComparedFunction]) -> f64 {
    let found = functions.iter().find(|function| function.name == UNSTABLE);
    found.map_or(0.0, |function| function.ours.own)
}

/// The rows of the functions.
fn function_rows(names: RowNames, functions: &[ComparedFunction]) -> String {
    let RowNames {
        php,
        target,
        mode,
        rate,
    } = names;
    let mut rows = String::new();
    for function in functions {
        let [taken, alone] = [function.taken, function.alone]
            .map(|taken| taken.map_or(String::new(), |taken| format!("{taken:.0}")));
        let _ = writeln!(
            rows,
            "{php},{target},{mode},{rate},{},{},{taken},{alone},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
            quoted(&function.name),
            function.kind,
            function.truth.own,
            function.ours.own,
            function.truth.total,
            function.ours.total,
            function.spread.own,
            function.spread.total
        );
    }
    rows
}

/// Prints the head of the table.
pub fn head() {
    println!(
        "{:<24} {:>6} {:>7} {:>7} {:>9} {:>8} {:>6} {:>6} {:>6} {:>6}  worst function",
        "shares of",
        "stops",
        "samples",
        "as many",
        "unstable",
        "distance",
        "chance",
        "slope",
        "clocks",
        "drift"
    );
}

/// Prints what a table says.
pub fn conclude(mode: &str, verdict: &BalanceVerdict) {
    println!(
        "{mode}: {} of {} functions are off; chance does up to {:.2} deviations; slope {:.3}",
        verdict.off, verdict.compared, verdict.deviations, verdict.slope
    );
    for (class, [truth, ours]) in (0..CLASSES).zip(verdict.classes) {
        println!(
            "    {:<18} {truth:>6.2} % in truth, {ours:>6.2} % sampled: {:.3} of it",
            class_name(class),
            ours / truth.max(f64::MIN_POSITIVE)
        );
    }
}

/// A field of CSV.
fn quoted(name: &str) -> String {
    if name.contains([',', '"']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}
