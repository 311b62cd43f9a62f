//! The heap data in profiles, on this machine's PHP 8.2: which functions made heaps larger, how
//! much a loop leaks, and how near the limit a heap was.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::options::options;
use anyhow::{Context, Result, ensure};
use phpprof::run::{RecordingOptions, record};
use phpprof::target::Scope;
use phpprof_profile::proto::Profile;
use phpprof_profile::{DecodeLimits, Lookup, decode, total};
use phpprof_testing::Running;
use phpprof_testing::fpm::{self, Pool};
use tempfile::TempDir;

/// In percentage points.
const TOLERANCE: f64 = 5.0;

/// Five parts of memory in ten, three and two, each in 100 ms: the pages that strings of these
/// lengths take. `temporary` keeps nothing.
const FUNCTIONS: &str = r#"<?php
function build($count, $length, $pause) {
    [$strings, $next] = [[], hrtime(true)];
    for ($i = 0; $i < $count; $i++) {
        $strings[] = str_repeat('x', $length);
        $next += $pause;
        while (hrtime(true) < $next);
    }
    return $strings;
}
function begin() { $end = hrtime(true) + 15e6; while (hrtime(true) < $end); }
function half() { $GLOBALS['kept'][] = build(200, 20000, 5e5); }
function third() { $GLOBALS['kept'][] = build(200, 12000, 5e5); }
function fifth() { $GLOBALS['kept'][] = build(200, 8000, 5e5); }
function leak() { $GLOBALS['leaked'][] = build(20, 8000, 1e6); }
function temporary() {
    $text = str_repeat('y', 1 << 20);
    $end = hrtime(true) + 20e6;
    while (hrtime(true) < $end);
}
"#;

const PARTS: [(&str, f64); 3] = [("half", 50.0), ("third", 30.0), ("fifth", 20.0)];

/// A folder with a script, and the process that runs it.
struct Scene {
    folder: TempDir,
    running: Option<Running>,
}

impl Scene {
    fn new(code: &str) -> Result<Self> {
        let folder = TempDir::new()?;
        std::fs::write(
            folder.path().join("heap.php"),
            format!("{FUNCTIONS}{code}\n"),
        )?;
        Ok(Self {
            folder,
            running: None,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, command: &mut Command) -> Result<i32> {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(self.keep(Running::start(command)?))
    }

    fn keep(&mut self, running: Running) -> i32 {
        let pid = running.pid();
        self.running = Some(running);
        pid
    }

    fn record(&self, arguments: &[&str]) -> Result<Recorded> {
        let path = self.path("profile.pb.gz");
        let out = Command::new(env!("CARGO_BIN_EXE_phpprof"))
            .args(["record", "--heap", "-F499", "--cpu-budget-percent=0", "-o"])
            .arg(&path)
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(out.status.success(), "{said}");
        let profile = decode(&std::fs::read(&path)?, &DecodeLimits::default())?;
        Ok(Recorded { profile, said })
    }
}

struct Recorded {
    profile: Profile,
    said: String,
}

impl Recorded {
    /// The sums of a sample type by function, with its callees.
    fn by_function(&self, kind: &str) -> Result<HashMap<&str, i64>> {
        let lookup = Lookup::new(&self.profile);
        let index = self.profile.value_index(kind).context("no such type")?;
        let mut sums = HashMap::new();
        for sample in &self.profile.sample {
            let mut names: Vec<&str> = lookup.frames(sample).map(|frame| frame.name).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                *sums.entry(name).or_default() += sample.value[index];
            }
        }
        Ok(sums)
    }

    fn check_parts(&self) -> Result<()> {
        let sums = self.by_function("heap_growth")?;
        let all: i64 = PARTS.iter().filter_map(|(name, _)| sums.get(name)).sum();
        let most = TOLERANCE + 100.0 * self.missed()?;
        for (name, expected) in PARTS {
            let part = sums.get(name).copied().unwrap_or(0);
            let share = 100.0 * part as f64 / all as f64;
            ensure!(
                (share - expected).abs() < most,
                "{name}: {share:.1} % in place of {expected:.1} ± {most:.1} %: {sums:?}"
            );
        }
        Ok(())
    }

    /// The share of the turns that were missed: nobody knows what they would have shown.
    fn missed(&self) -> Result<f64> {
        let quality = &self.receipt()?["quality"];
        let count = |field: &str| quality[field].as_f64().context("no count");
        Ok(count("late")? / count("due")?.max(1.0))
    }

    fn receipt(&self) -> Result<serde_json::Value> {
        let comment = self.profile.comments().next().context("no receipt")?;
        ensure!(
            comment.len() <= 4096,
            "the receipt has {} bytes",
            comment.len()
        );
        Ok(serde_json::from_str(comment)?)
    }
}

/// php-fpm with one worker that serves the script.
fn fpm(scene: &mut Scene) -> Result<i32> {
    let pool = Pool {
        name: "www",
        socket: &scene.path("fpm.sock"),
        workers: 1,
        more: "user = root\ngroup = root\n",
    };
    let running = fpm::start("/usr/sbin/php-fpm8.2", scene.folder.path(), &[pool], &[])?;
    Ok(scene.keep(running))
}

fn script(command: &mut Command, scene: &mut Scene) -> Result<i32> {
    let path = scene.path("heap.php");
    let pid = scene.start(command.arg(path))?;
    std::thread::sleep(Duration::from_millis(300));
    Ok(pid)
}

const CYCLES: &str = "for ($i = 0; $i < 7; $i++) { half(); third(); fifth(); }";

#[test]
fn functions_have_the_shares_they_allocate() -> Result<()> {
    let scene = Scene::new(&format!("ini_set('memory_limit', '62M'); {CYCLES}"))?;
    let path = scene.path("heap.php");
    let path = path.to_str().context("a path")?;
    let recorded = scene.record(&["--", "php8.2", path])?;
    recorded.check_parts()?;
    let heap = &recorded.receipt()?["heap"];
    let highest = &heap["highest"];
    let number = |name: &str| highest[name].as_u64().unwrap_or(0);
    ensure!(number("limitBytes") == 62 << 20, "{heap}");
    // 7 times 8,192,000 bytes.
    let peaks = ["peakBytes", "realPeakBytes"].map(number);
    let fits = |peak: &u64| (57_000_000..62 << 20).contains(peak);
    ensure!(peaks.iter().all(fits), "{heap}");
    let stack = highest["stack"].as_array().context("no stack")?;
    ensure!(stack.iter().any(|name| name == "build"), "{heap}");
    ensure!(stack.len() <= 4 && heap["refused"] == 0, "{heap}");
    ensure!(
        recorded.said.contains("near memory_limit"),
        "{}",
        recorded.said
    );
    // What the engine frees at the script's end counts for no stack.
    let [growth, change] =
        ["heap_growth", "heap_change"].map(|kind| total(&recorded.profile, kind));
    ensure!(growth > 50 << 20 && change > 50 << 20, "{growth} {change}");
    Ok(())
}

#[test]
fn heap_without_phps_manager_is_said_missing() -> Result<()> {
    let mut scene = Scene::new("while (true) { half(); }")?;
    let pid = script(
        Command::new("php8.2").env("USE_ZEND_ALLOC", "0"),
        &mut scene,
    )?;
    let recorded = scene.record(&["-d1", &format!("--pid={pid}")])?;
    ensure!(total(&recorded.profile, "heap_growth") == 0);
    ensure!(recorded.receipt()?["heap"]["withoutHeap"] == 1);
    ensure!(
        recorded.said.contains("USE_ZEND_ALLOC"),
        "{}",
        recorded.said
    );
    Ok(())
}

/// Pieces of one read of a worker whose stack stands. A sample also has a call of one piece. A read
/// that another process delayed is made again with all its pieces.
fn pieces_of_a_read(pid: i32, heap: bool) -> Result<f64> {
    let recording = record(&RecordingOptions {
        // The looks of a read become fewer with the number of samples.
        max_samples: Some(500),
        heap,
        ..options(Scope::Pids(vec![pid]), 499, Duration::from_secs(20))
    })?;
    let taken = recording.sampler.quality.taken as f64;
    let of_a_sample = |count: u64| count as f64 / taken - 1.0;
    let calls = recording.calls;
    Ok(of_a_sample(calls.vectors) / of_a_sample(calls.gathers))
}

#[test]
fn heap_is_one_piece_of_the_call() -> Result<()> {
    let mut scene = Scene::new("while (true);")?;
    let pid = script(&mut Command::new("php8.2"), &mut scene)?;
    let pieces = pieces_of_a_read(pid, false)?;
    let more = pieces_of_a_read(pid, true)? - pieces;
    ensure!(
        (0.5..1.5).contains(&more),
        "{more:.2} more than {pieces:.2}"
    );
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn each_request_of_php_fpm_counts_from_nothing() -> Result<()> {
        let mut scene = Scene::new("begin(); half(); third(); fifth();")?;
        let pid = fpm(&mut scene)?;
        let (socket, path) = (scene.path("fpm.sock"), scene.path("heap.php"));
        let times = 6;
        let asking = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            let served = fpm::of_script(&path);
            (0..times).try_for_each(|_| fpm::ask(&socket, &served).map(drop))
        });
        let recorded = scene.record(&["-d3", &format!("--pid={pid}")])?;
        asking.join().expect("the client")?;
        recorded.check_parts()?;
        // Eight megabytes a request, which are freed at its end.
        let expected = f64::from(times) * 8_192_000.0;
        let most = expected * (0.2 + recorded.missed()?);
        for kind in ["heap_growth", "heap_change"] {
            let sum = total(&recorded.profile, kind) as f64;
            ensure!(
                (sum - expected).abs() < most,
                "{kind}: {sum} of {expected} ± {most}"
            );
        }
        Ok(())
    }

    #[test]
    fn leak_is_told_by_its_function() -> Result<()> {
        let mut scene = Scene::new("while (true) { temporary(); leak(); temporary(); }")?;
        let pid = script(&mut Command::new("php8.2"), &mut scene)?;
        let recorded = scene.record(&["-d2", &format!("--pid={pid}")])?;
        let sums = recorded.by_function("heap_change")?;
        let [leak, temporary] =
            ["leak", "temporary"].map(|name| sums.get(name).copied().unwrap_or(0));
        // Some 30 times 160 KiB. Of the other one's megabyte nothing is left but what it may hold
        // now, and what was leaked before a read saw that it is freed.
        ensure!(leak > 1 << 20 && temporary < leak, "{sums:?}");
        Ok(())
    }

    #[test]
    fn reset_peak_counts_where_passed_again() -> Result<()> {
        let code = "while (true) { temporary(); memory_reset_peak_usage(); usleep(5000); }";
        let mut scene = Scene::new(code)?;
        let pid = script(&mut Command::new("php8.2"), &mut scene)?;
        let recorded = scene.record(&["-d1", &format!("--pid={pid}")])?;
        let growth = total(&recorded.profile, "heap_growth");
        // A megabyte every 25 ms, and at least half of the turns were taken.
        ensure!((20 << 20..60 << 20).contains(&growth), "{growth}");
        ensure!(
            recorded
                .profile
                .sample
                .iter()
                .all(|sample| sample.value[1] >= 0)
        );
        Ok(())
    }
}
