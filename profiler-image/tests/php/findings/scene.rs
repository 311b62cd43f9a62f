//! A running program, with its server and its clients, in a folder of its own.
//!
//! Invariant: everything that was started ends with its `Scene`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use phpprof_testing::{RunningGroup, free_address, wait_for_listener};
use tempfile::TempDir;

const PHP: &str = "php8.2";
/// The one extension that is not a part of this machine's PHP, but loaded from a file.
pub const XDEBUG: &str = "xdebug";
/// Compiling and the first requests are not sampled.
const SETTLE: Duration = Duration::from_millis(1200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    Has,
    Near,
}

impl Problem {
    pub fn word(self) -> &'static str {
        match self {
            Self::Has => "has",
            Self::Near => "near",
        }
    }
}

/// How a program is run.
pub struct Program {
    /// The rule's id, which is the script's name.
    pub id: &'static str,
    /// An extension that PHP may not have.
    pub needs: Option<&'static str>,
    /// The number of clients, if it serves requests.
    pub clients: Option<fn(Problem) -> usize>,
    pub settings: fn(Problem) -> &'static [&'static str],
    /// Additional arguments of phpprof.
    pub records: &'static [&'static str],
    /// The server that it waits for: its delay in milliseconds, and its answer.
    pub server: Option<(&'static str, &'static str)>,
}

pub struct Scene {
    running: Vec<RunningGroup>,
    clients: Vec<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
    folder: TempDir,
    records: &'static [&'static str],
}

/// Whether PHP has an extension here.
pub fn has_extension(name: &str) -> Result<bool> {
    if name == XDEBUG {
        return Ok(xdebug().is_file());
    }
    let code = format!("exit((int) !extension_loaded('{name}'));");
    let status = Command::new(PHP).args(["-r", &code]).status();
    Ok(status.with_context(|| format!("starting {PHP}"))?.success())
}

/// The path in which profiler-image/runtimes/build puts it: Debian's for this PHP, which is not
/// installed.
fn xdebug() -> PathBuf {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    let cache = PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into()));
    cache.join("runtimes/xdebug-8.2/xdebug.so")
}

impl Scene {
    pub fn start(program: &Program, problem: Problem) -> Result<Self> {
        let mut scene = Self {
            running: Vec::new(),
            clients: Vec::new(),
            is_over: Arc::default(),
            folder: TempDir::new()?,
            records: program.records,
        };
        let address = free_address()?;
        let mut command = Command::new(PHP);
        command.env("PROBLEM", problem.word());
        // Otherwise scripts younger than two seconds are not cached.
        let settings = (program.settings)(problem).iter();
        for setting in settings.chain(&["opcache.file_update_protection=0"]) {
            command.args(["-d", setting]);
        }
        if program.needs == Some(XDEBUG) {
            command
                .arg("-d")
                .arg(format!("zend_extension={}", xdebug().display()));
        }
        if let Some((milliseconds, answer)) = program.server {
            let address = free_address()?;
            let port = address.port().to_string();
            let mut server = Command::new(PHP);
            server
                .arg(script("server"))
                .args([&port, milliseconds, answer]);
            scene.spawn(&mut server)?;
            wait_for_listener(address)?;
            command.env("SERVER", port);
        }
        let clients = program.clients.map_or(0, |clients| clients(problem));
        if clients > 0 {
            command.args(["-S", &address.to_string()]);
        }
        if program.id == "all-busy" {
            // And the first process, which serves as well.
            command.env("PHP_CLI_SERVER_WORKERS", "2");
        }
        scene.spawn(command.arg(script(program.id)))?;
        if clients > 0 {
            wait_for_listener(address)?;
        }
        for _ in 0..clients {
            let is_over = Arc::clone(&scene.is_over);
            scene.clients.push(thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // A client that is refused asks again.
                    let _ = ask(address);
                }
            }));
        }
        thread::sleep(SETTLE);
        Ok(scene)
    }

    /// A profile of the program that was started last.
    pub fn record(&self, duration: Duration) -> Result<Vec<u8>> {
        let pid = self.running.last().context("nothing runs")?.pid();
        let file = self.folder.path().join("profile.pb.gz");
        let output = Command::new(env!("CARGO_BIN_EXE_phpprof"))
            .args(["record", "--pid", &pid.to_string()])
            .args(self.records)
            .args(["--duration-seconds", &duration.as_secs().to_string()])
            .args(["--samples-per-second", "299", "--output"])
            .arg(&file)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "phpprof has failed: {said}");
        Ok(fs::read(file)?)
    }

    fn spawn(&mut self, command: &mut Command) -> Result<()> {
        let command = command
            .current_dir(self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.running.push(RunningGroup::start(command)?);
        Ok(())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Clients wait for answers of what runs.
        self.running.clear();
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

fn script(id: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/php/findings/programs");
    Path::new(folder).join(format!("{id}.php"))
}

fn ask(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(())
}
