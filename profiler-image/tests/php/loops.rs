//! Workers that serve with an event loop: its waits are idle time, and those of a program that
//! waits for one result inside of a loop are not. With this machine's PHP 8.2.
//!
//! ReactPHP's own packages are not installed here. The program is a mock of them: its classes and
//! functions have the names of `react/event-loop` 1.x and `react/async` 4.x, and call each other as
//! theirs do. What it cannot show is whether a later release of these has other names.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::options::options;
use anyhow::{Context, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::record;
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, decode, top};
use phpprof_testing::Running;
use tempfile::TempDir;

/// Serves for 3 ms of each 20 ms, in a server's loop or in one that waits for a result.
const LOOP: &str = r#"<?php
namespace React\EventLoop {
    class StreamSelectLoop {
        private $streams;
        function __construct() { $this->streams = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); }
        function run() { while (true) { $this->waitForStreamActivity(17000); \serve(); } }
        private function waitForStreamActivity($timeout) { $this->streamSelect([$this->streams[0]], [], $timeout); }
        private function streamSelect(array $read, array $write, $timeout) { $except = []; return stream_select($read, $write, $except, 0, $timeout); }
    }
    class Loop { static function run() { (new StreamSelectLoop)->run(); } }
}
namespace React\Async { function await() { \React\EventLoop\Loop::run(); } }
namespace {
    function serve() { $until = hrtime(true) + 3_000_000; while (hrtime(true) < $until) { md5('x'); } }
    if ($argv[1] === 'await') { React\Async\await(); } else { React\EventLoop\Loop::run(); }
}
"#;

/// What a run saw of the program: the share of idle turns, and the functions of its profile.
struct LoopRun {
    idle: f64,
    functions: Vec<String>,
}

fn run(mode: &str) -> Result<LoopRun> {
    let folder = TempDir::new()?;
    let script = folder.path().join("loop.php");
    fs::write(&script, LOOP)?;
    let child = Command::new("php8.2")
        .arg(&script)
        .arg(mode)
        .stdout(Stdio::null())
        .spawn()
        .context("starting php8.2")?;
    let running = Running(child);
    let pid = i32::try_from(running.0.id())?;
    std::thread::sleep(Duration::from_millis(300));
    let options = options(Scope::Pids(vec![pid]), 99, Duration::from_secs(3));
    let recording = record(&options)?;
    let quality = recording.sampler.quality;
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    Ok(LoopRun {
        idle: quality.idle as f64 / quality.taken.max(1) as f64,
        functions: top(&profile, "wall")
            .into_iter()
            .map(|row| row.name)
            .collect(),
    })
}

#[test]
fn a_servers_loop_waits_in_idle_time() -> Result<()> {
    let server = run("server")?;
    // 85 %, less if other programs have the CPU while it serves.
    ensure!((0.4..0.95).contains(&server.idle), "{}", server.idle);
    let has = |name: &str| server.functions.iter().any(|function| function == name);
    ensure!(has("serve") && has("React\\EventLoop\\StreamSelectLoop::run"));
    Ok(())
}

#[test]
fn programs_await_a_result_in_their_own_time() -> Result<()> {
    let program = run("await")?;
    ensure!(program.idle == 0.0, "{}", program.idle);
    let has = |name: &str| program.functions.iter().any(|function| function == name);
    ensure!(has("serve") && has("stream_select"));
    Ok(())
}
