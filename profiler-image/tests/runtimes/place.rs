//! How each server is started: its program, its arguments, its configuration.
//!
//! It starts nothing, and writes only into the folder that it is given.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::load::Protocol;
use crate::runtime::{Php, Program, runtimes, sources};

const OPCACHE_ON: &str = "opcache.enable_cli=1";
const OPCACHE_OFF: &str = "opcache.enable_cli=0";

/// A way to run PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// A script of its own, without requests, with opcache or not.
    Script {
        opcache: bool,
    },
    /// php-fpm with this process manager and these requests for each worker (0: any number).
    Fpm {
        manager: &'static str,
        requests: u32,
    },
    /// php-cgi as a FastCGI server with children.
    Cgi,
    /// The built-in web server, with workers.
    BuiltIn,
    /// Apache's mod_php.
    Apache {
        mpm: &'static str,
    },
    /// The FrankenPHP of this name, whose threads run in worker mode or not.
    FrankenPhp {
        name: &'static str,
        worker: bool,
    },
    RoadRunner,
    /// uWSGI with Debian's plugin for PHP: the engine is a library of a plugin.
    Uwsgi,
    /// The application of this name, which embeds PHP; its script serves itself.
    Embed {
        name: &'static str,
    },
}

/// Where a server is to run.
pub struct PhpPlace<'a> {
    pub php: Php,
    pub folder: &'a Path,
    pub address: SocketAddr,
    pub workers: usize,
}

impl PhpPlace<'_> {
    pub fn protocol(&self, server: Server) -> Option<Protocol> {
        match server {
            Server::Script { .. } | Server::Embed { .. } => None,
            Server::Fpm { .. } | Server::Cgi => Some(Protocol::FastCgi(self.seen("index.php"))),
            _ => Some(Protocol::Http),
        }
    }

    pub fn program(&self, server: Server) -> PathBuf {
        match server {
            Server::Script { .. } | Server::BuiltIn => self.php.path(Program::Cli),
            Server::Fpm { .. } => self.php.path(Program::Fpm),
            Server::Cgi => self.php.path(Program::Cgi),
            Server::Apache { .. } => "/usr/sbin/apache2".into(),
            Server::FrankenPhp { name, .. } => {
                runtimes().join(name).join("usr/local/bin/frankenphp")
            }
            Server::Embed { name } => runtimes().join(name).join("usr/local/bin/embed"),
            Server::Uwsgi => "/usr/bin/uwsgi-core".into(),
            Server::RoadRunner => runtimes().join("roadrunner/usr/local/bin/rr"),
        }
    }

    /// A file of the folder, as the server sees it.
    fn seen(&self, file: &str) -> PathBuf {
        self.php.seen(self.folder).join(file)
    }

    pub fn command(&self, server: Server, program: &Path) -> Result<Command> {
        let mut command = self.php.command(self.folder, program);
        let address = self.address.to_string();
        match server {
            Server::Script { opcache } => command
                .args(["-d", if opcache { OPCACHE_ON } else { OPCACHE_OFF }])
                .arg(self.seen("cli.php"))
                .arg("600"),
            Server::Embed { .. } => command.arg(self.seen("cli.php")).arg("600"),
            Server::Fpm { manager, requests } => {
                fs::write(
                    self.folder.join("fpm.conf"),
                    self.fpm_configuration(manager, requests),
                )?;
                command
                    .args(["--nodaemonize", "--fpm-config"])
                    .arg(self.seen("fpm.conf"))
            }
            Server::Cgi => command
                .args(["-b", &address])
                .env("PHP_FCGI_CHILDREN", self.workers.to_string()),
            Server::BuiltIn => command
                .args(["-S", &address, "-t"])
                .arg(self.seen(""))
                // It forks this many, and serves next to them.
                .env("PHP_CLI_SERVER_WORKERS", (self.workers - 1).to_string()),
            Server::Apache { mpm } => self.apache(&mut command, mpm)?,
            Server::FrankenPhp { worker, .. } => {
                command
                    .args([
                        "-listen",
                        &address,
                        "-threads",
                        &self.workers.to_string(),
                        "-root",
                    ])
                    .arg(self.seen(""));
                command.env("WORKER_SCRIPT", self.seen("index.php"));
                if worker {
                    command.args(["-worker", "frankenphp.php"]);
                }
                &mut command
            }
            // 14 is the number of its PHP plugin.
            Server::Uwsgi => command
                .args(["--plugins", "php", "--http-socket", &address])
                .args(["--http-socket-modifier1", "14", "--php-index", "index.php"])
                .args(["--master", "--die-on-term", "--processes"])
                .arg(self.workers.to_string())
                .arg("--php-docroot")
                .arg(self.seen("")),
            Server::RoadRunner => {
                fs::write(self.folder.join("rr.yaml"), self.roadrunner_configuration())?;
                command.arg(self.seen("rr.yaml"))
            }
        };
        Ok(command)
    }

    fn fpm_configuration(&self, manager: &str, requests: u32) -> String {
        format!(
            "[global]\nerror_log = /proc/self/fd/2\n[www]\nuser = www-data\ngroup = www-data\nlisten = {}\n\
             pm = {manager}\npm.max_children = {}\npm.start_servers = 1\npm.min_spare_servers = 1\n\
             pm.max_spare_servers = 1\npm.process_idle_timeout = 1s\npm.max_requests = {requests}\n",
            self.address, self.workers
        )
    }

    fn apache<'c>(&self, command: &'c mut Command, mpm: &str) -> Result<&'c mut Command> {
        let servers = if mpm == "prefork" { self.workers } else { 1 };
        let definitions = [
            ("php", self.php.path(Program::Module).display().to_string()),
            ("module", self.php.module().to_owned()),
            ("mpm", mpm.to_owned()),
            ("address", self.address.to_string()),
            ("root", self.seen("").display().to_string()),
            ("state", self.seen("").display().to_string()),
            ("servers", servers.to_string()),
            ("workers", self.workers.to_string()),
        ];
        for (name, value) in definitions {
            ensure!(!value.contains(' '), "{name} has a space: {value}");
            command
                .arg("-C")
                .arg(format!("Define {name} {}", value.trim_end_matches('/')));
        }
        Ok(command
            .args(["-D", "FOREGROUND", "-f"])
            .arg(self.seen("apache.conf")))
    }

    fn roadrunner_configuration(&self) -> String {
        format!(
            "version: '3'\nserver:\n  command: ['{}', '-d', '{OPCACHE_ON}', '{}', '{}']\nhttp:\n  address: {}\n  pool: {{num_workers: {}}}\n\
             logs: {{level: error}}\n",
            self.php.path(Program::Cli).display(),
            self.seen("roadrunner.php").display(),
            self.seen("index.php").display(),
            self.address,
            self.workers
        )
    }
}

/// The ground truth in a folder that every user may read, because servers drop their root rights.
pub fn folder_of_scripts() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("phpprof-real-").tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(sources().join("truth"))? {
        let path = entry?.path();
        let name = path.file_name().context("a folder without names")?;
        let copy = folder.path().join(name);
        fs::copy(&path, &copy)?;
        // Opcache does not cache files that may still be written.
        File::options()
            .write(true)
            .open(copy)?
            .set_modified(SystemTime::now() - Duration::from_secs(3600))?;
    }
    fs::copy(
        sources().join("roadrunner/worker.php"),
        folder.path().join("roadrunner.php"),
    )?;
    fs::copy(
        sources().join("frankenphp/worker.php"),
        folder.path().join("frankenphp.php"),
    )?;
    fs::copy(
        sources().join("apache.conf"),
        folder.path().join("apache.conf"),
    )?;
    Ok(folder)
}

/// The php.ini that a PHP from source needs to load opcache, from its build folder or its final
/// place.
pub fn ini(php: Php) -> Result<String> {
    let Php::Built(name) = php else {
        return Ok("zend_extension=opcache.so\n".to_owned());
    };
    let folder = runtimes().join(name).join("usr/local/lib/php/extensions");
    let inner = fs::read_dir(&folder).with_context(|| {
        format!(
            "{} is not built: profiler-image/runtimes/build {name}",
            folder.display()
        )
    })?;
    let inner = inner.flatten().next().context("no extensions")?.path();
    Ok(format!(
        "zend_extension={}\n",
        inner.join("opcache.so").display()
    ))
}
