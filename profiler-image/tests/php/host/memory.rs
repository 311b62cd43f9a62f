//! `phpprof dump --memory` of real PHP, compared with what the program says of its own memory and
//! with what it has planted: counts and bytes are exact.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use phpprof_testing::fpm::{ask, of_script};
use phpprof_testing::{Running, wait_for};
use serde_json::Value;

use super::scene::{PHP, Scene, php_fpm, run, said};

/// Does a command of each line, then says what its memory is, as it was the fourth time: by then,
/// saying it has changed nothing. Then it waits in `fgets`, where nothing is allocated.
const SCRIPT: &str = r#"<?php
class Order { public $a = 'secret-of-a-property'; public $b; public $c; public $d; public $e; }
$orders = $texts = [];
$huge = null;
$call = [
    'plant' => function () { global $orders, $texts, $huge;
        for ($i = 0; $i < 10007; $i++) $orders['secret-key-' . $i] = new Order;
        for ($i = 0; $i < 21; $i++) $texts[] = str_repeat('secret-value', 8334);
        $huge = str_repeat('z', 5 << 20); },
    'free' => function () { global $orders, $i;
        $i = 0; foreach ($orders as $key => $order) if ($i++ < 5000 || $i % 3) unset($orders[$key]); },
    'shuffle' => function () { global $orders; shuffle($orders); while (count($orders) > 500) array_pop($orders); },
    'caches' => function () { fwrite(STDOUT, gc_mem_caches() . "\n"); },
    'opcache' => function () { fwrite(STDOUT, json_encode(opcache_get_status(false)['memory_usage']) . "\n"); },
    'busy' => function () { fwrite(STDOUT, "\n"); while (true) $x[rand(0, 999)] = str_repeat('x', rand(9, 9999)); },
    'say' => function () {},
];
while (true) {
    $word = trim(fgets(STDIN));
    if ($word === '') exit;
    $call[$word]();
    $word = null;
    for ($i = 0; $i < 4; $i++) {
        $size = memory_get_usage(); $real = memory_get_usage(true);
        $peak = memory_get_peak_usage(); $real_peak = memory_get_peak_usage(true);
        $said = "[$size, $real, $peak, $real_peak]\n";
    }
    fwrite(STDOUT, $said);
}
"#;

/// A PHP that does what it is told.
struct Program {
    running: Running,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    _scene: Scene,
}

impl Program {
    fn start(arguments: &[&str]) -> Result<Self> {
        let scene = Scene::new()?;
        let script = scene.file("script.php", SCRIPT)?;
        let mut command = Command::new(PHP);
        let command = command.args(arguments).arg(script).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let commands = child.stdin.take().context("no stdin")?;
        let answers = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self {
            running: Running(child),
            commands,
            answers,
            _scene: scene,
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }

    /// Its sizes after a command: in use, from the system, and their peaks.
    fn sizes(&mut self, command: &str) -> Result<[u64; 4]> {
        writeln!(self.commands, "{command}")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// The heap of a moment in which it waits.
    fn heap(&self) -> Result<Value> {
        wait_for("a heap of one moment", || {
            let heap = memory(self.running.pid())?["heap"].clone();
            Ok((heap["isMoment"] == true).then_some(heap))
        })
    }
}

pub fn dumped(arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    command.args(["dump", "--memory"]).args(arguments);
    let output = run(command.stdin(Stdio::null()))?;
    ensure!(output.status.success(), "{}", said(&output));
    Ok(output.stdout)
}

/// The memory of the first worker of a process.
pub fn memory(pid: i32) -> Result<Value> {
    let dumped: Value = serde_json::from_slice(&dumped(&["-o", "json", "-p", &pid.to_string()])?)?;
    Ok(dumped["workers"][0]["memory"].clone())
}

fn number(heap: &Value, key: &str) -> u64 {
    heap[key].as_u64().unwrap_or(u64::MAX)
}

/// How many elements of a size are in use.
fn used(heap: &Value, size: u64) -> u64 {
    let mut bins = heap["bins"].as_array().into_iter().flatten();
    let bin = bins.find(|bin| bin["size"] == size);
    bin.map_or(0, |bin| number(bin, "used"))
}

/// The account adds up to what the program says.
#[track_caller]
fn check_sizes(heap: &Value, [size, real_size, peak, real_peak]: [u64; 4]) -> Result<()> {
    for (key, expected) in [
        ("size", size),
        ("realSize", real_size),
        ("peak", peak),
        ("realPeak", real_peak),
        ("unaccounted", 0),
        ("limit", 1 << 30),
    ] {
        ensure!(heap[key] == expected, "{key} is not {expected}: {heap:#}");
    }
    let blocks = ["small", "large", "huge"].map(|key| number(heap, key));
    ensure!(blocks.iter().sum::<u64>() == size, "{heap:#}");
    let chunks = ["chunks", "cachedChunks"].map(|key| number(heap, key) << 21);
    let taken = chunks.iter().sum::<u64>() + number(heap, "huge");
    ensure!(taken == real_size, "{heap:#}");
    ensure!(heap["lost"].is_null(), "{heap:#}");
    Ok(())
}

#[test]
fn account_is_what_the_program_says_and_planted() -> Result<()> {
    let mut program = Program::start(&["-n", "-d", "memory_limit=1G"])?;
    let sizes = program.sizes("say")?;
    let before = program.heap()?;
    check_sizes(&before, sizes)?;

    let sizes = program.sizes("plant")?;
    let planted = program.heap()?;
    check_sizes(&planted, sizes)?;
    let more = |key| number(&planted, key) - number(&before, key);
    // An object of five properties: 40 bytes and 16 for each, so 120.
    ensure!(used(&planted, 128) - used(&before, 128) >= 10_007);
    ensure!(used(&planted, 128) - used(&before, 128) <= 10_020);
    // Each string of 100,008 characters is in 25 pages.
    ensure!(more("largeBlocks") >= 21 && more("large") >= 21 * 25 * 4096);
    // The string, and the table of 16,384 orders if it is above 2 MiB, which it is not.
    ensure!(more("hugeBlocks") == 1 && more("huge") == (5 << 20) + 4096);

    let sizes = program.sizes("free")?;
    let freed = program.heap()?;
    check_sizes(&freed, sizes)?;
    let fewer = used(&planted, 128) - used(&freed, 128);
    let kept = (5000..10_007).filter(|i| (i + 1) % 3 == 0).count() as u64;
    ensure!((10_007 - kept).abs_diff(fewer) <= 10, "{fewer}");
    Ok(())
}

#[test]
fn caches_give_back_what_was_foretold() -> Result<()> {
    let mut program = Program::start(&["-n", "-d", "memory_limit=1G"])?;
    program.sizes("plant")?;
    program.sizes("free")?;
    let sizes = program.sizes("shuffle")?;
    let heap = program.heap()?;
    check_sizes(&heap, sizes)?;
    writeln!(program.commands, "caches")?;
    let given: u64 = program.line()?.trim().parse()?;
    ensure!(
        given > 100_000 && number(&heap, "reclaimable") == given,
        "{given}: {heap:#}"
    );
    let sizes = serde_json::from_str(&program.line()?)?;
    let heap = program.heap()?;
    check_sizes(&heap, sizes)?;
    ensure!(number(&heap, "reclaimable") == 0, "{heap:#}");
    Ok(())
}

#[test]
fn opcache_is_as_full_as_it_says() -> Result<()> {
    let mut program = Program::start(&["-d", "opcache.enable_cli=1", "-d", "memory_limit=1G"])?;
    program.sizes("say")?;
    writeln!(program.commands, "opcache")?;
    let status: Value = serde_json::from_str(&program.line()?)?;
    program.line()?;
    let opcache = memory(program.running.pid())?["opcache"].clone();
    for (ours, theirs) in [
        ("used", "used_memory"),
        ("free", "free_memory"),
        ("wasted", "wasted_memory"),
    ] {
        ensure!(opcache[ours] == status[theirs], "{opcache:#} {status:#}");
    }
    Ok(())
}

/// Where others have the CPUs, it waits for one for most of the time. Then an account is of one
/// moment, too, which may be in the middle of an allocation: the size has that block already, and
/// the lists do not.
#[test]
fn busy_workers_account_is_torn_or_exact() -> Result<()> {
    let mut program = Program::start(&["-n"])?;
    writeln!(program.commands, "busy")?;
    program.line()?;
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..10 {
        let memory = memory(program.running.pid())?;
        let heap = &memory["heap"];
        let is_exact = |rest: i64| rest.unsigned_abs() <= 2 << 20;
        let is_exact = heap["unaccounted"].as_i64().is_some_and(is_exact);
        ensure!(heap["isMoment"] == false || is_exact, "{memory:#}");
        ensure!(number(&memory["process"], "private") > 1 << 20);
    }
    Ok(())
}

#[test]
fn no_value_is_in_the_account() -> Result<()> {
    let mut program = Program::start(&["-n"])?;
    program.sizes("plant")?;
    let pid = program.running.pid().to_string();
    for form in [&["-p", &pid][..], &["-o", "json", "-p", &pid]] {
        let text = String::from_utf8(dumped(form)?)?;
        ensure!(!text.contains("secret"), "{text}");
    }
    Ok(())
}

#[test]
fn idle_fpm_worker_has_an_empty_heap() -> Result<()> {
    let scene = Scene::new()?;
    let script = scene.file(
        "script.php",
        "<?php for ($i = 0; $i < 50000; $i++) $a[] = new stdClass; echo memory_get_usage();",
    )?;
    let _master = php_fpm(&scene, &[("emptied", 1)], "user = root\ngroup = root\n")?;
    let answer = ask(&scene.path("socket"), &of_script(&script))?;
    ensure!(!answer.is_empty());
    let worker = wait_for("a heap of one moment", || {
        let dumped = dumped(&["-o", "json", "--php-fpm", "emptied"])?;
        let dumped: Value = serde_json::from_slice(&dumped)?;
        let worker = dumped["workers"][0].clone();
        Ok((worker["memory"]["heap"]["isMoment"] == true).then_some(worker))
    })?;
    let heap = &worker["memory"]["heap"];
    ensure!(worker["state"] == "Idle", "{worker:#}");
    if number(heap, "size") > 1 << 20 || number(heap, "peak") > 1 << 20 {
        bail!("the request's memory is still there: {heap:#}");
    }
    ensure!(heap["unaccounted"] == 0, "{heap:#}");
    let classes = &worker["memory"]["classes"];
    ensure!(classes["objects"] == 0, "{classes:#}");
    // It keeps some of the chunks that the request had.
    let chunks = ["chunks", "cachedChunks"].map(|key| number(heap, key));
    ensure!(chunks.iter().sum::<u64>() << 21 == number(heap, "realSize"));
    Ok(())
}
