//! The processes of a row: the program that counts, and the profiler. They end when they are
//! dropped.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof_bench::load::LoadServer;
use phpprof_bench::target::BenchTarget;
use phpprof_bench::workload::Application;
use tempfile::TempDir;

use crate::rows::XDEBUG;

pub const SCRIPT: &str = "slowdown.php";
const START_LIMIT: Duration = Duration::from_secs(10);

/// A process that ends when this is dropped.
struct EndedOnDrop(Child);

impl EndedOnDrop {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null());
        let child = command.spawn();
        Ok(Self(
            child.with_context(|| format!("starting {command:?}"))?,
        ))
    }

    fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.0.id())?))
    }
}

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A PHP command in the folder of the targets, with a setting, bound to one CPU if requested.
pub fn php(words: &str, setting: &str, one_cpu: bool) -> Result<Command> {
    let mut words = words.split_whitespace();
    let mut command = on(one_cpu, words.next().context("no PHP is named")?);
    command
        .args(words)
        .args(["-d", setting])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("targets"));
    Ok(command)
}

fn on(one_cpu: bool, program: &str) -> Command {
    if !one_cpu {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", "1", program]);
    command
}

/// A program that counts without end.
pub struct Counting {
    process: EndedOnDrop,
    lines: Receiver<String>,
}

impl Counting {
    pub fn start(mut command: Command, asked: &str) -> Result<Self> {
        command.args([SCRIPT, asked]).stdout(Stdio::piped());
        let mut process = EndedOnDrop::start(command)?;
        let output = process.0.stdout.take().context("no output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, lines })
    }

    pub fn pid(&self) -> Result<Pid> {
        self.process.pid()
    }

    /// Its output since the last call.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        let status = self.process.0.try_wait()?;
        ensure!(status.is_none(), "the target has ended: {status:?}");
        Ok(self.lines.try_iter().collect())
    }
}

/// An application under php-fpm, with one worker.
pub struct Pages {
    target: BenchTarget,
    server: LoadServer,
    /// The folder of its profiler's output.
    _folder: TempDir,
}

impl Pages {
    /// Starts it with this setting, and asks for each page once, so that opcache has them.
    pub fn start(application: &'static Application, setting: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("phpprof-slowdown-")
            .tempdir()?;
        // The workers run as another user.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        let prepended = folder.path().join("prepend.php");
        fs::write(
            &prepended,
            include_str!("../../targets/slowdown_prepend.php"),
        )?;
        let settings = [
            setting,
            &format!("auto_prepend_file={}", prepended.display()),
            &format!("xdebug.output_dir={}", folder.path().display()),
            &XDEBUG.join("\n"),
        ];
        let (target, server) = BenchTarget::serve(application, 1, &settings.join("\n"))?;
        let pages = Self {
            target,
            server,
            _folder: folder,
        };
        pages.round("")?;
        Ok(pages)
    }

    /// The master's, which selects the worker.
    pub fn pid(&self) -> Result<Pid> {
        let pids = self.target.pids();
        Ok(Pid::from_raw(*pids.first().context("php-fpm has no PID")?))
    }

    /// Asks for each page with this cookie, one after the other; returns how many there are.
    pub fn round(&self, cookie: &str) -> Result<u64> {
        (0..self.server.pages()).try_for_each(|page| self.server.ask_with(page, cookie))?;
        Ok(self.server.pages() as u64)
    }
}

/// The sampler as a process of its own, which can be stopped.
pub struct SamplerProcess(EndedOnDrop);

impl SamplerProcess {
    pub fn start(phpprof: &str, target: Pid, rate_hz: u32, one_cpu: bool) -> Result<Self> {
        let mut command = on(one_cpu, phpprof);
        command
            .args(["record", "--pid", &target.to_string()])
            .args(["-F", &rate_hz.to_string(), "-d", "86400", "-o", "/dev/null"])
            .stderr(Stdio::null());
        let sampler = Self(EndedOnDrop::start(command)?);
        std::thread::sleep(Duration::from_millis(500));
        Ok(sampler)
    }

    /// Continues it, or stops it.
    pub fn switch(&mut self, on: bool) -> Result<()> {
        let status = self.0.0.try_wait()?;
        ensure!(status.is_none(), "the sampler has ended: {status:?}");
        Ok(kill(
            self.0.pid()?,
            if on { Signal::SIGCONT } else { Signal::SIGSTOP },
        )?)
    }
}

/// A program that counts while a request lasts.
pub struct ServingProgram {
    _process: EndedOnDrop,
    address: SocketAddr,
    /// The folder of its profiler's output.
    _folder: TempDir,
}

impl ServingProgram {
    pub fn start(mut command: Command) -> Result<Self> {
        // The port is free now, and no other test on this machine uses fixed ports.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let folder = tempfile::Builder::new()
            .prefix("phpprof-slowdown-")
            .tempdir()?;
        command
            .arg("-d")
            .arg(format!("xdebug.output_dir={}", folder.path().display()))
            .args(["-S", &address.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = EndedOnDrop::start(command)?;
        let until = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            ensure!(Instant::now() < until, "the server was not ready in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            _process: process,
            address,
            _folder: folder,
        })
    }

    /// Its output for one request.
    pub fn ask(&self, asked: &str) -> Result<Vec<String>> {
        let mut stream = TcpStream::connect(self.address)?;
        let request = format!("GET /{SCRIPT}?{asked} HTTP/1.0\r\n\r\n");
        // In one write, because the built-in server requires that.
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.contains(" 200 "), "answered {head}: {body}");
        Ok(body.lines().map(str::to_owned).collect())
    }
}
