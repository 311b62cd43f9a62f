//! Real PHP, led into a scene. It requires root: each scene has its files at `/srv`, in a mount
//! namespace of its own.
//!
//! Invariant: everything that was started ends when its value is dropped.

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phpprof_testing::{fpm, wait_for, wait_for_socket, wait_until};
use tempfile::TempDir;

use super::scenes::{FILES, PRELUDE, Scene, Server};

const HERE: &str = "mount --bind \"$0\" /srv && exec \"$@\"";

/// A PHP that may be there.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub name: &'static str,
    /// 802 for 8.2.
    pub version: u32,
    php: PathBuf,
    fpm: PathBuf,
    /// What loads opcache, if it is not built in.
    opcache: Option<String>,
    /// The root file system that it needs.
    root: Option<PathBuf>,
}

/// All that are there: this machine's, and those that `profiler-image/runtimes/build` has made.
pub fn runtimes() -> Vec<Runtime> {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    let cache = PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into()));
    let folder = cache.join("runtimes");
    let debian = |name, version: u32, root: Option<&str>| {
        let dotted = format!("{}.{}", version / 100, version % 100);
        Runtime {
            name,
            version,
            php: format!("/usr/bin/php{dotted}").into(),
            fpm: format!("/usr/sbin/php-fpm{dotted}").into(),
            opcache: (version < 805).then(|| "opcache".to_owned()),
            root: root.map(|root| folder.join(root)),
        }
    };
    let built = |name: &'static str, version: u32, api: &str| {
        let prefix = folder.join(name).join("usr/local");
        let opcache = prefix.join(format!("lib/php/extensions/no-debug-{api}/opcache.so"));
        Runtime {
            name,
            version,
            php: prefix.join("bin/php"),
            fpm: prefix.join("sbin/php-fpm"),
            opcache: Some(opcache.display().to_string()),
            root: None,
        }
    };
    let all = vec![
        debian("php-7.4", 704, Some("debian-bullseye")),
        debian("php-8.2", 802, None),
        built("php-8.2-zts", 802, "zts-20220829"),
        built("php-8.2-musl", 802, "non-zts-20220829"),
        debian("php-8.4", 804, Some("debian-trixie")),
        built("php-8.4-zts", 804, "zts-20240924"),
        debian("php-8.5", 805, Some("debian-experimental")),
        debian("php-8.6", 806, Some("debian-experimental")),
    ];
    let is_there = |runtime: &Runtime| {
        let inside =
            |root: &PathBuf| root.join(runtime.php.strip_prefix("/").unwrap_or(Path::new("")));
        let php = runtime.root.as_ref().map_or(runtime.php.clone(), inside);
        php.exists()
    };
    all.into_iter().filter(is_there).collect()
}

/// PHP in a scene.
pub struct Live {
    child: Child,
    folder: TempDir,
    /// The process that runs the script.
    pub pid: i32,
    _client: Option<UnixStream>,
}

impl Live {
    pub fn start(runtime: &Runtime, scene: &Scene) -> Result<Self> {
        let folder = TempDir::new()?;
        for (name, text) in FILES {
            let text = match name {
                "preloaded.php" => format!("{PRELUDE}{}", text.trim_start_matches("<?php")),
                _ => text.to_owned(),
            };
            fs::write(folder.path().join(name), text)?;
        }
        let is_preloaded = scene.settings.iter().any(|it| it.contains("preload"));
        let prelude = if is_preloaded { "<?php\n" } else { PRELUDE };
        fs::write(
            folder.path().join("main.php"),
            format!("{prelude}{}", scene.code),
        )?;
        let child = command(runtime, scene, folder.path())?
            .spawn()
            .context("starting PHP")?;
        let mut live = Self {
            child,
            folder,
            pid: 0,
            _client: None,
        };
        if !matches!(scene.server, Server::CommandLine { .. }) {
            let client = live.ask()?;
            live._client = Some(client);
        }
        let truth = live.folder.path().join("truth");
        wait_until("PHP that stands", || Ok(truth.exists())).with_context(|| live.said())?;
        if scene.server == Server::FpmAfterwards {
            let mut client = live._client.take().context("no client")?;
            client.read_to_end(&mut Vec::new())?;
        }
        // From `truth` to the call in which it sleeps.
        std::thread::sleep(Duration::from_millis(100));
        let found = wait_for("process of PHP", || Ok(live.find(scene.server)));
        live.pid = found.with_context(|| live.said())?;
        Ok(live)
    }

    pub fn truth(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(self.folder.path().join("truth"))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    /// The process that runs the script: behind the programs that have started it.
    fn find(&self, server: Server) -> Option<i32> {
        let title = |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_php = |pid: &i32| {
            let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            let name = exe
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            name.starts_with("php")
        };
        let pids = descendants(i32::try_from(self.child.id()).ok()?);
        let is_worker = |pid: &i32| match server {
            Server::CommandLine { .. } => true,
            _ => String::from_utf8_lossy(&title(pid)).contains("pool www"),
        };
        pids.into_iter().rfind(|pid| is_php(pid) && is_worker(pid))
    }

    /// Sends the request of all scenes that have one.
    fn ask(&self) -> Result<UnixStream> {
        let socket = self.folder.path().join("fpm.sock");
        wait_for_socket(&socket).with_context(|| self.said())?;
        fpm::send(
            &socket,
            &[
                ("REQUEST_METHOD", b"POST"),
                ("SCRIPT_FILENAME", b"/srv/main.php"),
                (
                    "REQUEST_URI",
                    b"/item/6f1c0c5e-2c3b-4a56-9d0a-5b7d1c9e8f70/4815162342?token=qsecretq",
                ),
                (
                    "HTTP_TRACEPARENT",
                    b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                ),
            ],
        )
    }
}

fn command(runtime: &Runtime, scene: &Scene, folder: &Path) -> Result<Command> {
    // Always at the same addresses, so that recordings have pages in common.
    let mut command = Command::new("setarch");
    command.arg("-R");
    match &runtime.root {
        Some(root) => {
            let enter = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtimes/enter");
            command.arg(enter).args([root.as_path(), folder]);
        }
        None => {
            command
                .args(["unshare", "--mount", "sh", "-c", HERE])
                .arg(folder);
        }
    }
    let mut settings: Vec<String> = scene.settings.iter().map(|&it| it.to_owned()).collect();
    let is_cached = scene.server == Server::CommandLine { opcache: true };
    if let Some(opcache) = runtime.opcache.as_ref().filter(|_| is_cached) {
        settings.push(format!("zend_extension={opcache}"));
    }
    // Since 8.5 it is built in, and on.
    for setting in ["enable", "enable_cli"] {
        settings.push(format!("opcache.{setting}={}", u8::from(is_cached)));
    }
    settings.push("opcache.memory_consumption=8".to_owned());
    settings.push("opcache.interned_strings_buffer=1".to_owned());
    settings.push("opcache.file_update_protection=0".to_owned());
    let settings = settings.iter().flat_map(|setting| ["-d", setting]);
    match scene.server {
        Server::CommandLine { .. } => {
            command
                .arg(&runtime.php)
                .arg("-n")
                .args(settings)
                .arg("/srv/main.php");
        }
        Server::Fpm | Server::FpmAfterwards => {
            let text = "[global]\nerror_log = /dev/null\n[www]\nuser = root\ngroup = root\nlisten = /srv/fpm.sock\n\
                        pm = static\npm.max_children = 1\n";
            fs::write(folder.join("fpm.conf"), text)?;
            command
                .arg(&runtime.fpm)
                .args(["-n", "-F", "-R", "-y", "/srv/fpm.conf"])
                .args(settings);
        }
    }
    let said = fs::File::create(folder.join("said"))?;
    command
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said);
    Ok(command)
}

/// The process and what it has started, parents first.
fn descendants(pid: i32) -> Vec<i32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.unwrap_or_default();
        pids.extend(
            list.split_ascii_whitespace()
                .filter_map(|it| it.parse::<i32>().ok()),
        );
        next += 1;
    }
    pids
}

impl Drop for Live {
    fn drop(&mut self) {
        let pids = descendants(i32::try_from(self.child.id()).unwrap_or(i32::MAX));
        // A master first, or it would start another worker.
        for pid in pids {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Whether the scene can be in that PHP.
pub fn has(runtime: &Runtime, scene: &Scene) -> bool {
    let needs_fpm = !matches!(scene.server, Server::CommandLine { .. });
    let root = runtime.root.clone().unwrap_or_else(|| "/".into());
    let fpm = root.join(runtime.fpm.strip_prefix("/").unwrap_or(&runtime.fpm));
    let has_it = (scene.since..=scene.until).contains(&runtime.version);
    has_it && (!needs_fpm || fpm.exists())
}
