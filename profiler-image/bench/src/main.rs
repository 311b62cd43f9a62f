//! `make truth`: samples programs whose behaviour is known, compares the profiles with it, and
//! prints tables.
//!
//! Target and sampler run on different CPUs: on the same one nothing would move during a read, and
//! every check would pass. Usage: `truth PART PHP RESULTS.csv [WORDS...]`; PART is `stacks`,
//! `balance`, `cpu`, `wikis` or `verdict`, PHP a command, whose arguments may follow after spaces.
//! `FULL=1` is the long form; with WORDS, such as "paths" or "function remote", only the rows that
//! have one of them in their label.

#![warn(clippy::match_bool)]

mod balance;
mod cpu;
mod running;
mod sampled;
mod stacks;
mod stopped;
mod targets;
mod verdict;
mod wikis;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Pid;
use running::{PhpProgram, pin};

/// The CPU of the sampler, and that of the target.
pub const CPUS: [usize; 2] = [0, 1];
const USAGE: &str = "usage: truth stacks|balance|cpu|wikis|verdict PHP RESULTS.csv [WORDS...]";

/// The arguments.
pub struct BenchArguments {
    /// The PHP command.
    pub php: PhpProgram,
    /// The long form.
    pub full: bool,
    only: Vec<String>,
    results: PathBuf,
}

impl BenchArguments {
    /// Whether a row with this label is requested.
    pub fn wants(&self, label: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| label.contains(only))
    }

    /// Whether a row that is in the long form only is requested by name.
    pub fn names(&self, label: &str) -> bool {
        self.only
            .iter()
            .any(|only| only.contains(label) || label.contains(only.as_str()))
    }

    /// Writes a picture beside the results, as NAME-SUFFIX.svg.
    pub fn draw(&self, suffix: &str, svg: &str) -> Result<()> {
        let name = self.results.file_stem().unwrap_or_default();
        let name = format!("{}-{suffix}.svg", name.to_string_lossy());
        write(&self.results.with_file_name(name), svg)
    }

    /// Writes other results beside, as NAME-SUFFIX.csv.
    pub fn write_beside(&self, suffix: &str, csv: &str) -> Result<()> {
        let name = self.results.file_stem().unwrap_or_default();
        let name = format!("{}-{suffix}.csv", name.to_string_lossy());
        write(&self.results.with_file_name(name), csv)
    }

    /// Writes the results as CSV.
    pub fn write(&self, csv: &str) -> Result<()> {
        write(&self.results, csv)
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            eprintln!("truth: {} rows break their limits", broken.len());
            for row in broken {
                eprintln!("    {row}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("truth: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The rows that break their limits: each label, and the limits in words.
fn run() -> Result<Vec<String>> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let mut arguments = all.into_iter();
    let part = arguments.next().context(USAGE)?;
    let words: Vec<String> = arguments.clone().collect();
    if part == "balance"
        && let Some(done) = balance::command(&words)
    {
        return done.map(|()| Vec::new());
    }
    let asked = BenchArguments {
        php: PhpProgram::ask(&arguments.next().context(USAGE)?)?,
        results: PathBuf::from(arguments.next().context(USAGE)?),
        only: arguments.collect(),
        full: std::env::var("FULL").is_ok_and(|value| value == "1"),
    };
    ensure!(
        std::thread::available_parallelism()?.get() >= 2,
        "two CPUs are needed: one for the target, one for the sampler"
    );
    pin(Pid::from_raw(0), CPUS[0])?;
    match part.as_str() {
        "stacks" => stacks::run(&asked),
        "balance" => balance::run(&asked),
        "cpu" => cpu::run(&asked),
        "wikis" => wikis::run(&asked),
        "verdict" => verdict::run(&asked),
        _ => bail!(USAGE),
    }
}

fn write(results: &Path, csv: &str) -> Result<()> {
    if let Some(folder) = results.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(results, csv).with_context(|| format!("writing {}", results.display()))?;
    println!("{}", results.display());
    Ok(())
}
