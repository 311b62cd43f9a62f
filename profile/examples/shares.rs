//! Compares the demo's profile with the truth: `shares PROFILE TRUTH CALLS RECEIPT_SAMPLES`.
//!
//! TRUTH is what the load measured (demo/rootfs/srv/load.php), CALLS lists every call that the
//! application can make (demo/calls.txt), RECEIPT_SAMPLES is the number in the request's status. It
//! ignores lines.
//!
//! Invariant: exit 0 means that every code path is within three points of its measured share of the
//! wall time, no stack has a function or a call that the application does not have, and the number
//! of samples matches the receipt.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::process::ExitCode;

use phpprof_profile::{
    DecodeLimits, Lookup, Profile, TopRow, decode, place_name, plain_name, top, total,
};

/// A code path of the demo: its name in TRUTH, its first function, its share by construction.
const PATHS: [(&str, &str, f64); 4] = [
    ("checkout", r"Demo\Checkout\Cart::checkout", 60.0),
    ("search", r"Demo\Search\Catalogue::search", 25.0),
    ("render", r"Demo\Render\Page::render", 10.0),
    ("audit", r"Demo\Audit\Trail::record", 5.0),
];
const TOLERANCE: f64 = 3.0;
const ROOT: &str = "{main}";
/// What a worker that keeps PHP's state does for each request. Apart from this, it sends the answer
/// and waits for the next request.
const REQUEST: &str = "include /srv/app/index.php";
/// A leaf that is not a function: time below its caller (or below no known one), if the sampler
/// could not prove which callee it was.
const UNSTABLE: &str = "[unstable]";

fn main() -> ExitCode {
    match run() {
        Ok(faults) if faults.is_empty() => {
            println!("the profile agrees with the truth");
            ExitCode::SUCCESS
        }
        Ok(faults) => {
            faults.iter().for_each(|fault| eprintln!("wrong: {fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("shares: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [profile, truth, calls, receipt] = arguments.as_slice() else {
        return Err("usage: shares PROFILE TRUTH CALLS RECEIPT_SAMPLES".into());
    };
    let profile = decode(&std::fs::read(profile)?, &DecodeLimits::default())?;
    let truth: serde_json::Value = serde_json::from_slice(&std::fs::read(truth)?)?;
    let truth: HashMap<String, i64> = serde_json::from_value(truth["nanoseconds"].clone())?;
    let calls = std::fs::read_to_string(calls)?;
    let mut faults = shares(&profile, &truth);
    faults.extend(samples(&profile, receipt.parse()?));
    faults.extend(wrong_calls(&profile, &KnownCalls::parse(&calls)));
    Ok(faults)
}

fn shares(profile: &Profile, truth: &HashMap<String, i64>) -> Vec<String> {
    let rows = top(profile, "wall");
    let wall = match cumulative(&rows, REQUEST) {
        // Requests are set up and ended outside of the script.
        0 => cumulative(&rows, ROOT),
        // TRUTH does not contain what the worker does around the paths.
        _ => PATHS
            .map(|(_, function, _)| cumulative(&rows, function))
            .iter()
            .sum(),
    };
    let busy = truth.values().sum();
    println!("code path  by construction  measured  profile  difference");
    let mut faults = Vec::new();
    for (path, function, by_construction) in PATHS {
        let measured = percent(truth.get(path).copied().unwrap_or(0), busy);
        let profiled = percent(cumulative(&rows, function), wall);
        let difference = profiled - measured;
        println!(
            "{path:<9}  {by_construction:>13.0} %  {measured:>6.1} %  {profiled:>5.1} %  {difference:>+10.1}"
        );
        if difference.abs() > TOLERANCE {
            faults.push(format!(
                "{path} has {profiled:.1} % of the profile, but took {measured:.1} % of the time"
            ));
        }
    }
    faults
}

fn cumulative(rows: &[TopRow], function: &str) -> i64 {
    let of_function = rows.iter();
    let of_function = of_function.filter(|row| plain_name(&row.name, &row.file) == function);
    of_function.map(|row| row.cum).sum()
}

fn percent(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

fn samples(profile: &Profile, receipt: i64) -> Option<String> {
    let samples = total(profile, "samples");
    let unstable = percent(cumulative(&top(profile, "samples"), UNSTABLE), samples);
    println!(
        "samples: {samples} in the profile, {receipt} in the receipt; {unstable:.1} % {UNSTABLE}"
    );
    (samples != receipt)
        .then(|| format!("the profile has {samples} samples, the receipt says {receipt}"))
}

/// Every call that the application can make, as (caller, callee).
struct KnownCalls<'a>(Vec<(&'a str, &'a str)>);

impl<'a> KnownCalls<'a> {
    fn parse(text: &'a str) -> Self {
        let mut caller = "";
        let mut calls = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_prefix("  ") {
                Some(callee) => calls.push((caller, callee)),
                None => caller = line,
            }
        }
        KnownCalls(calls)
    }

    fn allow(&self, caller: &str, callee: &str) -> bool {
        let is = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        callee == UNSTABLE || self.0.iter().any(|(a, b)| is(a, caller) && is(b, callee))
    }
}

/// Work of the engine (`[compiling]`, `[autoload]`, …) is not a call.
fn is_phase(name: &str) -> bool {
    name.starts_with('[') && name != UNSTABLE
}

/// The calls in the profile that the application cannot make, the most frequent first.
fn wrong_calls(profile: &Profile, calls: &KnownCalls<'_>) -> Vec<String> {
    let lookup = Lookup::new(profile);
    let index = profile.value_index("samples").unwrap_or(0);
    let mut checked = 0;
    let mut wrong: BTreeMap<(String, String), i64> = BTreeMap::new();
    for sample in &profile.sample {
        let count = sample.value.get(index).copied().unwrap_or(0);
        let stack: Vec<_> = lookup
            .frames(sample)
            .map(|frame| place_name(frame.name, frame.file, frame.start_line))
            .filter(|name| !is_phase(name))
            .collect();
        let root = stack.last().map_or(UNSTABLE, |root| &**root);
        if root != ROOT && root != UNSTABLE {
            *wrong.entry((String::new(), root.to_owned())).or_default() += count;
        }
        for pair in stack.windows(2) {
            checked += count;
            let (caller, callee) = (&*pair[1], &*pair[0]);
            if !calls.allow(caller, callee) {
                *wrong
                    .entry((caller.to_owned(), callee.to_owned()))
                    .or_default() += count;
            }
        }
    }
    println!(
        "calls: {checked} checked, {} that the application cannot make",
        wrong.values().sum::<i64>()
    );
    let mut wrong: Vec<_> = wrong.into_iter().collect();
    wrong.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let text =
        |((caller, callee), count)| format!("{count} samples in which \"{caller}\" calls {callee}");
    wrong.into_iter().map(text).collect()
}
