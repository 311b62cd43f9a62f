//! Servers that run: started, waited for, put under load, ended.
//!
//! Invariant: everything that was started ends with its `Running`.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use phpprof_testing::{RunningGroup, free_address, wait_until};
use tempfile::TempDir;

use crate::kinds::File;
use crate::load::{Load, Protocol};
use crate::place::{PhpPlace, Server, folder_of_scripts, ini};
use crate::programs;
use crate::runtime::Php;

/// A server that runs, with a folder and an address of its own.
pub struct Running {
    process: RunningGroup,
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
        let address = free_address()?;
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
        let process = RunningGroup::start(command.stdout(answers).stderr(log))?;
        let protocol = place.protocol(server);
        let mut running = Self {
            process,
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
        self.process.pid()
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
        let answers = self.folder.path().join("answers");
        let (address, protocol) = (self.address, &self.protocol);
        let ready = wait_until("server that is ready", || {
            if let Some(status) = self.process.ended()? {
                bail!("the server has ended with {status}");
            }
            Ok(match protocol {
                Some(_) => TcpStream::connect(address).is_ok(),
                None => fs::metadata(&answers)?.len() > 0,
            })
        });
        ready.with_context(|| self.log())
    }
}
