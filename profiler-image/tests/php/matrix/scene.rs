//! How the programs are run and recorded: on the command line, in php-fpm and in FrankenPHP, with
//! opcache and without.
//!
//! Invariant: everything that was started ends when its value is dropped.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::request::asked::{RequestSettings, labels};
use phpprof::run::{RecordingOptions, record};
use phpprof::target::Scope;
use phpprof::target::pattern::{pool_of, title};
use phpprof_profile::{DecodeLimits, Profile, decode};
use phpprof_testing::{
    Running as Process, fpm, free_address, wait_for_listener, wait_for_socket, wait_until,
};

use super::names::Random;
use super::program::{Program, read_back};
use crate::options::options;

const CLI: &str = "/usr/bin/php8.2";
const FPM: &str = "/usr/sbin/php-fpm8.2";
/// Below the folder of runtimes.
const FRANKENPHP: &str = "frankenphp-8.2/usr/local/bin/frankenphp";
const OPCACHE_OF_ZTS: &str =
    "php-8.2-zts/usr/local/lib/php/extensions/no-debug-zts-20220829/opcache.so";

/// What runs PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    CommandLine,
    Fpm,
    FrankenPhp,
}

/// A way to run PHP.
#[derive(Debug)]
pub struct Cell {
    program: PathBuf,
    pub server: Server,
    pub opcache: bool,
}

fn runtimes() -> PathBuf {
    std::env::var_os("RUNTIMES").map_or_else(|| "/var/cache/phpprof/runtimes".into(), PathBuf::from)
}

/// All ways: this machine's, and with `full` those of other versions that are there.
pub fn cells(full: bool) -> Vec<Cell> {
    let mut programs = vec![
        (PathBuf::from(CLI), Server::CommandLine),
        (PathBuf::from(FPM), Server::Fpm),
    ];
    if full {
        programs.extend(built());
    }
    let cells = programs.into_iter();
    cells
        .flat_map(|(program, server)| with_and_without_opcache(&program, server))
        .collect()
}

/// FrankenPHP as `runtimes/build` makes it.
pub fn frankenphp_cells() -> Vec<Cell> {
    with_and_without_opcache(&runtimes().join(FRANKENPHP), Server::FrankenPhp).into()
}

fn with_and_without_opcache(program: &Path, server: Server) -> [Cell; 2] {
    [false, true].map(|opcache| Cell {
        program: program.to_owned(),
        server,
        opcache,
    })
}

/// The command lines of PHP that `runtimes/build` has made.
fn built() -> Vec<(PathBuf, Server)> {
    let entries = fs::read_dir(runtimes()).into_iter().flatten().flatten();
    let programs = entries.map(|entry| entry.path().join("usr/local/bin/php"));
    let found: Vec<_> = programs
        .filter(|program| {
            // Some of them need a root of their own.
            let output = Command::new(program).arg("-v").output();
            output.is_ok_and(|output| output.status.success())
        })
        .map(|program| (program, Server::CommandLine))
        .collect();
    eprintln!("{} other versions are there", found.len());
    found
}

fn quiet(command: &mut Command) -> Result<Process> {
    Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

/// Starts a script.
pub fn script(program: impl AsRef<OsStr>, script: &Path, opcache: bool) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .args(["-d", &format!("opcache.enable_cli={}", u8::from(opcache))])
        .args(["-d", "opcache.file_update_protection=0"])
        .arg(script);
    quiet(&mut command)
}

/// Records a target for so many seconds.
pub fn recorded(target: &Process, seconds: u64) -> Result<Profile> {
    let recording = record(&RecordingOptions {
        requests: RequestSettings {
            labels: labels("Script,Route").map_err(anyhow::Error::msg)?,
            ..RequestSettings::default()
        },
        ..options(
            Scope::Pids(vec![target.pid()]),
            199,
            Duration::from_secs(seconds),
        )
    })?;
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    Ok(decode(&bytes, &DecodeLimits::default())?)
}

/// A program that runs.
pub struct Running {
    target: Process,
    /// Those who send requests.
    client: Option<Client>,
    pool: Option<Vec<u8>>,
    last: std::cell::RefCell<Option<Profile>>,
}

impl Running {
    pub fn start(
        cell: &Cell,
        folder: &Path,
        program: &Program,
        random: &mut Random,
    ) -> Result<Self> {
        let (target, client, pool) = match cell.server {
            Server::CommandLine => (
                script(&cell.program, &program.main, cell.opcache)?,
                None,
                None,
            ),
            Server::Fpm => {
                let (pool, socket) = (random.pool(), folder.join("socket"));
                let target = php_fpm(cell, folder, &pool, &socket)?;
                (
                    target,
                    Some(Client::start(fastcgi(&socket, &program.main))),
                    Some(pool),
                )
            }
            Server::FrankenPhp => {
                let (target, address) = frankenphp(cell, folder, &program.main)?;
                (
                    target,
                    Some(Client::start(http(address, &program.main))),
                    None,
                )
            }
        };
        let running = Self {
            target,
            client,
            pool,
            last: None.into(),
        };
        // Three functions, two methods, a closure, an anonymous class, the included file, and the
        // script.
        let all = || Ok(program.listed().is_ok_and(|listed| listed.len() >= 9));
        wait_until("list of all functions", all)?;
        Ok(running)
    }

    pub fn record(&self) -> Result<Profile> {
        let profile = recorded(&self.target, 2)?;
        *self.last.borrow_mut() = Some(profile.clone());
        Ok(profile)
    }

    /// The script and the route of requests, and the pool's name.
    pub fn check_labels(&self, program: &Program) -> Result<()> {
        let last = self.last.borrow();
        let (Some(_), Some(profile)) = (&self.client, last.as_ref()) else {
            return Ok(());
        };
        let name = program.main.file_name().context("no name")?.as_bytes();
        let value = |key: &str| {
            let mut labels = profile.sample.iter().flat_map(|sample| &sample.label);
            let label = labels.find(|label| profile.string(label.key) == key);
            label.map(|label| profile.string(label.str).to_owned())
        };
        let script = value("script").context("no script")?;
        ensure!(read_back(&script) == name, "the script is {script:?}");
        let Some(pool) = &self.pool else {
            return Ok(());
        };
        let route = value("route").context("no route")?;
        ensure!(route == "/{text}", "the route is {route:?}");
        let children = format!("/proc/{0}/task/{0}/children", self.target.pid());
        let worker = fs::read_to_string(children)?;
        let worker = worker.split(' ').next().context("no worker")?.parse()?;
        let title = title(worker).context("no title")?;
        let shown = pool_of(&title).context("no pool")?;
        // The title may have less room than the name.
        let is_pool = pool.starts_with(&read_back(shown)) && !shown.is_empty();
        ensure!(is_pool, "the pool is {shown:?}, not {pool:x?}");
        Ok(())
    }
}

/// php-fpm with one worker in a pool of this name.
fn php_fpm(cell: &Cell, folder: &Path, pool: &[u8], socket: &Path) -> Result<Process> {
    let configuration = folder.join("fpm.conf");
    let mut text = b"[global]\nerror_log = /dev/null\n[".to_vec();
    text.extend(pool);
    let rest = format!(
        "]\nuser = root\ngroup = root\nlisten = {}\npm = static\npm.max_children = 1\n",
        socket.display()
    );
    text.extend(rest.bytes());
    fs::write(&configuration, text)?;
    let mut command = Command::new(&cell.program);
    command
        .args(["--nodaemonize", "--allow-to-run-as-root"])
        .args(["-d", &format!("opcache.enable={}", u8::from(cell.opcache))])
        .args(["-d", "opcache.file_update_protection=0", "--fpm-config"])
        .arg(&configuration);
    let target = quiet(&mut command)?;
    wait_for_socket(socket)?;
    Ok(target)
}

/// FrankenPHP with one thread for requests, and its address.
fn frankenphp(cell: &Cell, folder: &Path, main: &Path) -> Result<(Process, SocketAddr)> {
    let address = free_address()?;
    let ini = if cell.opcache {
        format!(
            "zend_extension={}\nopcache.enable=1\nopcache.file_update_protection=0\n",
            runtimes().join(OPCACHE_OF_ZTS).display()
        )
    } else {
        String::new()
    };
    fs::write(folder.join("php.ini"), ini)?;
    let mut command = Command::new(&cell.program);
    command
        .args(["-listen", &address.to_string(), "-threads", "2", "-root"])
        .arg(main.parent().context("no folder")?)
        .env("PHPRC", folder);
    let target = quiet(&mut command).context("`make real` builds it")?;
    wait_for_listener(address)?;
    Ok((target, address))
}

/// Sends one request after the other.
struct Client {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(request: impl Fn() -> Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if request().is_err() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

/// Requests of a script by HTTP.
fn http(address: SocketAddr, main: &Path) -> impl Fn() -> Result<()> + use<> {
    let name = main.file_name().unwrap_or_default().as_bytes();
    let path: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
    move || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(
            stream,
            "GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )?;
        check_done(stream)
    }
}

/// Requests of a script by FastCGI.
fn fastcgi(socket: &Path, main: &Path) -> impl Fn() -> Result<()> + use<> {
    let (socket, main) = (socket.to_owned(), main.as_os_str().to_owned());
    move || request(&socket, &main)
}

fn check_done(mut stream: impl Read) -> Result<()> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let is_done = answer.windows(4).any(|four| four == b"done");
    ensure!(is_done, "{}", String::from_utf8_lossy(&answer));
    Ok(())
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Before its server.
        self.client = None;
    }
}

/// One request as nginx sends it; the path has bytes that are no UTF-8.
fn request(socket: &Path, script: &OsString) -> Result<()> {
    let root = Path::new(script).parent().context("no folder")?;
    let answer = fpm::send(
        socket,
        &[
            ("REQUEST_METHOD", b"GET"),
            ("SCRIPT_NAME", b"/index.php"),
            ("SCRIPT_FILENAME", script.as_bytes()),
            ("REQUEST_URI", "/caf\u{e9}?q".as_bytes()),
            ("DOCUMENT_ROOT", root.as_os_str().as_bytes()),
            ("SERVER_PROTOCOL", b"HTTP/1.1"),
        ],
    )?;
    check_done(answer)
}
