//! The engine's phases in profiles of this machine's PHP 8.2: the compiler, the
//! collector, functions that the engine calls by itself, and workers that wait.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::options::options;
use anyhow::{Context, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::{Recording, RecordingOptions, record};
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Lookup, decode, place_name};
use phpprof_testing::Running;
use phpprof_testing::fpm::{self, Pool};
use tempfile::TempDir;

const FPM: &str = "/usr/sbin/php-fpm8.2";
/// Compiles a large file and collects cycles, in turns.
const WORK: &str = r#"<?php
function compile() { include __DIR__ . '/large.php'; }
function collect() {
    for ($i = 0; $i < 9000; $i++) { $ring = new stdClass; $ring->self = $ring; }
    gc_collect_cycles();
}
while (true) { compile(); collect(); }
"#;

/// Spins for some microseconds.
const SPIN: &str = r#"<?php
function spin($us) { $end = hrtime(true) + $us * 1000; while (hrtime(true) < $end) { md5('a'); } }
"#;

/// All of the time is in destructors that the collector calls; it runs when it is called.
const DESTROYS: &str = r#"
class Ring { public $self; function __construct() { $this->self = $this; } function __destruct() { spin(3000); } }
while (true) { new Ring; gc_collect_cycles(); }
"#;

/// The collector runs by itself, and in a destructor that it has not called; it closes generators,
/// also while it is disabled.
const COLLECTS: &str = r#"
class Ring { public $self; function __construct() { $this->self = $this; } }
class Node extends Ring { function __destruct() { static $count = 0; if (++$count % 1000 == 0) { spin(9000); } } }
class Temporary { function __destruct() { rings(); } }
class Outer extends Ring { function __destruct() { inner(); spin(500); } }
class Inner { function __destruct() { spin(500); } }
function nodes() { for ($i = 0; $i < 10001; $i++) { new Node; } }
function rings() { for ($i = 0; $i < 20002; $i++) { new Ring; } }
function pass($temporary) { return $temporary; }
function inner() { $inner = new Inner; pass($inner); unset($inner); }
function counted() { $temporary = new Temporary; pass($temporary); unset($temporary); }
function closes() { try { $own = yield; yield; } finally { spin(2000); } }
function generators() { $generator = closes(); $generator->current(); $generator->send($generator); }
function collect() { gc_disable(); new Outer; generators(); gc_collect_cycles(); gc_enable(); }
while (true) { nodes(); counted(); collect(); }
"#;

/// Works 700 ms in each thing that the engine calls after the script.
const AFTERWARDS: &str = r#"
class Session implements SessionHandlerInterface {
    function open($path, $name): bool { return true; }
    function close(): bool { return true; }
    function read($id): string|false { return ''; }
    function write($id, $data): bool { spin(700000); return true; }
    function destroy($id): bool { return true; }
    function gc($lifetime): int|false { return 0; }
}
class Last { function __destruct() { spin(700000); } }
function handler($exception) { spin(700000); }
function afterwards() { spin(700000); }
function output($text) { spin(700000); return $text; }
ini_set('session.use_cookies', 0);
session_set_save_handler(new Session, false);
session_id('x');
session_cache_limiter('');
session_start();
ob_start('output');
register_shutdown_function('afterwards');
set_exception_handler('handler');
$last = new Last;
spin(700000);
throw new Exception;
"#;

/// What the engine calls in the middle of other code, and destructors and generators below an
/// autoloader's op.
const CALLS_BACK: &str = r#"
class Rows implements Iterator {
    private $row = 0;
    function current(): mixed { spin(300); return 1; }
    function key(): mixed { return $this->row; }
    function next(): void { $this->row++; }
    function rewind(): void { $this->row = 0; }
    function valid(): bool { return $this->row < 2; }
}
class Text { private $at = 0; public $context; const TEXT = '<?php return 1;';
    function stream_open($path, $mode, $options, &$opened) { spin(500); return true; }
    function stream_read($length) { $read = substr(self::TEXT, $this->at); $this->at += strlen($read); return $read; }
    function stream_eof() { return $this->at >= strlen(self::TEXT); }
    function stream_stat() { return []; }
    function stream_set_option($option, $one, $two) { return false; }
}
class Node { public $self; function __destruct() { spin(500); } function __construct() { $this->self = $this; } }
function load($class) { new Node; gc_collect_cycles(); spin(500); eval("class $class {}"); }
function failed() { spin(500); return true; }
function buffered($text) { spin(500); return ''; }
function ticked() { static $count = 0; if (++$count % 4 == 0) { spin(1000); } }
function rows() { foreach (new Rows as $row) { } }
function includes() { include 'text://x'; }
function warns() { $none = []; return $none['x']; }
function sends() { ob_start('buffered', 2); echo 'xxxx'; ob_clean(); ob_end_clean(); }
function loads() { static $count = 0; $class = 'C' . $count++; new $class; }
function sorts() { $list = [2, 1]; usort($list, 'compare'); }
function compare($one, $two) { spin(500); return $one <=> $two; }
stream_wrapper_register('text', 'Text');
spl_autoload_register('load');
set_error_handler('failed');
register_tick_function('ticked');
while (true) { rows(); includes(); warns(); sends(); loads(); sorts(); declare(ticks=1) { $tick = 1; } }
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

/// This many samples of a stack are not chance.
const ENOUGH: i64 = 3;

fn started(command: &mut Command) -> Result<Running> {
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn sampled(target: &Running, include_idle: bool) -> Result<Recording> {
    sampled_for(target, include_idle, 2)
}

fn sampled_for(target: &Running, include_idle: bool, seconds: u64) -> Result<Recording> {
    Ok(record(&RecordingOptions {
        include_idle,
        cpu_budget_percent: Some(25),
        ..options(
            Scope::Pids(vec![target.pid()]),
            499,
            Duration::from_secs(seconds),
        )
    })?)
}

/// Samples by their stack, root first.
fn stacks(recording: &Recording) -> HashMap<String, i64> {
    values(recording, "samples")
}

/// The values of this type by their stack.
fn values(recording: &Recording, name: &str) -> HashMap<String, i64> {
    let file = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    // If the file is not a profile, there are no stacks.
    let profile = decode(&file, &DecodeLimits::default()).unwrap_or_default();
    let lookup = Lookup::new(&profile);
    let index = profile.value_index(name);
    let mut stacks = HashMap::new();
    for sample in &profile.sample {
        let names = lookup.frames(sample);
        let names = names.map(|frame| place_name(frame.name, frame.file, frame.start_line));
        let mut names: Vec<_> = names.collect();
        names.reverse();
        *stacks.entry(names.join(";")).or_default() += index.map_or(0, |index| sample.value[index]);
    }
    stacks
}

#[test]
fn compiler_and_collector_are_leaves() -> Result<()> {
    let folder = TempDir::new()?;
    let script = folder.path().join("work.php");
    fs::write(&script, WORK)?;
    let large = "if ($a) { $b = [1, 'x' => $c->d($e)]; }\n".repeat(4_000);
    fs::write(
        folder.path().join("large.php"),
        format!("<?php return;\n{large}"),
    )?;
    let target = started(Command::new("php8.2").arg(&script))?;
    let leaves = [
        "{main};compile;[compiling]",
        "{main};collect;gc_collect_cycles;[gc]",
    ];
    let stacks = sampled_until(&target, 2, &leaves, 20)?;
    for expected in leaves {
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

/// The stacks of a script that spins ([`sampled_until`]).
fn spinning(script: &str, seconds: u64, expected: &[&str]) -> Result<HashMap<String, i64>> {
    let folder = TempDir::new()?;
    let path = folder.path().join("work.php");
    fs::write(&path, format!("{SPIN}{script}"))?;
    let target = started(Command::new("php8.2").arg(&path))?;
    sampled_until(&target, seconds, expected, ENOUGH)
}

/// The stacks of a target: for this time, and again until each of the expected ones was seen often
/// enough.
fn sampled_until(
    target: &Running,
    seconds: u64,
    expected: &[&str],
    enough: i64,
) -> Result<HashMap<String, i64>> {
    let mut all = HashMap::new();
    for _ in 0..6 {
        for (stack, samples) in stacks(&sampled_for(target, false, seconds)?) {
            *all.entry(stack).or_default() += samples;
        }
        if expected.iter().all(|frames| below(&all, frames) >= enough) {
            break;
        }
    }
    Ok(all)
}

/// How many samples have stacks that begin with these frames.
fn below(stacks: &HashMap<String, i64>, frames: &str) -> i64 {
    let is_below = |stack: &str| {
        let rest = stack.strip_prefix(frames);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(';'))
    };
    let found = stacks.iter().filter(|(stack, _)| is_below(stack));
    found.map(|(_, samples)| samples).sum()
}

/// Checks that a script has enough samples of each of these, and that at most one in a hundred has
/// a stack with one of the wrong parts.
fn check(script: &str, seconds: u64, expected: &[&str], wrong: &[&str]) -> Result<()> {
    let stacks = spinning(script, seconds, expected)?;
    for frames in expected {
        ensure!(below(&stacks, frames) >= ENOUGH, "{frames}: {stacks:?}");
    }
    let all: i64 = stacks.values().sum();
    for part in wrong {
        let with_it = stacks.iter().filter(|(stack, _)| stack.contains(part));
        let samples: i64 = with_it.map(|(_, samples)| samples).sum();
        ensure!(samples * 100 <= all, "{samples} of {part}: {stacks:?}");
    }
    Ok(())
}

#[test]
fn callback_is_below_its_caller() -> Result<()> {
    check(
        CALLS_BACK,
        4,
        &[
            "{main};rows;Rows::current;spin",
            "{main};includes;Text::stream_open;spin",
            "{main};warns;failed;spin",
            "{main};sends;buffered;spin",
            "{main};loads;[autoload];load;spin",
            "{main};loads;[autoload];load;gc_collect_cycles;[gc];Node::__destruct;spin",
            "{main};sorts;usort;compare;spin",
            "{main};ticked;spin",
        ],
        &["spin;[", "md5;[", "hrtime;[", "loads;load"],
    )
}

/// A reader that takes 64 KiB each 10 ms lets an `echo` of 128 KiB wait for most of the time.
#[test]
fn waiting_output_has_no_cpu_time() -> Result<()> {
    let folder = TempDir::new()?;
    let script = folder.path().join("write.php");
    fs::write(&script, WRITES)?;
    let mut command = Command::new("php8.2");
    command.args(["-d", "output_buffering=0"]).arg(&script);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut target = Running(child.context("starting PHP")?);
    let mut output = target.0.stdout.take().context("no output")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while output.read_exact(&mut bytes).is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let recording = sampled(&target, false)?;
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

/// Starts a worker with an open pipe, whose environment names RoadRunner's relay; returns the
/// samples by stack, with idle ones.
fn worker(script: &str, relay: &str) -> Result<HashMap<String, i64>> {
    let folder = TempDir::new()?;
    let path = folder.path().join("worker.php");
    fs::write(&path, script)?;
    let child = Command::new("php8.2")
        .arg(&path)
        .env("RR_RELAY", relay)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let target = Running(child.context("starting PHP")?);
    // Until the compiler has run.
    std::thread::sleep(Duration::from_millis(300));
    Ok(stacks(&sampled(&target, true)?))
}

#[test]
fn roadrunner_worker_on_its_pipe_is_idle() -> Result<()> {
    let stacks = worker(WAITS, "pipes")?;
    ensure!(
        stacks.len() == 1 && stacks.contains_key("[idle]"),
        "{stacks:?}"
    );
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn collector_calls_destructors() -> Result<()> {
        let expected = "{main};gc_collect_cycles;[gc];Ring::__destruct;spin";
        let stacks = spinning(DESTROYS, 2, &[expected])?;
        let all: i64 = stacks.values().sum();
        let called = below(&stacks, expected);
        let own = stacks.get("{main};gc_collect_cycles;[gc]").unwrap_or(&0);
        ensure!(all >= 50 && called * 100 >= all * 97, "{stacks:?}");
        ensure!(own * 100 <= all * 2, "{stacks:?}");
        Ok(())
    }

    #[test]
    fn the_collector_stands_where_it_began() -> Result<()> {
        check(
            COLLECTS,
            4,
            &[
                "{main};nodes;[gc];Node::__destruct;spin",
                "{main};counted;Temporary::__destruct;rings;[gc]",
                "{main};collect;gc_collect_cycles;[gc];Outer::__destruct;spin",
                "{main};collect;gc_collect_cycles;[gc];Outer::__destruct;inner;Inner::__destruct;spin",
                "{main};collect;gc_collect_cycles;[gc];closes;spin",
            ],
            &[
                "[gc];Temporary::__destruct",
                "[gc];Inner::__destruct",
                "spin;[gc]",
                "spin;md5;[gc]",
                "spin;hrtime;[gc]",
                "gc_collect_cycles;Outer::__destruct",
            ],
        )
    }

    #[test]
    fn request_end_calls_what_runs_after() -> Result<()> {
        check(
            AFTERWARDS,
            5,
            &[
                "{main};spin",
                "handler;spin",
                "[shutdown];afterwards;spin",
                "[shutdown];Last::__destruct;spin",
                "[shutdown];output;spin",
                "[shutdown];Session::write;spin",
            ],
            &[
                "[shutdown];{main}",
                "[shutdown];handler",
                "{main};[shutdown]",
            ],
        )
    }

    #[test]
    fn other_pipes_and_processes_are_not_idle() -> Result<()> {
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

    #[test]
    fn worker_between_requests_is_idle() -> Result<()> {
        let folder = TempDir::new()?;
        let socket = folder.path().join("fpm.sock");
        let script = folder.path().join("index.php");
        fs::write(&script, "<?php echo 'served';")?;
        let pool = Pool {
            name: "www",
            socket: &socket,
            workers: 1,
            more: "user = root\ngroup = root\n",
        };
        let target = fpm::start(FPM, folder.path(), &[pool], &[])?;
        let answer = fpm::ask(&socket, &fpm::of_script(&script))?;
        ensure!(answer.contains("served"), "{answer}");
        let recording = sampled(&target, false)?;
        ensure!(
            stacks(&recording).is_empty() && recording.sampler.quality.idle > 100,
            "{:?}",
            stacks(&recording)
        );
        let stacks = stacks(&sampled(&target, true)?);
        ensure!(
            stacks.len() == 1 && stacks.contains_key("[idle]"),
            "{stacks:?}"
        );
        Ok(())
    }
}
