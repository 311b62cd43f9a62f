//! Suspended fibers of real PHP: of each version that is there and has them, at least this
//! machine's 8.2.
//!
//! Revolt's packages are not installed here. The program is a mock of such a loop: tasks wait in
//! fibers for a database, for HTTP and for a queue, and the loop waits for events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::options::options;
use anyhow::{Context, Result, ensure};
use phpprof::deliver::pprof::{OfSampler, output};
use phpprof::run::fibers::FiberSchedule;
use phpprof::run::{Recording, RecordingOptions, record};
use phpprof::target::Scope;
use phpprof_profile::{DecodeLimits, Format, Profile, View, decode, total};
use phpprof_testing::Running;

/// 50 suspended fibers, by the place that each waits in, below a loop that sleeps.
const TASKS: &str = r#"
namespace Shop;
function await($what) { return \Fiber::suspend($what); }
class Database { function query($sql) { return await($sql); } }
class Http { static function get($url) { return await($url); } }
function orders() { return (new Database)->query('select 1'); }
function prices() { return Http::get('http://prices'); }
function rows() { yield (new Database)->query('select 2'); }
function report() { foreach (rows() as $row) { } }
function serve() { $streams = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0); while (true) { $read = [$streams[0]]; $write = $except = []; stream_select($read, $write, $except, 0, 200000); } }
$fibers = [];
foreach (['Shop\orders' => 25, 'Shop\prices' => 14, 'Shop\report' => 10] as $task => $count) {
    for ($i = 0; $i < $count; $i++) { $fibers[] = $fiber = new \Fiber($task); $fiber->start(); }
}
$fibers[] = $fiber = new \Fiber(function () { await('nothing'); });
$fiber->start();
$never = new \Fiber('Shop\orders');
$ended = new \Fiber(function () { });
$ended->start();
$outer = new \Fiber(function () { $inner = new \Fiber('Shop\serve'); $inner->start(); });
$outer->start();
"#;

/// Fibers that are suspended in two places in turn, as fast as possible.
const TURNS: &str = r#"
function one() { a(); }
function two() { b(); }
function a() { Fiber::suspend(); }
function b() { Fiber::suspend(); }
function task() { while (true) { one(); two(); } }
for ($i = 0; $i < 20; $i++) { $fibers[] = $fiber = new Fiber('task'); $fiber->start(); }
while (true) { foreach ($fibers as $fiber) { $fiber->resume(); } }
"#;

/// A PHP with fibers: the root of its file system, its program, and its version.
struct FiberPhp {
    root: PathBuf,
    php: &'static str,
    version: &'static str,
}

/// Those that `profiler-image/runtimes/build` has made, and this machine's.
fn runtimes() -> Vec<FiberPhp> {
    let cache = std::env::var_os("PHPPROF_CACHE").filter(|cache| !cache.is_empty());
    let cache = PathBuf::from(cache.unwrap_or_else(|| "/var/cache/phpprof".into()));
    let all = [
        ("", "/usr/bin/php8.2", "8.2"),
        ("debian-trixie", "/usr/bin/php8.4", "8.4"),
        ("debian-experimental", "/usr/bin/php8.5", "8.5"),
        ("debian-experimental", "/usr/bin/php8.6", "8.6"),
    ];
    let of = |(root, php, version): (&str, &'static str, &'static str)| FiberPhp {
        root: match root {
            "" => PathBuf::from("/"),
            root => cache.join("runtimes").join(root),
        },
        php,
        version,
    };
    let is_there = |it: &FiberPhp| {
        let inside = it.php.strip_prefix('/').unwrap_or(it.php);
        it.root.join(inside).exists()
    };
    all.into_iter().map(of).filter(is_there).collect()
}

impl FiberPhp {
    fn start(&self, code: &str) -> Result<Running> {
        let mut command = Command::new("chroot");
        if self.root == Path::new("/") {
            command = Command::new(self.php);
        } else {
            command.arg(&self.root).arg(self.php);
        }
        let child = command.args(["-n", "-r", code]).stdout(Stdio::null());
        let running = Running(child.spawn().with_context(|| self.php.to_owned())?);
        std::thread::sleep(Duration::from_millis(500));
        Ok(running)
    }
}

fn run(running: &Running, schedule: Option<FiberSchedule>, milliseconds: u64) -> Result<Recording> {
    let pid = i32::try_from(running.0.id())?;
    let options = RecordingOptions {
        fibers: schedule,
        ..options(
            Scope::Pids(vec![pid]),
            99,
            Duration::from_millis(milliseconds),
        )
    };
    Ok(record(&options)?)
}

fn profile(recording: &Recording) -> Result<Profile> {
    let bytes = output(&recording.snapshot(), &[], OfSampler::default()).bytes;
    Ok(decode(&bytes, &DecodeLimits::default())?)
}

/// The stacks of a sample type, root first, with their values.
fn folded(profile: &Profile, sample_type: &str) -> Result<BTreeMap<String, i64>> {
    let view = View {
        sample_type: Some(sample_type.to_owned()),
        ..View::default()
    };
    let text = String::from_utf8(Format::Folded.write(profile, &view, "", None)?)?;
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .map(|(stack, value)| Ok((stack.to_owned(), value.parse()?)))
        .collect()
}

/// The fibers of [`TASKS`] by their stacks; the closures' names differ by version.
fn places(stacks: &BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    let mut places = BTreeMap::new();
    for (stack, value) in stacks {
        let frames = stack.split(';').map(|frame| match frame {
            closure if closure.starts_with("{closure") => "{closure}",
            frame => frame,
        });
        let place = frames.collect::<Vec<_>>().join(";");
        *places.entry(place).or_default() += value;
    }
    places
}

fn expected() -> BTreeMap<String, i64> {
    let all = [
        ("Shop\\orders;Shop\\Database::query;Shop\\await", 25),
        ("Shop\\prices;Shop\\Http::get;Shop\\await", 14),
        (
            "Shop\\report;Shop\\rows;Shop\\Database::query;Shop\\await",
            10,
        ),
        ("{closure};Shop\\await", 1),
    ];
    let stack = |(stack, count)| (format!("[suspended];{stack};Fiber::suspend"), count);
    all.into_iter().map(stack).collect()
}

#[test]
fn suspended_fibers_are_counted_by_their_places() -> Result<()> {
    for php in runtimes() {
        let running = php.start(TASKS)?;
        let recording = run(&running, Some(FiberSchedule::AtEnd), 100)?;
        let told = recording.facts.fibers.context("no fibers")?;
        let found = places(&folded(&profile(&recording)?, "fibers")?);
        ensure!(found == expected(), "{}: {found:?} {told:?}", php.version);
        let losses = (told.visits, told.most, told.unproven, told.lost);
        ensure!(losses == (1, 50, 0, 0), "{told:?}");
    }
    Ok(())
}

#[test]
fn fibers_have_their_time_and_change_no_other() -> Result<()> {
    for php in runtimes() {
        let running = php.start(TASKS)?;
        let recording = run(&running, Some(FiberSchedule::Spread), 3000)?;
        let profile = profile(&recording)?;
        let found = places(&folded(&profile, "suspended")?);
        let took = recording.facts.took.as_nanos() as f64;
        let fibers: BTreeMap<_, _> = found
            .iter()
            .map(|(stack, time)| (stack.clone(), *time as f64 / took))
            .collect();
        for (stack, count) in expected() {
            let seen = fibers.get(&stack).copied().unwrap_or_default();
            let is_it = (seen - count as f64).abs() < 0.02 * count as f64;
            let told = recording.facts.fibers;
            ensure!(is_it, "{}: {stack} {fibers:?} {told:?}", php.version);
        }
        ensure!(found.len() == expected().len(), "{found:?}");
        for sample_type in ["samples", "cpu", "wall"] {
            let stacks = folded(&profile, sample_type)?;
            let is_fiber = |stack: &String| stack.contains("[suspended]");
            ensure!(!stacks.keys().any(is_fiber), "{sample_type}: {stacks:?}");
        }
        // A worker is sampled once at a time, however many fibers it has.
        let wall = total(&profile, "wall") as f64;
        ensure!(wall < 1.1 * took, "{wall} {took}");
    }
    Ok(())
}

#[test]
fn fibers_in_turn_have_no_wrong_stack() -> Result<()> {
    for php in runtimes() {
        let running = php.start(TURNS)?;
        let (mut shown, mut unproven, mut seen) = (0, 0, 0);
        for _ in 0..20 {
            let recording = run(&running, Some(FiberSchedule::AtEnd), 100)?;
            let told = recording.facts.fibers.context("no fibers")?;
            seen += told.most;
            for (stack, count) in folded(&profile(&recording)?, "fibers")? {
                match stack.as_str() {
                    "[suspended];task;one;a;Fiber::suspend"
                    | "[suspended];task;two;b;Fiber::suspend" => shown += count,
                    "[suspended];[unstable]" => unproven += count,
                    _ => anyhow::bail!("{}: {stack}", php.version),
                }
            }
        }
        // A fiber that is resumed while it is read is not shown.
        ensure!(
            shown > 0 && unproven * 2 < shown,
            "{shown} {unproven} {seen}"
        );
    }
    Ok(())
}

#[test]
fn fibers_are_not_read_unless_asked_for() -> Result<()> {
    let runtimes = runtimes();
    let php = runtimes.first().context("no PHP")?;
    let running = php.start(TASKS)?;
    let recording = run(&running, None, 100)?;
    ensure!(recording.facts.fibers.is_none());
    let profile = profile(&recording)?;
    let types: Vec<_> = profile.sample_types().map(|(name, _)| name).collect();
    ensure!(types == ["samples", "cpu", "wall"], "{types:?}");
    Ok(())
}
