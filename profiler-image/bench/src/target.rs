//! Running targets: PHP on the command line, php-fpm with an application under load, FrankenPHP.
//!
//! Invariant: everything that was started ends when its [`BenchTarget`] is dropped, and when the
//! benchmark itself ends.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::cells::BenchCell;
use crate::load::{Load, LoadServer};
use crate::workload::{Application, WorkloadKind};

const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDED_WITHIN: Duration = Duration::from_secs(5);
/// Compiling, the first requests and php-fpm's start are not measured.
const SETTLE: Duration = Duration::from_secs(1);

/// A target that runs under its load.
pub struct BenchTarget {
    children: Vec<Child>,
    load: Option<Load>,
    /// A text in the command line of each worker.
    pub mark: String,
    folder: TempDir,
}

impl BenchTarget {
    /// Starts the target of a cell, and waits until it is busy.
    pub fn start(cell: &BenchCell) -> Result<Self> {
        let mut target = Self::new()?;
        let server = match cell.workload.kind {
            WorkloadKind::Script(script) => {
                for _ in 0..cell.workers {
                    target.run(script, cell)?;
                }
                None
            }
            WorkloadKind::Parent(script) => {
                target.run(script, cell)?;
                None
            }
            WorkloadKind::Fpm(application) => Some(target.fpm(application, cell.workers, "")?),
            WorkloadKind::FrankenPhp(script) => Some(target.frankenphp(script, cell.workers)?),
        };
        if let Some(server) = server {
            for page in 0..server.pages() {
                target.wait_for(|| server.ask(page))?;
            }
            target.load = (cell.busy > 0).then(|| Load::start(&server, cell.busy));
        }
        std::thread::sleep(SETTLE);
        target.check()?;
        Ok(target)
    }

    /// Starts an application with this many workers and these lines in the workers' php.ini,
    /// without load.
    pub fn serve(
        application: &'static Application,
        workers: usize,
        settings: &str,
    ) -> Result<(Self, LoadServer)> {
        let mut target = Self::new()?;
        let server = target.fpm(application, workers, settings)?;
        target.wait_for(|| server.listens())?;
        Ok((target, server))
    }

    fn new() -> Result<Self> {
        Ok(Self {
            children: Vec::new(),
            load: None,
            mark: format!("phpprof-bench-{}", std::process::id()),
            folder: folder()?,
        })
    }

    /// The PIDs that select all workers.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let id = |child: &Child| i32::try_from(child.id()).ok();
        self.children.iter().filter_map(id).collect()
    }

    /// An error if the target or a client has ended.
    pub fn check(&mut self) -> Result<()> {
        for child in &mut self.children {
            if let Some(status) = child.try_wait()? {
                bail!("the target has ended with {status}");
            }
        }
        let failed = self.load.take_if(|load| load.has_failed());
        failed.map_or(Ok(()), Load::stop)
    }

    fn run(&mut self, script: &str, cell: &BenchCell) -> Result<()> {
        let mut command = bound("php8.2");
        command
            .args(["-d", "opcache.enable_cli=1"])
            // Otherwise scripts younger than two seconds are not cached.
            .args(["-d", "opcache.file_update_protection=0"])
            .arg(home().join(script))
            .arg(cell.workload.depth.unwrap_or(0).to_string())
            .arg(&self.mark);
        self.spawn(&mut command)
    }

    fn spawn(&mut self, command: &mut Command) -> Result<()> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        self.children.push(child);
        Ok(())
    }

    fn fpm(
        &mut self,
        application: &'static Application,
        workers: usize,
        settings: &str,
    ) -> Result<LoadServer> {
        let applications = cache().join("applications");
        ensure!(
            applications.join("installed").exists(),
            "{} is not there: profiler-image/bench/workloads/applications makes it",
            applications.display()
        );
        let folder = self.folder.path();
        let (socket, configuration) = (folder.join("socket"), folder.join("fpm.conf"));
        fs::write(
            &configuration,
            format!(
                "[global]\nerror_log = {}\n[{}]\nuser = www-data\ngroup = www-data\nlisten = {}\nlisten.backlog = 511\n\
                 pm = static\npm.max_children = {workers}\n",
                folder.join("log").display(),
                self.mark,
                socket.display()
            ),
        )?;
        // Its number puts it after the application's own file.
        fs::write(folder.join("50-settings.ini"), settings)?;
        let mut command = bound("php-fpm8.2");
        command
            .args(["--nodaemonize", "--fpm-config"])
            .arg(&configuration)
            .env(
                "LD_LIBRARY_PATH",
                applications.join("usr/lib/x86_64-linux-gnu"),
            )
            .env(
                "PHP_INI_SCAN_DIR",
                format!(
                    ":{}:{}",
                    applications.join("conf.d").display(),
                    folder.display()
                ),
            );
        self.spawn(&mut command)?;
        Ok(LoadServer::FastCgi {
            socket,
            root: applications.join(application.root),
            application,
        })
    }

    fn frankenphp(&mut self, script: &str, threads: usize) -> Result<LoadServer> {
        let runtimes = cache().join("runtimes");
        let program = runtimes.join("frankenphp-8.2/usr/local/bin/frankenphp");
        ensure!(
            program.exists(),
            "FrankenPHP is not built: profiler-image/runtimes/build frankenphp-8.2"
        );
        let extensions = runtimes.join("php-8.2-zts/usr/local/lib/php/extensions");
        let inner = fs::read_dir(&extensions)?.flatten().next();
        let opcache = inner
            .context("PHP has no extensions")?
            .path()
            .join("opcache.so");
        let folder = self.folder.path();
        fs::write(
            folder.join("php.ini"),
            format!("zend_extension={}\n", opcache.display()),
        )?;
        let script = home().join(script);
        let name = script.file_name().context("a script without a name")?;
        // The port is free now, and no other test on this machine uses fixed ports.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = bound(program);
        command
            .env("PHPRC", folder)
            .args(["-listen", &address.to_string()])
            .args(["-threads", &threads.to_string(), "-root"])
            .arg(script.parent().context("a script without a folder")?);
        self.spawn(&mut command)?;
        let path = format!("/{}", name.to_string_lossy());
        Ok(LoadServer::Http(address, path))
    }

    fn wait_for(&mut self, ask: impl Fn() -> Result<()>) -> Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            match ask() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > until => {
                    return Err(error.context("the target was not ready in time"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
            self.check()?;
        }
    }
}

impl Drop for BenchTarget {
    fn drop(&mut self) {
        // Clients wait for answers, so they end before their server.
        if let Some(load) = self.load.take() {
            let _ = load.stop();
        }
        for child in &mut self.children {
            // php-fpm ends its workers at SIGTERM.
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            let until = Instant::now() + ENDED_WITHIN;
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program to which the kernel sends a signal when the benchmark ends, however it ends.
fn bound(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

/// The folder of the scripts.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cache() -> PathBuf {
    std::env::var_os("PHPPROF_CACHE").map_or_else(|| "/var/cache/phpprof".into(), PathBuf::from)
}

/// A folder that the workers' user may enter.
fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("phpprof-bench-")
        .tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}
