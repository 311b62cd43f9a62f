//! Compares a profile with the calls of the ground truth (profiler-image/runtimes/truth), and with
//! its measurements: pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::ClockId;
use phpprof_profile::proto::{Profile, Sample};
use phpprof_profile::{Builder, FrameRef, Lookup, SampleTag, Settings, place_name, total};

/// The name of a code path in the answers, and its first function.
const PATHS: [(&str, &str); 4] = [
    ("orders", "Orders::price"),
    ("search", "Search::query"),
    ("page", "Page::render"),
    ("journal", "Journal::append"),
];
/// In percentage points.
const TOLERANCE: f64 = 3.0;
/// The largest share of samples without a proven leaf in some seconds, in percent.
const UNSTABLE: f64 = 5.0;
/// With fewer samples nothing is judged.
const SAMPLES_PER_WORKER: i64 = 500;
const ROOT: &str = "{main}";
/// The route of the clients' requests.
const ROUTE: &str = "GET /index.php";

/// Nanoseconds by code path, for the time in which a profile was recorded.
#[derive(Debug, Clone)]
pub struct Truth {
    recorded: Range<u64>,
    nanoseconds: [u64; PATHS.len()],
}

impl Truth {
    /// Begins without answers. Answers use the monotonic clock, and the profile the calendar's.
    pub fn of(profile: &Profile) -> Result<Self> {
        let now = |clock: ClockId| -> Result<i64> {
            Ok(i64::try_from(Duration::from(clock.now()?).as_nanos())?)
        };
        let apart = now(ClockId::CLOCK_REALTIME)? - now(ClockId::CLOCK_MONOTONIC)?;
        let begin = u64::try_from(profile.time_nanos - apart)?;
        let took = u64::try_from(profile.duration_nanos)?;
        Ok(Self {
            recorded: begin..begin + took,
            nanoseconds: [0; PATHS.len()],
        })
    }

    /// Adds the part of an answer in the time of the profile. The code paths of an answer follow
    /// each other.
    pub fn add(&mut self, answer: &str) -> Result<()> {
        let shown = || format!("this is not an answer: {answer:?}");
        let of_answer: HashMap<String, u64> = serde_json::from_str(answer).with_context(shown)?;
        let mut at = *of_answer.get("begin").with_context(shown)?;
        for ((path, _), sum) in PATHS.iter().zip(&mut self.nanoseconds) {
            let end = at + of_answer.get(*path).with_context(shown)?;
            let inside = at.max(self.recorded.start)..end.min(self.recorded.end);
            *sum += inside.end.saturating_sub(inside.start);
            at = end;
        }
        Ok(())
    }
}

/// The result for a profile.
#[derive(Debug, Default)]
pub struct Verdict {
    pub samples: i64,
    /// Wall time by process or thread.
    pub workers: BTreeMap<String, i64>,
    /// The difference of each code path's share from the true one, in percentage points.
    pub differences: [f64; PATHS.len()],
    /// Share of the samples whose leaf could not be proven, in percent.
    pub unstable: f64,
    /// The share of the samples with their request's route, in percent.
    pub routed: f64,
    /// Wrong shares, in words.
    pub off: Vec<String>,
    /// Other faults.
    pub faults: Vec<String>,
}

/// Every call that the ground truth can make, as (caller, callee).
pub struct Calls<'a>(BTreeSet<(&'a str, &'a str)>);

impl<'a> Calls<'a> {
    /// Parses a caller, and its callees indented below it.
    pub fn parse(text: &'a str) -> Self {
        let mut caller = "";
        let mut calls = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("  ") {
                Some(callee) => _ = calls.insert((caller, callee)),
                None => caller = line,
            }
        }
        Self(calls)
    }

    /// `@index` represents index.php: it is included, or is `{main}` itself.
    fn allow(&self, caller: &str, callee: &str) -> bool {
        let is_index = matches!(caller, "{main}" | "include index.php");
        let is = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => pattern == name || (pattern == "@index" && is_index),
        };
        is_leaf(callee)
            || self
                .0
                .iter()
                .any(|(a, b)| is(a, caller) && *b != "@index" && is(b, callee))
    }
}

/// `[unstable]` and the phases: time, not functions.
fn is_leaf(name: &str) -> bool {
    name.starts_with('[')
}

/// The name of a frame without the folder of its file.
pub fn short(name: &str) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    for verb in ["include ", "include_once ", "require ", "require_once "] {
        if let Some(path) = name.strip_prefix(verb) {
            return format!("include {}", base(path));
        }
    }
    match name.strip_prefix("{closure:") {
        Some(rest) => format!("{{closure:{}", base(rest)),
        None => name.to_owned(),
    }
}

/// Compares a profile with the truth.
pub fn judge(profile: &Profile, truth: &Truth, workers: usize, calls: &Calls<'_>) -> Verdict {
    let lookup = Lookup::new(profile);
    let index = |name: &str| profile.value_index(name).unwrap_or(0);
    let (samples, wall) = (index("samples"), index("wall"));
    let mut verdict = Verdict {
        samples: total(profile, "samples"),
        ..Verdict::default()
    };
    let mut wrong: BTreeMap<String, i64> = BTreeMap::new();
    let mut sums = [0; PATHS.len()];
    let (mut unstable, mut routed) = (0, 0);
    for sample in &profile.sample {
        let value = |index: usize| sample.value.get(index).copied().unwrap_or(0);
        let stack: Vec<String> = lookup
            .frames(sample)
            .map(|frame| short(&place_name(frame.name, frame.file, frame.start_line)))
            .collect();
        *verdict.workers.entry(worker(profile, sample)).or_default() += value(wall);
        match route(profile, sample).as_deref() {
            Some(ROUTE) => routed += value(samples),
            None => {}
            Some(other) => *wrong.entry(format!("of {other}")).or_default() += value(samples),
        }
        for fault in wrong_calls(&stack, calls) {
            *wrong.entry(fault).or_default() += value(samples);
        }
        if stack.first().is_some_and(|leaf| leaf == "[unstable]") {
            unstable += value(samples);
        }
        for (sum, (_, function)) in sums.iter_mut().zip(PATHS) {
            *sum += if stack.iter().any(|name| name == function) {
                value(wall)
            } else {
                0
            };
        }
    }
    verdict.unstable = percent(unstable, verdict.samples);
    verdict.routed = percent(routed, verdict.samples);
    if verdict.unstable > UNSTABLE {
        let percent = verdict.unstable;
        verdict.off.push(format!("{percent:.1} % are [unstable]"));
    }
    verdict.faults.extend(
        wrong
            .into_iter()
            .map(|(fault, count)| format!("{count} samples: {fault}")),
    );
    judge_shares(&mut verdict, sums, truth, total(profile, "wall"));
    judge_workers(&mut verdict, workers);
    verdict
}

/// The impossible calls of a stack, leaf first.
fn wrong_calls(stack: &[String], calls: &Calls<'_>) -> Vec<String> {
    let root = stack.last().filter(|root| *root != ROOT && !is_leaf(root));
    let root = root.map(|root| format!("the stack begins with {root}: {}", stack.join(" < ")));
    let wrong = stack
        .windows(2)
        .filter(|pair| !calls.allow(&pair[1], &pair[0]));
    root.into_iter()
        .chain(wrong.map(|pair| format!("{} calls {}", pair[1], pair[0])))
        .collect()
}

fn judge_shares(verdict: &mut Verdict, sums: [i64; PATHS.len()], truth: &Truth, wall: i64) {
    let known: i64 = sums.iter().sum();
    let busy: u64 = truth.nanoseconds.iter().sum();
    let of_paths = PATHS.iter().zip(sums).zip(truth.nanoseconds);
    for ((((path, _), sum), taken), off) in of_paths.zip(&mut verdict.differences) {
        let profiled = percent(sum, known);
        let measured = 100.0 * taken as f64 / (busy as f64).max(1.0);
        let difference = profiled - measured;
        *off = difference;
        if difference.abs() > TOLERANCE {
            verdict.off.push(format!(
                "{path} has {profiled:.1} % of the profile, but took {measured:.1} % of the time"
            ));
        }
    }
    // Apart from the paths, there is only the work of each server around a request, and its wait
    // for the next one.
    if percent(known, wall) < 80.0 {
        verdict.faults.push(format!(
            "the code paths are {:.1} % of the profile only",
            percent(known, wall)
        ));
    }
}

/// Checks that the workers have equal shares, because each was busy all the time.
fn judge_workers(verdict: &mut Verdict, workers: usize) {
    if verdict.samples < SAMPLES_PER_WORKER * workers as i64 {
        verdict
            .off
            .push(format!("{} samples only", verdict.samples));
    }
    if verdict.workers.len() != workers {
        verdict.faults.push(format!(
            "{} workers instead of {workers}: {:?}",
            verdict.workers.len(),
            verdict.workers
        ));
    }
    let wall: i64 = verdict.workers.values().sum();
    for (worker, &of_worker) in &verdict.workers {
        let share = percent(of_worker, wall) * workers as f64;
        if !(60.0..150.0).contains(&share) {
            verdict
                .off
                .push(format!("{worker} has {share:.0} % of an even share"));
        }
    }
}

/// Method and route of a sample's request; the route of FrankenPHP's workers is the path of their
/// own script.
fn route(profile: &Profile, sample: &Sample) -> Option<String> {
    let value = |key: &str| {
        let label = |label: &&phpprof_profile::proto::Label| profile.string(label.key) == key;
        let label = sample.label.iter().find(label)?;
        Some(profile.string(label.str))
    };
    let route = format!("{} {}", value("method")?, value("route")?);
    Some(route.replace("/frankenphp.php", "/index.php"))
}

/// The process, or the thread, of a sample.
fn worker(profile: &Profile, sample: &Sample) -> String {
    let labels = sample.label.iter().filter(|label| label.num != 0);
    let mut words: Vec<_> = labels
        .map(|label| format!("{} {}", profile.string(label.key), label.num))
        .collect();
    words.sort();
    words.join(" ")
}

fn percent(part: i64, whole: i64) -> f64 {
    100.0 * part as f64 / (whole as f64).max(1.0)
}

/// Judges made-up profiles: a correct one must pass, and each kind of fault be found. Returns the
/// failures.
pub fn check_verdicts(calls: &Calls<'_>) -> Vec<String> {
    let right = [
        "Orders::rounded",
        "Orders::gross",
        "{closure:/srv/Orders.php:13}",
        "array_map",
        "Orders::price",
    ];
    let root = ["Clock::spend", "include /srv/index.php", "{main}"];
    let truth = Truth {
        recorded: 0..1,
        nanoseconds: [1, 0, 0, 0],
    };
    let faults = |stack: &[&str], truth: &Truth, workers: usize| {
        let verdict = judge(&made_up(stack), truth, workers, calls);
        verdict.faults.len() + verdict.off.len()
    };
    let whole = [&right[..], &root].concat();
    let skipped = [&right[1..], &right[3..], &root].concat();
    let cut = [&["[unstable]"], &whole[..]].concat();
    let other_truth = Truth {
        nanoseconds: [1, 1, 0, 0],
        ..truth.clone()
    };
    let cases = [
        ("a true stack", faults(&whole, &truth, 1), 0),
        ("a call that cannot be", faults(&skipped, &truth, 1), 1),
        ("a stack without {main}", faults(&right, &truth, 1), 1),
        ("a leaf that was not proven", faults(&cut, &truth, 1), 1),
        ("two wrong shares", faults(&whole, &other_truth, 1), 2),
        // Too few samples for two, one worker instead of two, and that one has twice its share.
        ("a worker that is missing", faults(&whole, &truth, 2), 3),
    ];
    let wrong = cases
        .into_iter()
        .filter(|(_, found, expected)| found != expected);
    wrong
        .map(|(case, found, expected)| {
            format!("the verdict has {found} faults instead of {expected} in {case}")
        })
        .collect()
}

/// As many samples of one stack as one worker needs.
fn made_up(stack: &[&str]) -> Profile {
    let mut builder = Builder::new(Settings::default());
    let frame = |name| {
        // A closure is known by its place.
        let (file, start_line) = match name {
            "{closure:/srv/Orders.php:13}" => ("/srv/Orders.php", 13),
            _ => ("", 0),
        };
        FrameRef {
            name,
            file,
            start_line,
            line: 0,
        }
    };
    let frames: Vec<_> = stack.iter().map(|name| frame(*name)).collect();
    builder.add(
        &frames,
        &[SAMPLES_PER_WORKER, 0, 1_000_000],
        &[SampleTag::Num("pid", 1, "")],
    );
    builder.finish()
}
