//! The engine's phases in profiles of this machine's PHP 8.2: the compiler, the
//! collector, functions that the engine calls by itself, and workers that wait.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::request::asked::Asked;
use phpprof::run::stop::Stop;
use phpprof::run::{Options, Recording, record};
use phpprof::target::Scope;
use phpprof_profile::{Limits, Lookup, decode};
use tempfile::TempDir;

/// Compiles a large file and collects cycles, in turns.
const WORK: &str = r#"<?php
function compile() { include __DIR__ . '/large.php'; }
function collect() {
    for ($i = 0; $i < 9000; $i++) { $ring = new stdClass; $ring->self = $ring; }
    gc_collect_cycles();
}
while (true) { compile(); collect(); }
"#;

/// Works after its script has ended.
const AFTERWARDS: &str = r#"<?php
function work() { for ($i = 0; $i < 100000; $i++) { $hash = md5($hash ?? 'x'); } }
function afterwards() { while (true) { work(); } }
register_shutdown_function('afterwards');
"#;

/// Works for 2 ms and then writes more than a pipe holds, in turns.
const WRITES: &str = r#"<?php
function work() { $until = hrtime(true) + 2_000_000; while (hrtime(true) < $until); }
function send($text) { echo $text; }
$text = str_repeat('x', 1 << 17);
while (true) { work(); send($text); }
"#;

/// Waits for its standard input, like a worker of RoadRunner.
const WAITS: &str =
    "<?php function receive() { return fread(STDIN, 12); } while (receive() !== '');";

/// The same, for a pipe that it has made itself.
const WAITS_FOR_ANOTHER: &str =
    "<?php $other = popen('exec sleep 60', 'r'); while (fread($other, 12) !== '');";

/// The same, in a child with a pipe of its own.
const HAS_A_CHILD: &str = r#"<?php
$child = proc_open(['php8.2', '-r', 'while (fread(STDIN, 12) !== "");'], [['pipe', 'r']], $pipes);
sleep(60);
"#;

/// A target that is ended with the test.
struct Target(Child);

impl Target {
    fn start(command: &mut Command) -> Result<Self> {
        Self::of(command.stdout(Stdio::null()))
    }

    fn of(command: &mut Command) -> Result<Self> {
        let child = command.stderr(Stdio::null()).spawn();
        Ok(Self(
            child.with_context(|| format!("starting {command:?}"))?,
        ))
    }

    fn sampled(&self, include_idle: bool) -> Result<Recording> {
        Ok(record(&Options {
            scope: Scope::Pids(vec![i32::try_from(self.0.id())?]),
            samples_per_second: 499,
            duration: Duration::from_secs(2),
            max_samples: None,
            unpaced: false,
            include_idle,
            only_running: false,
            heap: false,
            of_program: false,
            cpu_budget_percent: Some(25),
            quiescent_cpus: None,
            stop: Stop::default(),
            checkpoints: None,
            requests: Asked::default(),
        })?)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // php-fpm then ends its worker, too.
        let pid = i32::try_from(self.0.id()).map(Pid::from_raw);
        let _ = pid.map(|pid| kill(pid, Signal::SIGTERM));
        let _ = self.0.wait();
    }
}

/// Samples by their stack, root first.
fn stacks(recording: &Recording) -> HashMap<String, i64> {
    values(recording, "samples")
}

/// The values of this type by their stack.
fn values(recording: &Recording, name: &str) -> HashMap<String, i64> {
    let file = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    // If the file is not a profile, there are no stacks.
    let profile = decode(&file, &Limits::default()).unwrap_or_default();
    let lookup = Lookup::new(&profile);
    let index = profile.value_index(name);
    let mut stacks = HashMap::new();
    for sample in &profile.sample {
        let mut names: Vec<&str> = lookup.frames(sample).map(|frame| frame.name).collect();
        names.reverse();
        *stacks.entry(names.join(";")).or_default() += index.map_or(0, |index| sample.value[index]);
    }
    stacks
}

#[test]
fn the_compiler_and_the_collector_are_leaves_of_the_code_that_they_work_for() -> Result<()> {
    let folder = TempDir::new()?;
    let script = folder.path().join("work.php");
    fs::write(&script, WORK)?;
    let large = "if ($a) { $b = [1, 'x' => $c->d($e)]; }\n".repeat(4_000);
    fs::write(
        folder.path().join("large.php"),
        format!("<?php return;\n{large}"),
    )?;
    let target = Target::start(Command::new("php8.2").arg(&script))?;
    let stacks = stacks(&target.sampled(false)?);
    for expected in [
        "{main};compile;[compiling]",
        "{main};collect;gc_collect_cycles;[gc]",
    ] {
        let samples = stacks.get(expected).copied().unwrap_or(0);
        ensure!(samples >= 20, "{samples} samples of {expected}: {stacks:?}");
    }
    let elsewhere: Vec<_> = stacks
        .keys()
        .filter(|stack| stack.ends_with("[compiling]") && !stack.contains("compile;"))
        .collect();
    ensure!(elsewhere.is_empty(), "compiled by {elsewhere:?}");
    Ok(())
}

#[test]
fn a_function_that_the_engine_calls_by_itself_is_a_root() -> Result<()> {
    let folder = TempDir::new()?;
    let script = folder.path().join("work.php");
    fs::write(&script, AFTERWARDS)?;
    let target = Target::start(Command::new("php8.2").arg(&script))?;
    let stacks = stacks(&target.sampled(false)?);
    let samples = stacks.get("afterwards;work;md5").copied().unwrap_or(0);
    ensure!(samples >= 100, "{stacks:?}");
    Ok(())
}

/// A reader that takes 64 KiB each 10 ms lets an `echo` of 128 KiB wait for most of the time.
#[test]
fn output_that_waits_for_its_reader_has_no_cpu_time() -> Result<()> {
    let folder = TempDir::new()?;
    let script = folder.path().join("write.php");
    fs::write(&script, WRITES)?;
    let mut command = Command::new("php8.2");
    command.args(["-d", "output_buffering=0"]).arg(&script);
    let mut target = Target::of(command.stdout(Stdio::piped()))?;
    let mut output = target.0.stdout.take().context("no output")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while output.read_exact(&mut bytes).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let recording = target.sampled(false)?;
    drop(target);
    ensure!(reader.join().is_ok(), "the reader has failed");
    let [samples, cpu] = ["samples", "cpu"].map(|name| values(&recording, name));
    let share = |of: &HashMap<String, i64>| {
        let send = of.get("{main};send").copied().unwrap_or(0);
        100 * send / of.values().sum::<i64>().max(1)
    };
    ensure!(share(&samples) > 50, "{samples:?}");
    ensure!(share(&cpu) < 25, "{cpu:?}");
    Ok(())
}

#[test]
fn a_worker_that_waits_for_its_next_request_is_idle() -> Result<()> {
    let folder = TempDir::new()?;
    let socket = folder.path().join("fpm.sock");
    let script = folder.path().join("index.php");
    fs::write(&script, "<?php echo 'served';")?;
    let configuration = folder.path().join("fpm.conf");
    fs::write(
        &configuration,
        format!(
            "[global]\ndaemonize=no\nerror_log=/dev/null\n[www]\nuser=root\ngroup=root\nlisten={}\npm=static\npm.max_children=1\n",
            socket.display()
        ),
    )?;
    let target = Target::start(
        Command::new("/usr/sbin/php-fpm8.2")
            .args(["-F", "-R", "-y"])
            .arg(&configuration),
    )?;
    serve(&socket, &script)?;
    let recording = target.sampled(false)?;
    ensure!(
        stacks(&recording).is_empty() && recording.sampler.quality.idle > 100,
        "{:?}",
        stacks(&recording)
    );
    let stacks = stacks(&target.sampled(true)?);
    ensure!(
        stacks.len() == 1 && stacks.contains_key("[idle]"),
        "{stacks:?}"
    );
    Ok(())
}

/// Starts a worker with an open pipe, whose environment names RoadRunner's relay; returns the samples by stack, with idle ones.
fn worker(script: &str, relay: &str) -> Result<HashMap<String, i64>> {
    let folder = TempDir::new()?;
    let path = folder.path().join("worker.php");
    fs::write(&path, script)?;
    let target = Target::start(
        Command::new("php8.2")
            .arg(&path)
            .env("RR_RELAY", relay)
            .stdin(Stdio::piped()),
    )?;
    // Until the compiler has run.
    std::thread::sleep(Duration::from_millis(300));
    Ok(stacks(&target.sampled(true)?))
}

#[test]
fn a_worker_of_roadrunner_that_waits_on_its_pipe_is_idle() -> Result<()> {
    let stacks = worker(WAITS, "pipes")?;
    ensure!(
        stacks.len() == 1 && stacks.contains_key("[idle]"),
        "{stacks:?}"
    );
    Ok(())
}

#[test]
fn what_waits_on_another_pipe_or_is_no_worker_is_not_idle() -> Result<()> {
    for (script, relay, expected) in [
        (WAITS, "", "{main};receive;fread"),
        (WAITS, "tcp://127.0.0.1:7000", "{main};receive;fread"),
        (WAITS_FOR_ANOTHER, "pipes", "{main};fread"),
        (HAS_A_CHILD, "pipes", "{main};fread"),
    ] {
        let stacks = worker(script, relay)?;
        let samples = stacks.get(expected).copied().unwrap_or(0);
        ensure!(
            samples >= 100 && !stacks.contains_key("[idle]"),
            "{script}: {stacks:?}"
        );
    }
    Ok(())
}

/// Sends one request, once the server listens.
fn serve(socket: &Path, script: &Path) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = Command::new("cgi-fcgi")
            .args(["-bind", "-connect"])
            .arg(socket)
            .env("SCRIPT_FILENAME", script)
            .env("REQUEST_METHOD", "GET")
            .output()?;
        if String::from_utf8_lossy(&answer.stdout).contains("served") {
            return Ok(());
        }
        ensure!(
            began.elapsed() < Duration::from_secs(10),
            "php-fpm has not answered: {answer:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
