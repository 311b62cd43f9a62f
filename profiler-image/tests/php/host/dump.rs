//! `phpprof dump` of a php-fpm: one worker waits for a lock, one for a socket, one runs, one naps,
//! and one is idle.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::DecodeLimits;
use phpprof_profile::dump::DumpState;
use serde_json::Value;

use super::scene::{Running, Scene, run, said, wait_until};

const SCRIPT: &str = "<?php
function locked() { $file = fopen(__DIR__ . '/secret', 'c'); touch(__DIR__ . '/locked'); flock($file, LOCK_EX); }
function asked($port) { $socket = stream_socket_client(\"tcp://127.0.0.1:$port\"); touch(__DIR__ . '/asked'); fread($socket, 1); }
function busy() { touch(__DIR__ . '/busy'); while (true) $x = md5('x'); }
function naps() { touch(__DIR__ . '/naps'); while (true) usleep(2000); }
$_SERVER['REQUEST_TIME_FLOAT'];
$_GET['f']($_GET['port'] ?? 0);
";

fn dump(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    run(command.arg("dump").args(arguments).stdin(Stdio::null()))
}

/// Sends php-fpm a request for the script, and waits until it has begun.
fn ask(scene: &Scene, function: &str, query: &str) -> Result<Running> {
    let mut command = Command::new("cgi-fcgi");
    command
        .args(["-bind", "-connect"])
        .arg(scene.path("socket"))
        .env("SCRIPT_FILENAME", scene.path("script.php"))
        .env("QUERY_STRING", format!("f={function}{query}"))
        .env("REQUEST_METHOD", "GET");
    let client = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    wait_until(function, || Ok(scene.path(function).exists()))?;
    Ok(client)
}

fn php_fpm(scene: &Scene, pool: &str) -> Result<Running> {
    super::scene::php_fpm(scene, &[(pool, 5)], "user = root\ngroup = root\n")
}

fn functions(worker: &Value) -> Vec<&str> {
    let frames = worker["stack"].as_array().into_iter().flatten();
    frames
        .filter_map(|frame| frame["function"].as_str())
        .collect()
}

/// Holds the lock. Each connection is held, too.
fn hold(path: &Path) -> Result<File> {
    let file = File::create(path)?;
    file.lock()?;
    Ok(file)
}

/// A pool with a worker in each function, and one more.
struct Pool {
    port: u16,
    _clients: [Running; 4],
    _master: Running,
    _listener: TcpListener,
    _lock: File,
    scene: Scene,
}

impl Pool {
    fn start(name: &str) -> Result<Self> {
        let scene = Scene::new()?;
        scene.file("script.php", SCRIPT)?;
        let lock = hold(&scene.path("secret"))?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let master = php_fpm(&scene, name)?;
        let clients = [
            ask(&scene, "locked", "")?,
            ask(&scene, "asked", &format!("&port={port}"))?,
            ask(&scene, "busy", "")?,
            ask(&scene, "naps", "")?,
        ];
        std::thread::sleep(Duration::from_millis(500));
        Ok(Self {
            port,
            _clients: clients,
            _master: master,
            _listener: listener,
            _lock: lock,
            scene,
        })
    }
}

/// The worker in this function.
fn worker_in<'a>(workers: &'a [Value], function: &str) -> Result<&'a Value> {
    let mut all = workers.iter();
    let found = all.find(|worker| functions(worker).contains(&function));
    found.with_context(|| format!("nobody is in {function}: {workers:#?}"))
}

#[test]
fn hanging_worker_is_told_with_its_wait() -> Result<()> {
    let pool = Pool::start("hangs")?;
    let ended = dump(&["--php-fpm", "hangs", "-o", "json"])?;
    ensure!(ended.status.success(), "{}", said(&ended));
    ensure!(!String::from_utf8_lossy(&ended.stdout).contains("secret"));
    let dumped: Value = serde_json::from_slice(&ended.stdout)?;
    let workers = dumped["workers"].as_array().context("no workers")?;

    let locked = worker_in(workers, "flock")?;
    let lines: Vec<_> = (0..3)
        .map(|index| &locked["stack"][index]["line"])
        .collect();
    ensure!(
        functions(locked) == ["flock", "locked", "{main}"],
        "{locked:#}"
    );
    ensure!(lines == [0, 2, 7], "{locked:#}");
    let call = serde_json::json!({"name": "flock", "on": "file"});
    ensure!(
        locked["systemCall"] == call && locked["state"] == "Waiting",
        "{locked:#}"
    );
    ensure!(
        locked["pool"] == "hangs" && locked["sapi"] == "fpm-fcgi",
        "{locked:#}"
    );
    let age = locked["requestSeconds"].as_f64().unwrap_or(0.0);
    ensure!((0.4..30.0).contains(&age), "{locked:#}");

    let asked = worker_in(workers, "fread")?;
    ensure!(
        functions(asked) == ["fread", "asked", "{main}"],
        "{asked:#}"
    );
    let call = serde_json::json!({"name": "poll", "on": "socket", "peerPort": pool.port});
    ensure!(
        asked["systemCall"] == call && asked["state"] == "Waiting",
        "{asked:#}"
    );
    Ok(())
}

#[test]
fn snapshot_as_profile_tells_the_same() -> Result<()> {
    let pool = Pool::start("snapshot")?;
    let file = pool.scene.path("snapshot.pb.gz");
    let mut command = Command::new(env!("CARGO_BIN_EXE_phpprof"));
    command.args(["record", "--snapshot", "--labels=Method,Script"]);
    command.args(["--php-fpm", "snapshot", "-o"]).arg(&file);
    let ended = run(command.stdin(Stdio::null()))?;
    ensure!(ended.status.success(), "{}", said(&ended));
    let profile = phpprof_profile::decode(&std::fs::read(&file)?, &DecodeLimits::default())?;
    let workers = phpprof_profile::dump::workers(&profile);
    ensure!(workers.len() == 5, "{workers:#?}");
    let locked = workers.iter().find(|worker| {
        let mut frames = worker.stack.iter();
        frames.any(|frame| frame.function == "flock")
    });
    let locked = locked.context("nobody is in flock")?;
    ensure!(
        locked.state == DumpState::Waiting
            && locked.method.as_deref() == Some("GET")
            && locked
                .system_call
                .as_ref()
                .is_some_and(|call| call.name == "flock")
            && locked.request_seconds > Some(0.4),
        "{locked:#?}"
    );
    Ok(())
}

#[test]
fn waiting_workers_come_first_idle_are_counted() -> Result<()> {
    let _pool = Pool::start("order")?;
    let ended = dump(&["--php-fpm", "order", "-o", "json"])?;
    let dumped: Value = serde_json::from_slice(&ended.stdout)?;
    let workers = dumped["workers"].as_array().context("no workers")?;
    let states: Vec<_> = workers
        .iter()
        .filter_map(|worker| worker["state"].as_str())
        .collect();
    let rank = |state: &&str| {
        ["Waiting", "Running", "Idle"]
            .iter()
            .position(|it| it == state)
    };
    ensure!(
        states.len() == 5 && states.is_sorted_by_key(rank),
        "{states:?}"
    );
    ensure!(
        rank(&states[3]) == Some(1) && rank(&states[4]) == Some(2),
        "{states:?}"
    );
    let busy = worker_in(workers, "busy")?;
    ensure!(
        busy["state"] == "Running" && busy.get("systemCall").is_none(),
        "{busy:#}"
    );
    let naps = worker_in(workers, "naps")?;
    ensure!(
        naps.get("systemCall").is_none(),
        "it ran meanwhile: {naps:#}"
    );

    let text = String::from_utf8(dump(&["--php-fpm", "order"])?.stdout)?;
    ensure!(
        text.contains(" pool order: waits in flock (flock on a file); GET ")
            && text.contains("/script.php for "),
        "{text}"
    );
    // The napping worker is between two naps at times: then it waits for a CPU.
    let counts = [
        "3 waiting, 1 running, 1 idle\n",
        "2 waiting, 2 running, 1 idle\n",
    ];
    ensure!(
        text.contains(" pool order: runs; GET ") && counts.iter().any(|it| text.ends_with(it)),
        "{text}"
    );
    Ok(())
}

#[test]
fn empty_dump_says_what_there_is() -> Result<()> {
    let ended = dump(&[])?;
    ensure!(ended.status.code() == Some(2) && said(&ended).contains("choose what to sample"));
    let ended = dump(&["--pid", "4194304"])?;
    ensure!(ended.status.code() == Some(10), "{}", said(&ended));
    ensure!(said(&ended).contains("no process 4194304") && ended.stdout.is_empty());
    Ok(())
}
