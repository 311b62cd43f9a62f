//! Checkpoints and live samples of a run in progress: with this machine's PHP 8.2, and a store that
//! is slow or refuses.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use phpprof::deliver::checkpoints::Checkpoints;
use phpprof::deliver::deltas::Deltas;
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::snapshot::{Keep, Snapshot};
use phpprof::run::{Recording, RecordingOptions, RunEnd, record};
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, decode, total};
use phpprof_testing::Running;

use crate::options::options;

const PHP: &str = "/usr/bin/php8.2";
const SPIN: &str = "function spin() { return md5('x'); } while (true) spin();";
const SECOND: Duration = Duration::from_secs(1);

/// The stored checkpoints, by their numbers.
type Kept = Vec<(u32, Vec<u8>)>;

fn profile(snapshot: &Snapshot) -> Vec<u8> {
    output(snapshot, &[], OfSampler::default()).bytes
}

/// Records for this many seconds with a checkpoint in each. The store decides whether it is kept.
fn recorded(
    seconds: u32,
    store: impl Fn(u32) -> Result<(), String> + Send + Sync + 'static,
) -> Result<(Recording, Kept)> {
    let kept = Arc::new(Mutex::new(Kept::new()));
    let keep = {
        let kept = Arc::clone(&kept);
        move |number, bytes: &[u8]| {
            store(number)?;
            let mut kept = kept.lock().map_err(|error| error.to_string())?;
            kept.push((number, bytes.to_vec()));
            Ok(())
        }
    };
    let make = |snapshot| profile(&snapshot);
    let times = (1..=seconds).map(|second| SECOND * second).collect();
    let checkpoints = Checkpoints::new(times, make, keep);
    let (recording, _) = recorded_with(seconds, Arc::new(checkpoints))?;
    let kept = std::mem::take(&mut *kept.lock().map_err(|error| anyhow::anyhow!("{error}"))?);
    Ok((recording, kept))
}

/// The same, with the nanoseconds that the target has spent on a CPU meanwhile.
fn recorded_with(seconds: u32, keep: Arc<dyn Keep>) -> Result<(Recording, u64)> {
    let child = Command::new(PHP)
        .args(["-r", SPIN])
        .stdout(Stdio::null())
        .spawn()
        .context("starting PHP")?;
    let target = Running(child);
    let before = on_cpu(&target)?;
    let recording = record(&RecordingOptions {
        cpu_budget_percent: Some(25),
        checkpoints: Some(keep),
        ..options(
            Scope::Pids(vec![target.pid()]),
            99,
            SECOND * seconds + SECOND / 2,
        )
    })?;
    Ok((recording, on_cpu(&target)? - before))
}

fn on_cpu(target: &Running) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", target.pid()))?;
    let first = text.split_ascii_whitespace().next();
    Ok(first.context("no time")?.parse()?)
}

fn numbers(kept: &[(u32, Vec<u8>)]) -> Vec<u32> {
    kept.iter().map(|(number, _)| *number).collect()
}

#[test]
fn each_checkpoint_is_a_whole_profile() -> Result<()> {
    let (recording, mut kept) = recorded(3, |_| Ok(()))?;
    ensure!(numbers(&kept) == [1, 2, 3], "{:?}", numbers(&kept));
    kept.push((0, profile(&recording.snapshot())));
    let (mut samples, mut took) = (0, 0);
    for (_, bytes) in kept {
        let profile = decode(&bytes, &DecodeLimits::default())?;
        let receipt = profile.comments().next().context("no receipt")?;
        let receipt: serde_json::Value = serde_json::from_str(receipt)?;
        ensure!(
            receipt["samples"] == total(&profile, "samples"),
            "{receipt}"
        );
        ensure!(receipt["workers"] == 1, "{receipt}");
        // The target has run all the time, and each checkpoint has the CPU time of its samples.
        let unattributed = &receipt["quality"]["cpuUnattributedMilliseconds"];
        ensure!(
            *unattributed == 0 && total(&profile, "cpu") > 0,
            "{receipt}"
        );
        ensure!(
            total(&profile, "samples") > samples && profile.duration_nanos > took,
            "{receipt} after {samples} samples in {took} ns"
        );
        ensure!(
            profile.string_table.iter().any(|text| text == "spin"),
            "no function of the program"
        );
        (samples, took) = (total(&profile, "samples"), profile.duration_nanos);
    }
    Ok(())
}

/// The seconds of a run for a reader that takes this long for the first one.
fn seconds(slow: Duration) -> Result<(Recording, u64, Vec<Snapshot>)> {
    let (give, given) = std::sync::mpsc::channel();
    let mut pause = slow;
    let deltas = Deltas::begin(move |delta| {
        std::thread::sleep(std::mem::take(&mut pause));
        let _ = give.send(delta);
    })?;
    let (recording, on_cpu) = recorded_with(4, Arc::new(deltas))?;
    Ok((recording, on_cpu, given.iter().collect()))
}

fn check_seconds(slow: Duration, expected: usize) -> Result<()> {
    let (recording, on_cpu, deltas) = seconds(slow)?;
    ensure!(deltas.len() == expected, "{} deltas", deltas.len());
    let whole = decode(&profile(&recording.snapshot()), &DecodeLimits::default())?;
    let (mut samples, mut cpu) = (0, 0);
    let mut until = recording.facts.began_unix_nanoseconds;
    for delta in &deltas {
        let profile = decode(&profile(delta), &DecodeLimits::default())?;
        samples += total(&profile, "samples");
        cpu += total(&profile, "cpu");
        ensure!(profile.string_table.iter().any(|text| text == "spin"));
        ensure!(profile.time_nanos == until, "a gap at {until}");
        ensure!(delta.facts.took >= SECOND, "{:?}", delta.facts.took);
        until += profile.duration_nanos;
    }
    let quality = recording.sampler.quality;
    let all = total(&whole, "samples");
    ensure!(all == i64::try_from(quality.taken - quality.idle)?);
    // Samples after the last second are only in the whole profile.
    let rest = all - samples;
    ensure!((1..=99 * 2).contains(&rest), "{samples} samples of {all}");
    ensure!(cpu > 0 && cpu < total(&whole, "cpu"), "{cpu} ns of CPU");
    // No second loses CPU time that its samples get later. The target also ran before and after the
    // run: longer on a busy machine.
    let share = total(&whole, "cpu") as f64 / on_cpu as f64;
    ensure!(share > 0.5 && share <= 1.0, "{share} of its CPU time");
    let unattributed = recording.facts.cpu_unattributed.as_nanos() as f64 / on_cpu as f64;
    ensure!(unattributed < 0.05, "{unattributed} of it is in no sample");
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn checkpoint_is_left_out_under_another() -> Result<()> {
        let (recording, kept) = recorded(4, |number| {
            if number == 1 {
                std::thread::sleep(SECOND * 3 / 2);
            }
            Ok(())
        })?;
        ensure!(recording.ended == RunEnd::Done, "{:?}", recording.ended);
        ensure!(numbers(&kept) == [1, 3, 4], "{:?}", numbers(&kept));
        Ok(())
    }

    #[test]
    fn a_store_that_refuses_is_no_harm() -> Result<()> {
        let (recording, kept) = recorded(2, |_| Err("no".to_owned()))?;
        ensure!(kept.is_empty(), "{:?}", numbers(&kept));
        ensure!(recording.ended == RunEnd::Done, "{:?}", recording.ended);
        let profile = decode(&profile(&recording.snapshot()), &DecodeLimits::default())?;
        ensure!(total(&profile, "samples") > 0, "nothing was sampled");
        Ok(())
    }

    #[test]
    fn seconds_of_a_run_are_complete() -> Result<()> {
        check_seconds(Duration::ZERO, 4)
    }

    #[test]
    fn slow_reader_gets_all_seconds_together() -> Result<()> {
        check_seconds(SECOND * 3 / 2, 3)
    }
}
