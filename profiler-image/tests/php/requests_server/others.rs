//! The same application under Apache's mod_php, FrankenPHP and RoadRunner, which are Debian's or
//! from profiler-image/runtimes/build.
//!
//! Invariant: everything that was started ends when its value is dropped.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use phpprof_testing::{RunningGroup, free_address, wait_for_listener};
use tempfile::TempDir;

use super::{Clients, Requested, http, put_application};

/// A runtime, with this many workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Apache(usize),
    /// In worker mode: `frankenphp_handle_request`.
    FrankenPhp(usize),
    RoadRunner(usize),
}

/// A running server.
pub struct Other {
    running: RunningGroup,
    kind: Kind,
    address: SocketAddr,
    _folder: TempDir,
}

const APACHE: &str = "ServerName localhost
ServerRoot FOLDER
PidFile FOLDER/apache.pid
ErrorLog FOLDER/error.log
Listen ADDRESS
LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule php_module /usr/lib/apache2/modules/libphp8.2.so
User www-data
Group www-data
DocumentRoot FOLDER
<Directory FOLDER>
    Require all granted
    FallbackResource /index.php
</Directory>
<FilesMatch \"\\.php$\">
    SetHandler application/x-httpd-php
</FilesMatch>
StartServers WORKERS
ServerLimit WORKERS
MaxRequestWorkers WORKERS
MinSpareServers 1
MaxSpareServers WORKERS
";

const ROADRUNNER: &str = "version: '3'
server:
  command: ['/usr/bin/php8.2', 'FOLDER/roadrunner.php', 'FOLDER/index.php']
http:
  address: ADDRESS
  pool: {num_workers: WORKERS}
logs: {level: error}
";

/// The folder of profiler-image/runtimes/build.
pub fn runtimes() -> PathBuf {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into())).join("runtimes")
}

impl Kind {
    fn workers(self) -> usize {
        match self {
            Self::Apache(workers) | Self::FrankenPhp(workers) | Self::RoadRunner(workers) => {
                workers
            }
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Self::Apache(_) => "/usr/sbin/apache2".into(),
            Self::FrankenPhp(_) => runtimes().join("frankenphp-8.2/usr/local/bin/frankenphp"),
            Self::RoadRunner(_) => runtimes().join("roadrunner/usr/local/bin/rr"),
        }
    }

    fn command(self, folder: &Path, address: SocketAddr) -> Result<Command> {
        let mut command = Command::new(self.program());
        let root = folder.to_str().context("a folder without a name")?;
        let filled = |text: &str| {
            let text = text.replace("FOLDER", root);
            let text = text.replace("ADDRESS", &address.to_string());
            text.replace("WORKERS", &self.workers().to_string())
        };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtimes");
        match self {
            Self::Apache(_) => {
                fs::write(folder.join("apache.conf"), filled(APACHE))?;
                let file = format!("{root}/apache.conf");
                command.args(["-D", "FOREGROUND", "-f", &file]);
            }
            Self::FrankenPhp(workers) => {
                fs::copy(
                    sources.join("frankenphp/worker.php"),
                    folder.join("worker.php"),
                )?;
                command.env("WORKER_SCRIPT", folder.join("index.php"));
                command.args(["-listen", &address.to_string(), "-root", root]);
                command.args(["-threads", &workers.to_string(), "-worker", "worker.php"]);
            }
            Self::RoadRunner(_) => {
                fs::copy(
                    sources.join("roadrunner/worker.php"),
                    folder.join("roadrunner.php"),
                )?;
                fs::write(folder.join("rr.yaml"), filled(ROADRUNNER))?;
                command.arg(folder.join("rr.yaml"));
            }
        }
        Ok(command)
    }
}

impl Other {
    /// Starts it; none if its program is not available, which is printed.
    pub fn start(kind: Kind) -> Result<Option<Self>> {
        let program = kind.program();
        if !program.is_file() {
            eprintln!("{kind:?} is left out: there is no {}", program.display());
            return Ok(None);
        }
        let folder = TempDir::new()?;
        // Apache drops its root rights.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        put_application(folder.path())?;
        let address = free_address()?;
        let mut command = kind.command(folder.path(), address)?;
        command.env("SECRET", "esecrete");
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self {
            running: RunningGroup::start(command)?,
            kind,
            address,
            _folder: folder,
        };
        wait_for_listener(address)?;
        Ok(Some(server))
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// As many clients as workers.
    pub fn clients(&self) -> Clients {
        let (kind, address) = (self.kind, self.address);
        let ask = move |method: &str, uri: &str| match kind {
            // This server replaces each request's path by the worker's, so the URI has an opaque
            // form, which has no path.
            Kind::FrankenPhp(_) => http(address, method, &format!("x:http://localhost{uri}")),
            _ => http(address, method, uri),
        };
        Clients::asking(ask, Requested::Shop, kind.workers())
    }
}
