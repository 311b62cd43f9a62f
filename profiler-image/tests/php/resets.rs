//! php-fpm whose opcache restarts under load: scripts take each other's places in its memory, and
//! no stack may show one script's functions below another's. With this machine's PHP 8.2.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, SystemTime};

use crate::options::options;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::request::asked::{RequestSettings, labels};
use phpprof::run::{Recording, RecordingOptions, record};
use phpprof::target::Scope;
use phpprof_profile::proto::Sample;
use phpprof_profile::{DecodeLimits, Lookup, Profile, decode};
use phpprof_testing::Running;
use phpprof_testing::fpm::{self, Pool};
use phpprof_zend::extensions::OpcacheState;
use tempfile::TempDir;

const PAGES: usize = 4;
const SECONDS: u64 = 4;
/// The functions of pages that have the same size in opcache's memory.
const EQUAL: usize = 2000;
/// Long ago, so that opcache caches the files at once (`opcache.file_update_protection`); it sees
/// changes by whole seconds.
const LONG_AGO: u64 = 1_600_000_000;
const STATUS: &str = "<?php $s = opcache_get_status(false)['opcache_statistics'];
echo '#', $s['oom_restarts'] + $s['hash_restarts'], ' ', $s['manual_restarts'], '#';";

/// As a deploy does that knows which files it has replaced.
const INVALIDATE: &str =
    "<?php foreach (glob(__DIR__ . '/p*.php') as $page) opcache_invalidate($page, true);";

/// php-fpm, its clients, and who disturbs them. All end with the value.
struct Scene {
    folder: TempDir,
    master: Running,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Clients get no answer any more, and end.
        let _ = self.master.signal(Signal::SIGTERM);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Scene {
    /// php-fpm with this many workers and clients, and these settings of opcache.
    fn start(workers: usize, settings: &[&str]) -> Result<Self> {
        let mut scene = Self::without_clients(workers, settings)?;
        let number = Arc::new(AtomicUsize::new(0));
        for _ in 0..workers {
            let number = Arc::clone(&number);
            scene.repeat(Duration::ZERO, move |folder| {
                let page = number.fetch_add(1, Ordering::Relaxed) % PAGES;
                let page = folder.join(format!("p{page}.php"));
                let _ = ask(&folder.join("fpm.sock"), &page);
            });
        }
        Ok(scene)
    }

    fn without_clients(workers: usize, settings: &[&str]) -> Result<Self> {
        let folder = TempDir::new()?;
        let path = folder.path();
        for page in 0..PAGES {
            put_page(path, page, 0)?;
        }
        fs::write(path.join("reset.php"), "<?php opcache_reset();")?;
        fs::write(path.join("invalidate.php"), INVALIDATE)?;
        fs::write(path.join("status.php"), STATUS)?;
        let general = [
            "opcache.revalidate_freq=0",
            "opcache.interned_strings_buffer=1",
        ];
        let settings = general.iter().chain(settings);
        let settings: Vec<&str> = settings.flat_map(|setting| ["-d", setting]).collect();
        let pool = Pool {
            name: "www",
            socket: &path.join("fpm.sock"),
            workers,
            more: "",
        };
        let master = fpm::start("/usr/sbin/php-fpm8.2", path, &[pool], &settings)?;
        Ok(Self {
            folder,
            master,
            is_over: Arc::default(),
            threads: Vec::new(),
        })
    }

    /// Does something again and again.
    fn repeat(&mut self, pause: Duration, mut act: impl FnMut(&Path) + Send + 'static) {
        let (is_over, folder) = (Arc::clone(&self.is_over), self.folder.path().to_owned());
        self.threads.push(spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                act(&folder);
                sleep(pause);
            }
        }));
    }

    fn reset_every(&mut self, pause: Duration) {
        self.request_every(pause, "reset.php");
    }

    fn request_every(&mut self, pause: Duration, script: &'static str) {
        self.repeat(pause, move |folder| {
            let _ = ask(&folder.join("fpm.sock"), &folder.join(script));
        });
    }

    /// Asks for a page some times, replaces one by a page of the same size, and so on, in no order:
    /// after each restart others come first.
    fn replace_and_ask(&mut self) {
        let mut version = 0_usize;
        self.repeat(Duration::ZERO, move |folder| {
            version += 1;
            let page = (version ^ version >> 2 ^ version >> 5) * 5 / 2 % PAGES;
            let _ = put(folder, page, EQUAL, version);
            let path = folder.join(format!("p{page}.php"));
            for _ in 0..5 {
                let _ = ask(&folder.join("fpm.sock"), &path);
            }
        });
    }

    /// Replaces one page after the other, as a deploy does.
    fn rewrite_every(&mut self, pause: Duration) {
        let mut version = 0;
        self.repeat(pause, move |folder| {
            version += 1;
            let _ = put_page(folder, version % PAGES, version);
        });
    }

    fn record(&self) -> Result<Recording> {
        Ok(record(&RecordingOptions {
            requests: RequestSettings {
                labels: labels("Script").map_err(anyhow::Error::msg)?,
                ..RequestSettings::default()
            },
            ..options(
                Scope::Pids(vec![self.master.pid()]),
                499,
                Duration::from_secs(SECONDS),
            )
        })?)
    }

    /// How often opcache has restarted because it was full, and because it was told to, as it says
    /// itself.
    fn restarts(&self) -> Result<[u64; 2]> {
        let folder = self.folder.path();
        let answer = ask(&folder.join("fpm.sock"), &folder.join("status.php"))?;
        let told = answer.split('#').nth(1).context("no status")?;
        let mut counts = told.split(' ').map(str::parse);
        let mut next = || counts.next().context("no count");
        Ok([next()??, next()??])
    }
}

/// Writes a page; each version has another size.
fn put_page(folder: &Path, page: usize, version: usize) -> Result<()> {
    let functions = 100 * (page + 1) + 10 * (version % 7);
    put(folder, page, functions, version)
}

/// Writes a page that only calls its own functions, and has this many more.
fn put(folder: &Path, page: usize, functions: usize, version: usize) -> Result<()> {
    let mut text = String::from("<?php\n");
    for number in 0..functions {
        let value = "x".repeat(number % 90);
        text += &format!("function pad{page}_{number}() {{ return '{value}'; }}\n");
    }
    text += &"
function busyK($us) { $end = hrtime(true) + $us * 1000; do { $x = md5('x'); } while (hrtime(true) < $end); }
function inK() { busyK(3000); }
class LK { function go() { inK(); } }
function pageK() { (new LK)->go(); array_map(function ($z) { busyK(1000); }, [1]); }
pageK();
"
    .replace('K', &page.to_string());
    let (new, path) = (folder.join("new"), folder.join(format!("p{page}.php")));
    fs::write(&new, text)?;
    let time = LONG_AGO + version as u64;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(time);
    File::options().write(true).open(&new)?.set_modified(time)?;
    Ok(fs::rename(new, path)?)
}

/// Sends one FastCGI request.
fn ask(socket: &Path, script: &Path) -> Result<String> {
    fpm::ask(socket, &fpm::of_script(script))
}

/// The page to which a function belongs; `None` for PHP's own and for what is not a function.
fn page_of(name: &str, file: &str) -> Option<char> {
    if file.is_empty() {
        return None;
    }
    let own = ["busy", "in", "L", "page"];
    let number = own.iter().find_map(|own| name.strip_prefix(own));
    let number = number.or_else(|| file.rsplit("/p").next());
    number?.chars().next().filter(char::is_ascii_digit)
}

/// The page that serves a sample's request, which is read again in each request.
fn page_of_request(profile: &Profile, sample: &Sample) -> Option<char> {
    let mut labels = sample.label.iter();
    let script = labels.find(|label| profile.string(label.key) == "script")?;
    let page = profile.string(script.str).rsplit("/p").next()?;
    page.chars().next().filter(char::is_ascii_digit)
}

/// Checks that no stack has functions of two pages, or of a page that does not serve its request,
/// and that most samples have a page.
fn check(recording: &Recording) -> Result<()> {
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    let profile = decode(&bytes, &DecodeLimits::default())?;
    let lookup = Lookup::new(&profile);
    let (mut all, mut named, mut known) = (0, 0, 0);
    let (mut mixed, mut others) = (Vec::new(), Vec::new());
    for sample in &profile.sample {
        let frames: Vec<_> = lookup.frames(sample).collect();
        let pages = frames.iter().filter_map(|it| page_of(it.name, it.file));
        let mut pages: Vec<char> = pages.collect();
        pages.dedup();
        // Of some thousand samples, one whose stack is only the script itself has the label of the
        // next request.
        let asked = page_of_request(&profile, sample).filter(|_| frames.len() > 1);
        let asked = asked.filter(|_| !pages.is_empty());
        known += i64::from(asked.is_some()) * sample.value[0];
        if let Some(asked) = asked.filter(|asked| !pages.contains(asked)) {
            pages.push(asked);
        }
        all += sample.value[0];
        let names: Vec<_> = frames.iter().rev().map(|it| it.name).collect();
        let line = (sample.value[0], names.join(";"), asked);
        match pages.len() {
            0 => others.push(line),
            1 => named += sample.value[0],
            _ => mixed.push(line),
        }
    }
    let restarts = restarts_of(recording);
    eprintln!(
        "{all} samples, {named} of a page, {known} of a known request, {restarts} restarts; others: {others:?}"
    );
    ensure!(mixed.is_empty(), "of {all} samples: {mixed:?}");
    ensure!(named > 100, "only {named} samples have a page");
    ensure!(2 * known > named, "of {named} only {known} have a request");
    ensure!(
        2 * named > all,
        "of {all} samples, so many have no page: {others:?}"
    );
    Ok(())
}

fn restarts_of(recording: &Recording) -> u64 {
    match recording.facts.extensions.and_then(|it| it.opcache) {
        Some(OpcacheState::On { restarts, .. }) => restarts,
        _ => 0,
    }
}

#[test]
fn reset_gives_no_script_anothers_names() -> Result<()> {
    let mut scene = Scene::start(1, &[])?;
    scene.reset_every(Duration::from_millis(300));
    let recording = scene.record()?;
    let [full, told] = scene.restarts()?;
    ensure!(full == 0 && told > 3, "{told} restarts");
    let counted = restarts_of(&recording);
    ensure!((1..=told).contains(&counted), "{counted} of {told}");
    check(&recording)
}

/// Changed scripts leave their memory to nobody until opcache is full of them and restarts. Then
/// each page takes the place of another one, with its code and names at the same addresses: only
/// the restart tells them apart.
#[test]
fn replaced_scripts_keep_names_until_opcache_is_full() -> Result<()> {
    let settings = [
        "opcache.memory_consumption=8",
        "opcache.max_wasted_percentage=1",
    ];
    let mut scene = Scene::without_clients(1, &settings)?;
    scene.replace_and_ask();
    let recording = scene.record()?;
    let [full, told] = scene.restarts()?;
    ensure!(full > 1 && told == 0, "{full} restarts");
    let counted = restarts_of(&recording);
    ensure!((1..=full).contains(&counted), "{counted} of {full}");
    check(&recording)
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn reset_workers_stay_apart_while_scripts_change() -> Result<()> {
        let mut scene = Scene::start(2, &[])?;
        scene.rewrite_every(Duration::from_millis(40));
        scene.reset_every(Duration::from_millis(700));
        check(&scene.record()?)
    }

    #[test]
    fn invalidated_scripts_keep_their_names() -> Result<()> {
        let mut scene = Scene::start(1, &[])?;
        scene.rewrite_every(Duration::from_millis(40));
        scene.request_every(Duration::from_millis(100), "invalidate.php");
        check(&scene.record()?)
    }
}
