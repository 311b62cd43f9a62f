//! Holds the demo's profile against the truth: `shares PROFILE TRUTH FUNCTIONS RECEIPT_SAMPLES`.
//!
//! TRUTH is what the load measured (demo/load.php), FUNCTIONS lists every function that the application has or calls,
//! RECEIPT_SAMPLES is the number in the request's status. It does not look at lines or at functions below a path.
//!
//! Invariant: exit 0 means that every code path is within three points of its measured share of the wall time, that no
//! function is in the profile that the application does not have, and that the samples are those of the receipt.

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;

use phpprof_profile::{Limits, Profile, Row, decode, top, total};

/// A code path of the demo: its name in the truth, the function that it begins with, its share by construction.
const PATHS: [(&str, &str, f64); 4] = [
    ("checkout", r"Demo\Checkout\Cart::checkout", 60.0),
    ("search", r"Demo\Search\Catalogue::search", 25.0),
    ("render", r"Demo\Render\Page::render", 10.0),
    ("audit", r"Demo\Audit\Trail::record", 5.0),
];
const TOLERANCE: f64 = 3.0;

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
    let [profile, truth, functions, receipt] = arguments.as_slice() else {
        return Err("usage: shares PROFILE TRUTH FUNCTIONS RECEIPT_SAMPLES".into());
    };
    let profile = decode(&std::fs::read(profile)?, &Limits::default())?;
    let truth: serde_json::Value = serde_json::from_slice(&std::fs::read(truth)?)?;
    let truth: HashMap<String, i64> = serde_json::from_value(truth["nanoseconds"].clone())?;
    let functions = std::fs::read_to_string(functions)?;
    let mut faults = shares(&profile, &truth);
    faults.extend(strangers(&profile, &functions));
    faults.extend(samples(&profile, receipt.parse()?));
    Ok(faults)
}

fn shares(profile: &Profile, truth: &HashMap<String, i64>) -> Vec<String> {
    let rows = top(profile, "wall");
    let wall = total(profile, "wall");
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

fn cumulative(rows: &[Row], function: &str) -> i64 {
    let of_function = rows.iter().filter(|row| row.name == function);
    of_function.map(|row| row.cum).sum()
}

fn percent(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        100.0 * part as f64 / whole as f64
    }
}

/// Functions in the profile that the application does not have.
fn strangers(profile: &Profile, functions: &str) -> Vec<String> {
    let known: Vec<_> = functions
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let rows = top(profile, "samples");
    let strangers = rows
        .iter()
        .filter(|row| !known.contains(&row.name.as_str()));
    strangers
        .map(|row| {
            format!(
                "the application has no function {} ({})",
                row.name, row.file
            )
        })
        .collect()
}

fn samples(profile: &Profile, receipt: i64) -> Option<String> {
    let samples = total(profile, "samples");
    println!("samples: {samples} in the profile, {receipt} in the receipt");
    (samples != receipt)
        .then(|| format!("the profile has {samples} samples, the receipt says {receipt}"))
}
