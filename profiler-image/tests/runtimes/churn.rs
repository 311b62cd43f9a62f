//! Workers that come and go: php-fpm starts them on demand, and ends each after five requests.
//!
//! One in four lives 200 ms and must be seen; the others may start and end between two scans. The
//! sampler must not keep anything of those that have ended: its descriptors and its memory are
//! watched while it runs.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::{Context, Result};
use phpprof_profile::proto::Profile;
use phpprof_testing::wait_within;
use serde::Deserialize;

use crate::kinds::File;
use crate::load::Load;
use crate::place::Server;
use crate::profiler::{Recorder, Usage};
use crate::runtime::Php;
use crate::server::Running;

const CLIENTS: usize = 8;
const REQUESTS: u32 = 5;
/// How many of the kernel's files the sampler has open of each worker that lives. The number
/// of those that live differs from one moment to the next by at most [`CLIENTS`]; one that stayed
/// open of each that has ended would be hundreds.
const DESCRIPTORS: usize = 10;
/// By design, a worker is noticed within this time, and sampled at its next turn; in nanoseconds.
const NOTICED: u64 = 100_000_000;
const TURN: u64 = 10_000_000;
/// The memory that a worker may leave: its own rows of the profile.
const BYTES_PER_WORKER: u64 = 1024;

/// A worker's data about a request; times are of the monotonic clock, in nanoseconds.
#[derive(Deserialize)]
struct LoadAnswer {
    pid: i64,
    begin: u64,
    end: u64,
}

/// The result.
pub struct Outcome {
    pub workers: usize,
    /// Of those, how many were old enough to be seen.
    pub old: usize,
    pub missed: usize,
    pub descriptors: [usize; 2],
    pub resident_bytes: [u64; 2],
    pub faults: Vec<String>,
}

/// Starts and ends this many workers.
pub fn churn(workers: usize) -> Result<Outcome> {
    let fpm = Server::Fpm {
        manager: "ondemand",
        requests: REQUESTS,
    };
    let server = Running::start(Php::Host, fpm, CLIENTS, File::Stays)?;
    let mut recorder = Recorder::start(&[server.pid()], 499, 3600)?;
    std::thread::sleep(Duration::from_millis(500));
    let load = server.ask_for("churn.php", CLIENTS);
    let wanted = workers as u64 * u64::from(REQUESTS);
    // Once everything has happened often enough, nothing may grow any more.
    wait_for_answers(&load, wanted / 4)?;
    let before = recorder.usage()?;
    wait_for_answers(&load, wanted)?;
    let after = recorder.usage()?;
    let answers = load.stop().with_context(|| server.log())?;
    recorder.interrupt()?;
    let profile = recorder.finish()?;
    judge(&answers, &profile, [before, after])
}

fn wait_for_answers(load: &Load, wanted: u64) -> Result<()> {
    let patience = Duration::from_secs(1200);
    wait_within(patience, "last of the workers", || {
        Ok((load.answers()? >= wanted).then_some(()))
    })
}

fn judge(answers: &[String], profile: &Profile, usage: [Usage; 2]) -> Result<Outcome> {
    let answers: Vec<LoadAnswer> = answers
        .iter()
        .map(|answer| serde_json::from_str(answer).with_context(|| answer.clone()))
        .collect::<Result<_>>()?;
    let mut lives: HashMap<i64, u64> = HashMap::new();
    for answer in &answers {
        let born = lives.entry(answer.pid).or_insert(answer.begin);
        *born = answer.begin.min(*born);
    }
    // An idle worker has no stack. A worker is missed if it was busy at a turn when it had to be
    // known.
    let was_due = |answer: &&LoadAnswer| {
        let known = lives.get(&answer.pid).unwrap_or(&answer.begin) + NOTICED;
        answer.end.saturating_sub(answer.begin.max(known)) > TURN
    };
    let old: HashSet<i64> = answers
        .iter()
        .filter(was_due)
        .map(|answer| answer.pid)
        .collect();
    let sampled = |pid: i64| {
        profile
            .sample
            .iter()
            .any(|sample| sample.label.iter().any(|label| label.num == pid))
    };
    let missed = old.iter().filter(|&&pid| !sampled(pid)).count();
    let [before, after] = usage;
    let mut faults = Vec::new();
    if missed > 0 {
        faults.push(format!(
            "{missed} of {} workers older than 100 ms were missed",
            old.len()
        ));
    }
    if after.descriptors > before.descriptors + DESCRIPTORS * CLIENTS {
        faults.push(format!(
            "descriptors grew from {} to {}",
            before.descriptors, after.descriptors
        ));
    }
    if after.resident_bytes
        > before.resident_bytes + BYTES_PER_WORKER * lives.len() as u64 + (1 << 20)
    {
        faults.push(format!(
            "memory grew from {} to {} bytes",
            before.resident_bytes, after.resident_bytes
        ));
    }
    Ok(Outcome {
        workers: lives.len(),
        old: old.len(),
        missed,
        descriptors: [before.descriptors, after.descriptors],
        resident_bytes: [before.resident_bytes, after.resident_bytes],
        faults,
    })
}
