//! The built sampler, driven over its CPU budget, in parallel with one without a budget, on the
//! same PHP 8.2.
//!
//! The CPU time is compared late in the run, since the budget does not count its first three
//! seconds, and both samplers run at once, so that a busy machine slows both.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::{DecodeLimits, decode};
use phpprof_testing::Running;
use serde_json::Value;

const SPIN: &str = "function spin() { return md5('x'); } while (true) spin();";
/// So many that they cost several times the budget on any machine.
const RATE: u32 = 4000;
const SECONDS: u64 = 11;
/// By then the rate has fallen for four seconds: by half with each second or more.
const SETTLED: Duration = Duration::from_millis(7_500);
const MEASURED: Duration = Duration::from_millis(2_200);

/// Starts a sampler with this budget.
fn sampler(target: &Running, percent: u32, file: &Path) -> Result<Child> {
    let mut sampler = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    sampler
        .arg("record")
        .arg(format!("--pid={}", target.pid()))
        .arg(format!("--samples-per-second={RATE}"))
        .arg(format!("--duration={SECONDS}"))
        .arg(format!("--cpu-budget-percent={percent}"))
        .arg("--output")
        .arg(file)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    sampler.spawn().context("starting the sampler")
}

/// The CPU time of all threads of a process, in nanoseconds.
fn cpu(process: &Child) -> Result<u64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{}/task", process.id()))? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        let ran = times.split(' ').next().context("no time")?;
        sum += ran.parse::<u64>()?;
    }
    Ok(sum)
}

/// What a sampler has printed, and its receipt.
fn told(ended: &Output, file: &Path) -> Result<(String, Value)> {
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    ensure!(ended.status.success(), "{said}");
    let profile = decode(&fs::read(file)?, &DecodeLimits::default())?;
    let receipt = profile.comments().next().context("no receipt")?;
    Ok((said, serde_json::from_str(receipt)?))
}

#[test]
fn sampler_over_budget_lowers_its_rate() -> Result<()> {
    let php = Command::new("/usr/bin/php8.2")
        .args(["-r", SPIN])
        .stdout(Stdio::null())
        .spawn();
    let target = Running(php.context("starting PHP")?);
    let folder = tempfile::tempdir()?;
    let files = ["bound", "free"].map(|name| folder.path().join(name).with_extension("pb.gz"));
    let bound = sampler(&target, 1, &files[0])?;
    let free = sampler(&target, 0, &files[1])?;
    std::thread::sleep(SETTLED);
    let before = [cpu(&bound)?, cpu(&free)?];
    std::thread::sleep(MEASURED);
    let used = [cpu(&bound)? - before[0], cpu(&free)? - before[1]];
    let (said, of_bound) = told(&bound.wait_with_output()?, &files[0])?;
    let (_, of_free) = told(&free.wait_with_output()?, &files[1])?;
    ensure!(
        used[0] * 3 < used[1],
        "{} ns of CPU with a budget of 1 %, and {} without one",
        used[0],
        used[1]
    );
    let rate = |receipt: &Value| receipt["effectiveSamplesPerSecond"].as_f64();
    let rates = [rate(&of_bound), rate(&of_free)].map(Option::unwrap_or_default);
    ensure!(
        0.0 < rates[0] && rates[0] < 0.8 * rates[1],
        "{rates:?} samples per second: {of_bound}"
    );
    let words = format!("{:.1} samples per second instead of {RATE}", rates[0]);
    ensure!(said.contains(&words), "{said}");
    Ok(())
}
