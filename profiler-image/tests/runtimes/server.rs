//! Servers that run: started, waited for, put under load, ended.
//!
//! Invariant: everything that was started ends with its `Running`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::kinds::File;
use crate::load::{Load, Protocol};
use crate::place::{PhpPlace, Server, folder_of_scripts, ini};
use crate::programs;
use crate::runtime::Php;

/// A server that runs, with a folder and an address of its own.
pub struct Running {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
    protocol: Option<Protocol>,
}

/// The load on a running server.
pub enum Asking {
    /// It serves itself, and writes its answers to this file.
    Itself(PathBuf),
    Clients(Load),
}

impl Asking {
    /// All answers.
    pub fn stop(self) -> Result<Vec<String>> {
        let answers = match self {
            Self::Clients(load) => return load.stop(),
            Self::Itself(answers) => fs::read_to_string(answers)?,
        };
        // The last line may be half written.
        let (whole, _) = answers
            .rsplit_once('\n')
            .context("the script has not answered")?;
        Ok(whole.lines().map(str::to_owned).collect())
    }
}

impl Running {
    /// Starts a server with this many workers, from a copy of the program if its file is to be
    /// removed or replaced.
    pub fn start(php: Php, server: Server, workers: usize, file: File) -> Result<Self> {
        Self::start_with(php, server, workers, file, "index.php")
    }

    /// The same with another script in place of index.php.
    pub fn start_with(
        php: Php,
        server: Server,
        workers: usize,
        file: File,
        script: &str,
    ) -> Result<Self> {
        let folder = folder_of_scripts()?;
        if script != "index.php" {
            fs::rename(folder.path().join(script), folder.path().join("index.php"))?;
        }
        // The port is free now, and no other test on this machine uses fixed ports.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        fs::write(folder.path().join("php.ini"), ini(php)?)?;
        let place = PhpPlace {
            php,
            folder: folder.path(),
            address,
            workers,
        };
        let mut program = place.program(server);
        if file != File::Stays {
            let copy = folder.path().join("program");
            programs::copy(&program, &copy)?;
            program = copy;
        }
        let mut command = place.command(server, &program)?;
        let answers = fs::File::create(folder.path().join("answers"))?;
        let log = fs::File::create(folder.path().join("log"))?;
        command
            .stdin(Stdio::null())
            .stdout(answers)
            .stderr(log)
            .process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let protocol = place.protocol(server);
        let mut running = Self {
            child,
            folder,
            address,
            protocol,
        };
        running.wait_until_ready()?;
        match file {
            File::Stays => {}
            File::Deleted => fs::remove_file(program)?,
            File::Replaced => {
                let other = running.folder.path().join("other");
                programs::copy("/bin/true", &other)?;
                fs::rename(other, program)?;
            }
        }
        Ok(running)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Puts the server under load.
    pub fn ask(&self, clients: usize) -> Asking {
        match &self.protocol {
            Some(protocol) => Asking::Clients(Load::start(self.address, protocol, clients)),
            None => Asking::Itself(self.folder.path().join("answers")),
        }
    }

    /// Puts a FastCGI server of this machine under the load of another script.
    pub fn ask_for(&self, script: &str, clients: usize) -> Load {
        let protocol = Protocol::FastCgi(self.folder.path().join(script));
        Load::start(self.address, &protocol, clients)
    }

    /// The server's log, for error messages.
    pub fn log(&self) -> String {
        let read =
            |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("{}{}", read("log"), read("error.log"))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(20);
        let answers = self.folder.path().join("answers");
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server has ended with {status}: {}", self.log());
            }
            let ready = match self.protocol {
                Some(_) => TcpStream::connect(self.address).is_ok(),
                None => fs::metadata(&answers)?.len() > 0,
            };
            if ready {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the server was not ready in time: {}", self.log())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Ok(group) = i32::try_from(self.child.id()) else {
            return;
        };
        // RoadRunner ends its workers, which are in groups of their own, at SIGTERM.
        let _ = killpg(Pid::from_raw(group), Signal::SIGTERM);
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
