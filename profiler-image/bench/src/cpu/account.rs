//! CPU time by function: the thread's own measurement, the sampled one, and how far chance can
//! separate the two. Pure.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context, Result};

use crate::sampled::WorkerStack;

/// The functions of `cpu.php`, as named in its stacks.
pub const FUNCTIONS: [&str; 3] = ["counting", "hashing", "waiting"];
const WAITING: usize = 2;
/// The largest allowed CPU time of the waiting function, in percent of all.
const WAITING_PERCENT: f64 = 2.0;
/// In percentage points. A row is too short if chance alone may exceed it.
const TOLERANCE: f64 = 3.0;
/// Chance exceeds this many standard deviations in 3 of 1,000 shares.
const DEVIATIONS: f64 = 3.0;
/// The same of what waits, beside other programs.
const BESIDE_TOLERANCE: f64 = 1.0;
/// In percent of a thread's CPU time.
const TOTAL_TOLERANCE: f64 = 3.0;
/// A thread that waited longer than this for a CPU, in percent of the time, was also runnable while
/// it should have waited for something else.
const MAX_DELAY: f64 = 5.0;
/// In shorter slices the time to wake up matters too much.
pub const MIN_SLICE_MILLISECONDS: u32 = 5;

/// Nanoseconds of CPU time of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Account {
    /// By [`FUNCTIONS`].
    pub functions: [f64; 3],
    pub all: f64,
}

impl Account {
    /// The share of a function, in percent.
    pub fn percent(&self, function: usize) -> f64 {
        100.0 * self.functions[function] / self.all.max(1.0)
    }

    fn add(&mut self, function: Option<usize>, nanoseconds: f64) {
        self.all += nanoseconds;
        if let Some(function) = function {
            self.functions[function] += nanoseconds;
        }
    }
}

/// A thread's own record: its number, and the moment (of the monotonic clock), the CPU time and the
/// function at the beginning of each of its functions, and no function at its end.
#[derive(Debug)]
pub struct ThreadRecord {
    pub tid: i32,
    marks: Vec<(u64, u64, String)>,
}

impl ThreadRecord {
    pub fn parse(text: &str) -> Result<Self> {
        let shown = || format!("this is not an account of CPU time: {:.200}", text);
        let (tid, marks) = serde_json::from_str(text).with_context(shown)?;
        Ok(Self { tid, marks })
    }

    /// How far chance may change the share of a function, in percentage points, if a sample is
    /// taken once in `period` nanoseconds. Because the lengths of slices vary, each is sampled a
    /// part of a period too long or too short, independently of the others: with a variance of at
    /// most a quarter of the period's square.
    pub fn chance(&self, sampled: &Range<u64>, period: f64, function: usize) -> f64 {
        let share = self.account(sampled).percent(function) / 100.0;
        let inside = |&&(begin, _, _): &&(u64, u64, String)| sampled.contains(&begin);
        let slices = |wanted: usize| {
            let marks = self.marks.iter().filter(inside);
            marks.filter(|mark| mark.2 == FUNCTIONS[wanted]).count() as f64
        };
        let of_others: f64 = (0..WAITING)
            .filter(|&other| other != function)
            .map(slices)
            .sum();
        let variance = (1.0 - share).powi(2) * slices(function) + share.powi(2) * of_others;
        let all = self.account(sampled).all.max(1.0);
        100.0 * DEVIATIONS * variance.sqrt() * period / 2.0 / all
    }

    /// Its CPU time while it was sampled.
    pub fn account(&self, sampled: &Range<u64>) -> Account {
        let mut account = Account::default();
        for pair in self.marks.windows(2) {
            let ((begin, before, name), (end, after, _)) = (&pair[0], &pair[1]);
            let inside = end
                .min(&sampled.end)
                .saturating_sub(*begin.max(&sampled.start));
            let part = inside as f64 / (end.saturating_sub(*begin) as f64).max(1.0);
            let function = FUNCTIONS.iter().position(|function| function == name);
            account.add(function, part * after.saturating_sub(*before) as f64);
        }
        account
    }
}

/// The CPU time that was sampled, by thread.
pub fn sampled(stacks: &[WorkerStack]) -> HashMap<i32, Account> {
    let mut accounts: HashMap<i32, Account> = HashMap::new();
    for stack in stacks {
        let function = FUNCTIONS.iter().position(|name| stack.contains(name));
        let account = accounts.entry(stack.tid).or_default();
        account.add(function, stack.sum.cpu_nanoseconds as f64);
    }
    accounts
}

/// One thread of a row.
#[derive(Debug, Clone, Copy)]
pub struct ThreadAccount {
    pub samples: i64,
    /// How long it waited for a CPU, in percent of the time.
    pub delay_percent: f64,
    pub truth: Account,
    pub sampled: Account,
    /// How far chance may change a working function's share, in percentage points.
    pub chance: f64,
}

impl ThreadAccount {
    /// Whether other programs used the thread's CPU for so long that its shares are not judged.
    pub fn is_busy(&self) -> bool {
        self.delay_percent > MAX_DELAY
    }

    /// The broken limits of a row beside other programs, in words, at a period in nanoseconds.
    pub fn broken_beside(&self, period: f64) -> Vec<String> {
        let (truth, sampled) = (&self.truth, &self.sampled);
        let mut broken = Vec::new();
        let off = 100.0 * (sampled.all - truth.all) / truth.all.max(1.0);
        if off.abs() > TOTAL_TOLERANCE {
            broken.push(format!("{off:+.1} % of the CPU time"));
        }
        // Samples in which it ran show a share with this deviation.
        let share = truth.percent(WAITING) / 100.0;
        let samples = (truth.all / period).max(1.0);
        let chance = 100.0 * DEVIATIONS * (share * (1.0 - share) / samples).sqrt();
        let (waiting, truth) = (sampled.percent(WAITING), truth.percent(WAITING));
        if (waiting - truth).abs() > BESIDE_TOLERANCE + chance {
            broken.push(format!(
                "{waiting:.1} % of the CPU time in what waits, {truth:.1} % of the true, chance ± {chance:.1}"
            ));
        }
        broken
    }

    /// The broken limits, in words. The long form needs a quiet machine.
    pub fn broken(&self, slice_milliseconds: u32, full: bool) -> Vec<String> {
        let (truth, sampled) = (&self.truth, &self.sampled);
        let mut broken = Vec::new();
        let mut limit = |holds: bool, words: String| {
            if !holds {
                broken.push(words);
            }
        };
        let off = 100.0 * (sampled.all - truth.all) / truth.all.max(1.0);
        limit(
            off.abs() <= TOTAL_TOLERANCE,
            format!("{off:+.1} % of the thread's CPU time"),
        );
        if slice_milliseconds < MIN_SLICE_MILLISECONDS {
            return broken;
        }
        if self.is_busy() {
            limit(
                !full,
                format!(
                    "the machine is busy: the thread waited for a CPU for {:.1} % of the time",
                    self.delay_percent
                ),
            );
            return broken;
        }
        limit(
            self.chance <= TOLERANCE,
            format!("too short: chance alone is ± {:.1} points", self.chance),
        );
        let waiting = sampled.percent(WAITING);
        limit(
            waiting < WAITING_PERCENT,
            format!("{waiting:.1} % of the CPU time in what waits, {WAITING_PERCENT} % allowed"),
        );
        for (function, name) in FUNCTIONS.iter().enumerate().take(WAITING) {
            let (share, truth) = (sampled.percent(function), truth.percent(function));
            limit(
                (share - truth).abs() <= TOLERANCE,
                format!("{name} {share:.1} % of the sampled CPU time, {truth:.1} % of the true"),
            );
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use phpprof::run::aggregate::StackSum;

    use super::*;

    const TRUTH: Account = Account {
        functions: [60.0, 39.0, 1.0],
        all: 100.0,
    };

    #[test]
    fn threads_word_counts_while_sampled() {
        let said = ThreadRecord::parse(
            r#"[7, [[0, 0, "counting"], [100, 80, "waiting"], [200, 82, "hashing"], [300, 182, ""]]]"#,
        )
        .unwrap();
        assert_eq!(said.tid, 7);
        assert_eq!(
            said.account(&(50..250)),
            Account {
                functions: [40.0, 50.0, 2.0],
                all: 92.0
            }
        );
        assert_eq!(said.account(&(400..500)), Account::default());
        assert!(ThreadRecord::parse("Warning: ").is_err());
    }

    #[test]
    fn sampled_time_belongs_to_the_stacks_function() {
        let stack = |names: &[&str], cpu_nanoseconds| WorkerStack {
            lines: names.iter().map(|&name| (name.to_owned(), 1)).collect(),
            tid: 7,
            sum: StackSum {
                cpu_nanoseconds,
                ..StackSum::default()
            },
        };
        let stacks = [
            stack(&["{main}", "waiting", "usleep"], 1),
            stack(&["{main}", "hashing", "[unstable]"], 10),
            stack(&["{main}"], 5),
        ];
        let expected = Account {
            functions: [0.0, 10.0, 1.0],
            all: 16.0,
        };
        assert_eq!(sampled(&stacks), HashMap::from([(7, expected)]));
    }

    #[test]
    fn chance_grows_with_period_falls_with_time() {
        let marks = |count: u64| {
            let mark = |n: u64| (n * 100, n * 100, FUNCTIONS[n as usize % 2].to_owned());
            ThreadRecord {
                tid: 7,
                marks: (0..=count).map(mark).collect(),
            }
        };
        // 100 slices of 100 ns, half of each function: a standard deviation of 0.5 * sqrt(100) *
        // 100 / 2 ns of 10,000.
        let chance = |count, period| marks(count).chance(&(0..count * 100), period, 0);
        assert!((chance(100, 100.0) - 7.5).abs() < 0.01);
        assert!((chance(100, 200.0) - 15.0).abs() < 0.01);
        assert!((chance(400, 100.0) - 3.75).abs() < 0.01);
    }

    #[test]
    fn faults_beside_others_are_seen() {
        let check = |waiting, all, expected: usize| {
            let outcome = ThreadAccount {
                samples: 0,
                delay_percent: 90.0,
                truth: TRUTH,
                sampled: Account {
                    functions: [60.0, 40.0 - waiting, waiting],
                    all,
                },
                chance: 9.0,
            };
            // 10,000 samples: chance alone is 0.3 points.
            let found = outcome.broken_beside(0.01);
            assert_eq!(found.len(), expected, "{found:?}");
        };
        check(1.0, 100.0, 0);
        check(2.25, 100.0, 0);
        check(2.35, 100.0, 1);
        check(1.0, 104.0, 1);
        check(5.0, 96.0, 2);
    }

    #[test]
    fn each_kind_of_fault_is_seen() {
        let check = |slice, delay_percent, functions, all, chance, [short, full]: [usize; 2]| {
            let outcome = ThreadAccount {
                samples: 0,
                delay_percent,
                truth: TRUTH,
                sampled: Account { functions, all },
                chance,
            };
            let found = outcome.broken(slice, false);
            assert_eq!(found.len(), short, "{found:?}");
            let found = outcome.broken(slice, true);
            assert_eq!(found.len(), full, "{found:?}");
        };
        check(5, 0.0, [60.0, 39.0, 1.0], 100.0, 1.0, [0, 0]);
        check(5, 0.0, [60.0, 39.0, 1.0], 100.0, 3.1, [1, 1]);
        check(5, 0.0, [56.0, 39.0, 1.0], 100.0, 1.0, [1, 1]);
        check(5, 0.0, [58.5, 38.5, 3.0], 100.0, 1.0, [1, 1]);
        check(5, 0.0, [62.4, 40.6, 1.0], 104.0, 1.0, [1, 1]);
        check(5, 0.0, [40.0, 39.0, 21.0], 80.0, 1.0, [4, 4]);
        check(1, 0.0, [40.0, 39.0, 21.0], 100.0, 9.0, [0, 0]);
        check(5, 6.0, [40.0, 39.0, 21.0], 100.0, 1.0, [0, 1]);
        check(5, 6.0, [40.0, 39.0, 21.0], 80.0, 1.0, [1, 2]);
    }
}
