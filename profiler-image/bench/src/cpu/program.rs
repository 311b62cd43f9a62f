//! A program that works and waits, as a process or as threads of FrankenPHP, and its output.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::CPUS;
use crate::running::{PhpProgram, RunningTarget, targets};

const SCRIPT: &str = "cpu.php";
const START_LIMIT: Duration = Duration::from_secs(10);

/// A server that runs each request in a thread.
pub struct ThreadedServer {
    program: PathBuf,
    ffi: PathBuf,
}

impl ThreadedServer {
    pub fn from_environment() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        Some(Self {
            program: path("FRANKENPHP")?,
            ffi: path("FFI")?,
        })
    }
}

/// A program that runs.
pub struct CpuProgram {
    running: RunningTarget,
    clients: Vec<JoinHandle<Result<String>>>,
    _settings: Option<TempDir>,
}

impl CpuProgram {
    /// One process.
    pub fn process(php: &PhpProgram, asked: &str) -> Result<Self> {
        Ok(Self {
            running: RunningTarget::script(php, SCRIPT, asked, CPUS[1])?,
            clients: Vec::new(),
            _settings: None,
        })
    }

    /// One thread for each of these.
    pub fn threads(server: &ThreadedServer, asked: &[String]) -> Result<Self> {
        let settings = tempfile::Builder::new().prefix("phpprof-cpu-").tempdir()?;
        let ini = format!("extension={}\nffi.enable=1\n", server.ffi.display());
        std::fs::write(settings.path().join("php.ini"), ini)?;
        // The port is free now, and no other test on this machine uses fixed ports.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        // All its threads are bound to the CPU, also those that it starts at once.
        let mut command = Command::new("taskset");
        command
            .args(["-c", &CPUS[1].to_string()])
            .arg(&server.program)
            .args(["-listen", &address.to_string(), "-root"])
            .arg(targets())
            .args(["-threads", &(asked.len() + 1).to_string()])
            .env("PHPRC", settings.path())
            .stderr(Stdio::null());
        let running = RunningTarget::spawn(command, CPUS[1])?;
        wait_for(address)?;
        let client = |asked: &String| {
            let asked = asked.clone();
            std::thread::spawn(move || ask(address, &asked))
        };
        let clients = asked.iter().map(client).collect();
        // Compiling and the first turns are not measured.
        std::thread::sleep(Duration::from_millis(300));
        Ok(Self {
            running,
            clients,
            _settings: Some(settings),
        })
    }

    pub fn pid(&self) -> Result<Pid> {
        self.running.pid()
    }

    /// The final output of each thread.
    pub fn said(mut self) -> Result<Vec<String>> {
        if self.clients.is_empty() {
            return Ok(vec![self.running.finish()?]);
        }
        let answer = |client: JoinHandle<Result<String>>| {
            client.join().ok().context("a client has panicked")?
        };
        self.clients.into_iter().map(answer).collect()
    }
}

fn wait_for(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + START_LIMIT;
    while TcpStream::connect(address).is_err() {
        ensure!(Instant::now() < until, "the server was not ready in time");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn ask(address: SocketAddr, asked: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET /{SCRIPT}?{asked} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.0 200"), "answered {head}: {body}");
    Ok(body.to_owned())
}
