//! Compares stacks with the calls that a program can make: pure.

use std::ops::Range;

use crate::sampled::UNSTABLE;
use crate::targets::KnownProgram;

/// Leaves that are phases of the engine.
const PHASES: [&str; 5] = [
    "[compiling]",
    "[loading]",
    "[gc]",
    "[startup]",
    "[shutdown]",
];

/// The counts of one run: of samples, and of wrong edges in each sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeCounts {
    pub samples: u64,
    pub edges: u64,
    pub wrong_edges: u64,
    pub wrong_path: u64,
    pub truncated: u64,
    pub unstable: u64,
    /// Nanoseconds below `smallCalls` and below `longCalls`.
    pub shares: [u64; 2],
    /// Samples by leaf of [`KnownProgram::leaves`].
    pub leaves: Vec<u64>,
    /// PHP 7 ran the target.
    pub is_7: bool,
    /// The first wrong edges and mixed paths, as text.
    pub examples: Vec<String>,
}

impl EdgeCounts {
    /// Adds `count` samples of a stack, root first, that represent this time.
    pub fn add(&mut self, target: &KnownProgram, stack: &[&str], count: u64, nanoseconds: u64) {
        self.samples += count;
        let proven = match stack.split_last() {
            Some((&UNSTABLE, proven)) => {
                self.unstable += count;
                proven
            }
            // A phase at a leaf is not a call.
            Some((leaf, callers)) if PHASES.contains(leaf) => callers,
            _ => stack,
        };
        if proven.first().is_some_and(|&root| root != "{main}") {
            self.truncated += count;
            self.example(format!("root of {}", proven.join(";")));
        }
        for pair in proven.windows(2) {
            self.edges += count;
            let edge = (pair[0], pair[1]);
            let exists =
                target.edges.contains(&edge) || (self.is_7 && target.edges_of_7.contains(&edge));
            if !exists {
                self.wrong_edges += count;
                self.example(format!(
                    "{} -> {} in {}",
                    pair[0],
                    pair[1],
                    proven.join(";")
                ));
            }
        }
        if proven
            .windows(3)
            .any(|way| target.never.contains(&(way[0], way[1], way[2])))
        {
            self.wrong_path += count;
            self.example(format!("{count} samples of {}", proven.join(";")));
        }
        self.leaves.resize(target.leaves.len(), 0);
        for (seen, &(caller, callee)) in self.leaves.iter_mut().zip(target.leaves) {
            if stack.ends_with(&[caller, callee]) {
                *seen += count;
            }
        }
        for (share, name) in self.shares.iter_mut().zip(["smallCalls", "longCalls"]) {
            *share += if proven.contains(&name) {
                nanoseconds
            } else {
                0
            };
        }
    }

    /// Compares the names of eval()'d code, which have the line of the call, with the lines of its
    /// callers: pairs of name and line, root first. An edge by names alone would not show that
    /// another eval of the same function was named.
    pub fn add_lines(&mut self, stack: &[(String, u32)], count: u64) {
        for pair in stack.windows(2) {
            let [(caller, line), (callee, _)] = pair else {
                continue;
            };
            if let Some(named) = eval_line(callee)
                && named != *line
            {
                self.wrong_edges += count;
                self.example(format!("{caller}, line {line} -> {callee}"));
            }
        }
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < 5 {
            self.examples.push(text);
        }
    }

    /// The share of the samples, in percent.
    #[must_use]
    pub fn percent(&self, count: u64) -> f64 {
        100.0 * count as f64 / (self.samples as f64).max(1.0)
    }
}

/// The line in `eval FILE(LINE) : eval()'d code`.
fn eval_line(name: &str) -> Option<u32> {
    let place = name
        .strip_prefix("eval ")?
        .strip_suffix(") : eval()'d code")?;
    place.rsplit_once('(')?.1.parse().ok()
}

/// How a row was measured, as far as the limits depend on it.
#[derive(Debug, Clone, Copy)]
pub struct EdgeConditions {
    pub jit: bool,
    /// The quiescent reader could not use the target's CPU.
    pub remote: bool,
    /// Reads during which the top moved, for each hundred samples: a sample takes one to four.
    pub moved_percent: f64,
    /// Reads of the target's memory per sample; almost none while it sleeps.
    pub reads_per_sample: f64,
    /// Of a hundred turns, those that gave no sample because the stack was not found.
    pub denied_percent: f64,
    /// True share of the time below `smallCalls`, in percent.
    pub true_small_percent: Option<f64>,
    /// The share of the time in which the sampler had a CPU, in percent, if it takes samples
    /// without a pause.
    pub own_cpu_percent: Option<f64>,
}

/// The share of the time below `smallCalls` in percent, from the part of the target's turns in the
/// sampled time: small calls from a turn's beginning to its middle, then long functions to its end.
#[must_use]
pub fn small_percent(turns: &[[u64; 3]], sampled: &Range<u64>) -> Option<f64> {
    let inside = |begin: u64, end: u64| {
        end.min(sampled.end)
            .saturating_sub(begin.max(sampled.start))
    };
    let sum = |part: fn(&[u64; 3]) -> [u64; 2]| -> u64 {
        let parts = turns.iter().map(part);
        parts.map(|[begin, end]| inside(begin, end)).sum()
    };
    let small = sum(|&[begin, middle, _]| [begin, middle]);
    let all = sum(|&[begin, _, end]| [begin, end]);
    (all > 0).then(|| 100.0 * small as f64 / all as f64)
}

/// The share of the sampled time below `smallCalls` in the time below both, in percent.
#[must_use]
pub fn sampled_small_percent(counts: &EdgeCounts) -> f64 {
    let [small, long] = counts.shares;
    100.0 * small as f64 / ((small + long) as f64).max(1.0)
}

/// Whether a stack is wrong that no other row can excuse. The other limits are shares of the
/// samples, and chance may break those of a short row.
#[must_use]
pub fn is_wrong(counts: &EdgeCounts) -> bool {
    counts.wrong_edges > 0 || counts.truncated > 0
}

/// The broken limits of a row, in words.
#[must_use]
pub fn broken(target: &KnownProgram, how: EdgeConditions, counts: &EdgeCounts) -> Vec<String> {
    let mut broken = Vec::new();
    let mut limit = |holds: bool, words: String| {
        if !holds {
            broken.push(words);
        }
    };
    let examples = counts.examples.join(", ");
    limit(
        counts.wrong_edges == 0,
        format!("{} wrong edges: {examples}", counts.wrong_edges),
    );
    limit(
        counts.truncated == 0,
        format!("{} truncated stacks: {examples}", counts.truncated),
    );
    let mixed_allowed = counts.samples.div_ceil(50_000);
    limit(
        counts.wrong_path <= mixed_allowed,
        format!(
            "{} mixed paths, {mixed_allowed} allowed: {examples}",
            counts.wrong_path
        ),
    );
    // With the JIT it is unknown whether a call without a frame still lasts.
    for ((caller, callee), &seen) in target.leaves.iter().zip(&counts.leaves) {
        limit(
            how.jit || counts.percent(seen) >= 10.0,
            format!("{callee}, called by {caller}, in {seen} samples only"),
        );
    }
    let unstable = counts.percent(counts.unstable);
    let allowed = allowed_unstable(target, how);
    limit(
        unstable < allowed,
        format!("{unstable:.2} % unstable, {allowed} % allowed"),
    );
    // Without movement nothing was tested: sampler and target have shared a core.
    let tests_something = target.name != "small" || how.jit || how.moved_percent >= 20.0;
    limit(
        tests_something,
        format!(
            "the top moved in {:.0} reads of 100 samples only",
            how.moved_percent
        ),
    );
    limit(
        how.reads_per_sample >= 0.5,
        format!(
            "the target slept: {:.2} reads a sample",
            how.reads_per_sample
        ),
    );
    limit(
        how.denied_percent <= 1.0,
        format!("{:.1} % of the turns without a sample", how.denied_percent),
    );
    broken.extend(wrong_share(how, counts));
    broken
}

/// How many samples may be unstable, in percent.
fn allowed_unstable(target: &KnownProgram, how: EdgeConditions) -> f64 {
    match target.name {
        "small" if how.jit => 0.5,
        "small" => 2.0,
        // Without quiescent reads the other targets are only printed.
        _ if how.remote => 100.0,
        // A stack that exists only for a moment is rarely seen twice; here only wrong names count.
        "attack" => 100.0,
        _ => 2.0,
    }
}

/// A share of small calls that differs from the true one, or says nothing of it, in words.
fn wrong_share(how: EdgeConditions, counts: &EdgeCounts) -> Option<String> {
    let truth = how.true_small_percent?;
    // While the sampler waits for a CPU it sees nothing, and all of that time counts for the next
    // sample. The target's turns end at the kernel's ticks if it waits too, and so do the sampler's
    // waits, so this does not average out.
    if let Some(percent) = how.own_cpu_percent.filter(|percent| *percent < 95.0) {
        return Some(format!(
            "the machine is busy: the sampler had a CPU for {percent:.0} % of the time, which says nothing of shares"
        ));
    }
    let share = sampled_small_percent(counts);
    let words =
        || format!("small calls {share:.2} % of the sampled time, {truth:.2} % of the true");
    ((share - truth).abs() > 1.0).then(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::TARGETS;

    fn target(name: &str) -> &'static KnownProgram {
        TARGETS.iter().find(|target| target.name == name).unwrap()
    }

    fn counts(name: &str, stack: &[&str]) -> EdgeCounts {
        let mut counts = EdgeCounts::default();
        counts.add(target(name), stack, 1, 1);
        counts
    }

    const HOW: EdgeConditions = EdgeConditions {
        jit: false,
        remote: false,
        moved_percent: 50.0,
        reads_per_sample: 2.0,
        denied_percent: 0.0,
        true_small_percent: None,
        own_cpu_percent: None,
    };

    #[test]
    fn a_true_stack_breaks_nothing() {
        let counts = counts("paths", &["{main}", "h1", "w", "left"]);
        assert_eq!(broken(target("paths"), HOW, &counts), Vec::<String>::new());
        let counts = self::counts("frameless", &["{main}", "found", "strpos"]);
        assert_eq!(
            broken(target("frameless"), HOW, &counts),
            Vec::<String>::new()
        );
    }

    #[test]
    fn true_share_is_of_sampled_time() {
        let turns = [[0, 4, 10], [10, 14, 20]];
        let check = |sampled: Range<u64>, expected: Option<f64>| {
            assert_eq!(small_percent(&turns, &sampled), expected, "{sampled:?}");
        };
        check(0..20, Some(40.0));
        check(4..14, Some(40.0));
        check(0..8, Some(50.0));
        check(4..9, Some(0.0));
        check(20..30, None);
        assert_eq!(small_percent(&[], &(0..20)), None);
    }

    #[test]
    fn evaled_code_under_another_call_is_wrong() {
        let wrong = |line| {
            let mut counts = EdgeCounts::default();
            let eval = "eval attack.php(33) : eval()'d code";
            let stack = [("{main}", 70), ("evals", line), (eval, 1)];
            counts.add_lines(&stack.map(|(name, line)| (name.to_owned(), line)), 2);
            counts.wrong_edges
        };
        assert_eq!((wrong(33), wrong(34)), (0, 2));
    }

    #[test]
    fn each_kind_of_fault_is_seen() {
        assert_eq!(counts("paths", &["{main}", "w"]).wrong_edges, 1);
        assert_eq!(counts("paths", &["w", "left"]).truncated, 1);
        assert_eq!(
            counts("paths", &["{main}", "h1", "w", UNSTABLE]).unstable,
            1
        );
        assert_eq!(
            counts("paths", &["{main}", "h1", "w", "right"]).wrong_path,
            1
        );
        let frameless = counts("frameless", &["{main}", "found"]);
        assert_eq!(broken(target("frameless"), HOW, &frameless).len(), 1);
        let mixed = EdgeCounts {
            wrong_path: 21,
            samples: 1_000_000,
            ..EdgeCounts::default()
        };
        assert_eq!(broken(target("paths"), HOW, &mixed).len(), 1);
        assert!(!is_wrong(&mixed));
        assert!(is_wrong(&counts("paths", &["{main}", "w"])));
        assert!(is_wrong(&counts("paths", &["w", "left"])));
        let still = EdgeConditions {
            moved_percent: 10.0,
            ..HOW
        };
        assert_eq!(
            broken(target("small"), still, &EdgeCounts::default()).len(),
            1
        );
        let asleep = EdgeConditions {
            reads_per_sample: 0.01,
            ..HOW
        };
        assert_eq!(
            broken(target("fibers"), asleep, &EdgeCounts::default()).len(),
            1
        );
        let denied = EdgeConditions {
            denied_percent: 59.0,
            ..HOW
        };
        assert_eq!(
            broken(target("fibers"), denied, &EdgeCounts::default()).len(),
            1
        );
        let biased = EdgeCounts {
            samples: 100,
            shares: [50, 50],
            ..EdgeCounts::default()
        };
        assert_eq!(
            broken(
                target("shares"),
                EdgeConditions {
                    true_small_percent: Some(40.0),
                    ..HOW
                },
                &biased
            )
            .len(),
            1
        );
        let even = EdgeCounts {
            shares: [40, 60],
            ..biased
        };
        let busy = |own_cpu_percent: f64| EdgeConditions {
            true_small_percent: Some(40.0),
            own_cpu_percent: Some(own_cpu_percent),
            ..HOW
        };
        assert_eq!(broken(target("shares"), busy(30.0), &even).len(), 1);
        assert_eq!(broken(target("shares"), busy(97.0), &even).len(), 0);
    }
}
