//! The table on the screen. Pure.

use crate::row::BenchRow;

/// The first lines of the table.
pub const HEAD: &str = concat!(
    "                                           of due     busy  µs a sample   of one   gathers vectors    calls  opens allocat. unstable  wrong   RSS    idle\n",
    "cell                            profiler    taken  samples   all steady     core         a sample          a s. a sample          samples  MiB gathers"
);

/// A row as a line of it.
#[must_use]
pub fn line(row: &BenchRow) -> String {
    let counts = row.counts.as_ref();
    let percent = |part: u64, of: u64| 100.0 * part as f64 / (of as f64).max(1.0);
    let number = |number: Option<f64>, digits: usize| {
        number.map_or("-".to_owned(), |number| format!("{number:.digits$}"))
    };
    let unstable = row.unstable.filter(|_| row.busy > 0);
    let mut line = format!(
        "{:<31} {:<8} {:>6.1}% {:>8} {:>5} {:>6} {:>6.1}% {:>8} {:>7} {:>8} {:>6} {:>8} {:>8} {:>6} {:>5.1} {:>7}",
        row.cell.label(),
        row.profiler,
        percent(row.taken, row.due),
        row.busy,
        number(row.cpu_us_per_sample(), 0),
        number(counts.and_then(|counts| counts.cpu_us_per_sample()), 0),
        row.core_percent(),
        number(counts.and_then(|counts| counts.gathers_per_sample()), 2),
        number(counts.and_then(|counts| counts.vectors_per_sample()), 1),
        number(row.calls_per_sample(), 1),
        number(counts.and_then(|counts| counts.opens_per_second()), 0),
        number(counts.and_then(|counts| counts.allocations_per_sample()), 2),
        unstable.map_or("-".to_owned(), |unstable| format!(
            "{:.2}%",
            percent(unstable, row.busy)
        )),
        row.wrong
            .map_or("-".to_owned(), |wrong| (wrong.edges + wrong.truncated)
                .to_string()),
        row.resident_kib as f64 / 1024.0,
        number(counts.and_then(|counts| counts.gathers_per_idle_turn()), 2),
    );
    let asked = f64::from(row.cell.rate);
    if let Some(rate) = row.effective_rate.filter(|&rate| rate < 0.99 * asked) {
        line += &format!("\n    the rate fell to {rate:.0} Hz");
    }
    line
}
