//! Loops as long as the time between two samples, on this machine's PHP 8.2: samples are not in
//! step with them. Each program measures by its own clock how long each of its functions took, and
//! the samples agree within a binomial bound.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::record;
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Lookup, decode};
use phpprof_testing::{Running, shares};

use crate::options::options;

/// A loop whose turn takes exactly a slot at 99 Hz, by absolute times: `a` takes a half, `b` and
/// `c` a quarter each.
const IN_STEP: &str = r"
function until($end) { do { md5('x'); } while (hrtime(true) < $end); }
function a($end) { until($end); } function b($end) { until($end); } function c($end) { until($end); }
$times = ['a' => 0, 'b' => 0, 'c' => 0];
function timed($name, $end) { global $times; $began = hrtime(true); $name($end); $times[$name] += hrtime(true) - $began; }
$period = 10101010; $turn = hrtime(true); $end = $turn + 7 * 1000000000;
while ($turn < $end) { timed('a', $turn + intdiv($period, 2)); timed('b', $turn + intdiv($period * 3, 4)); $turn += $period; timed('c', $turn); }
echo json_encode($times);
";

/// The plainest loop there is.
const HALF_ASLEEP: &str = r"
function work() { $end = hrtime(true) + 5000000; do { md5('x'); } while (hrtime(true) < $end); }
$times = ['work' => 0, 'usleep' => 0]; $end = hrtime(true) + 7 * 1000000000;
do { $began = hrtime(true); work(); $slept = hrtime(true); usleep(5000); $now = hrtime(true);
    $times['work'] += $slept - $began; $times['usleep'] += $now - $slept; } while ($now < $end);
echo json_encode($times);
";

const SECONDS: u64 = 6;
/// On a machine that is busy with other things, most turns may be late.
const FEWEST: f64 = 100.0;

/// Samples and CPU time by function, and the program's own times.
struct Ran {
    samples: HashMap<String, f64>,
    cpu: HashMap<String, f64>,
    times: HashMap<String, f64>,
    /// The share of the turns that were missed: the machine had no CPU for the sampler, and likely
    /// none for the program either.
    missed: f64,
    /// The share of the time for which the program waited for a CPU while it could have run.
    waited: f64,
}

/// Runs a program that prints the time of each of its functions, and samples it meanwhile.
fn ran(program: &str, rate: u32) -> Result<Ran> {
    let child = Command::new("/usr/bin/php8.2")
        .args(["-r", program])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting PHP")?;
    let mut target = Running(child);
    let recording = record(&options(
        Scope::Pids(vec![target.pid()]),
        rate,
        Duration::from_secs(SECONDS),
    ))?;
    let waited = waited(&target)?;
    let stdout = target.0.stdout.take().context("no output")?;
    let times: HashMap<String, f64> = serde_json::from_reader(stdout)?;
    let quality = recording.sampler.quality;
    let missed = quality.late as f64 / quality.due.max(1) as f64;
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let (mut samples, mut cpu) = (HashMap::new(), HashMap::new());
    for sample in &profile.sample {
        let mut frames = lookup.frames(sample);
        if let Some(frame) = frames.find(|frame| times.contains_key(frame.name)) {
            *samples.entry(frame.name.to_owned()).or_default() += sample.value[0] as f64;
            *cpu.entry(frame.name.to_owned()).or_default() += sample.value[1] as f64;
        }
    }
    Ok(Ran {
        samples,
        cpu,
        times,
        missed,
        waited,
    })
}

/// By the kernel's count: proc(5), `schedstat`.
fn waited(target: &Running) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", target.pid()))?;
    let mut fields = text.split_ascii_whitespace().map(str::parse::<f64>);
    let mut field = || fields.next().context("no such field");
    let (ran, waited) = (field()??, field()??);
    Ok(waited / (ran + waited))
}

/// A function's share of all.
fn share(of: &HashMap<String, f64>, name: &str) -> f64 {
    of.get(name).copied().unwrap_or(0.0) / of.values().sum::<f64>()
}

/// Checks that the samples have the shares of the program's own clock.
fn check(ran: &Ran, rate: u32) -> Result<()> {
    let count = ran.samples.values().sum::<f64>();
    ensure!(count > FEWEST, "{count} samples");
    for name in ran.times.keys() {
        let part = ran.samples.get(name).copied().unwrap_or(0.0);
        let expected = share(&ran.times, name);
        shares::check(name, part, count, expected, ran.missed)
            .with_context(|| format!("at {rate} Hz"))?;
    }
    Ok(())
}

#[test]
fn loop_of_one_slot_has_its_shares() -> Result<()> {
    check(&ran(IN_STEP, 99)?, 99)
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn loop_with_sleep_has_its_shares() -> Result<()> {
        for rate in [99, 199] {
            let ran = ran(HALF_ASLEEP, rate)?;
            check(&ran, rate)?;
            // The time of falling asleep and waking up is the sleep's own: below 1 % on a quiet
            // machine. What waits for a CPU after a sleep cannot be told from running.
            let asleep = share(&ran.cpu, "usleep");
            let most = 0.03 + ran.waited;
            ensure!(
                asleep < most,
                "usleep has {asleep:.3} of the CPU time at {rate} Hz, and at most {most:.3} was expected"
            );
        }
        Ok(())
    }
}
