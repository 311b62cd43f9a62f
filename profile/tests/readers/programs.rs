//! Opens the formats in the programs that users read them with.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use phpprof_profile::timeline::Timeline;
use phpprof_profile::{Format, Profile, View, top, total};
use serde_json::Value;

use crate::browser::Browser;
use crate::profiles::{TYPES, hostile, large, shop};
use crate::server::{ServedFile, serve};
use crate::timelines::shop_timeline;

fn written(profile: &Profile, name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let format = Format::of_name(name).unwrap();
    std::fs::write(
        &path,
        format
            .write(profile, &View::default(), "shop", None)
            .unwrap(),
    )
    .unwrap();
    (folder, path)
}

fn output(program: &str, arguments: &[&str], file: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn go_tool_pprof_reads_pprof_and_its_totals() {
    for profile in [shop(400), hostile(), large(2_000)] {
        let (_folder, path) = written(&profile, "shop.pb.gz");
        let raw = output("go", &["tool", "pprof", "-raw"], &path);
        let mut sums = [0; 3];
        // Lines of samples look like " samples cpu wall: locations". Other parts of the text look
        // different.
        for line in raw
            .lines()
            .skip_while(|line| *line != "Samples:")
            .take_while(|line| *line != "Locations")
        {
            let Some((values, _)) = line.split_once(": ") else {
                continue;
            };
            let values: Vec<i64> = values
                .split_whitespace()
                .filter_map(|value| value.parse().ok())
                .collect();
            if let [samples, cpu, wall] = values[..] {
                sums = [sums[0] + samples, sums[1] + cpu, sums[2] + wall];
            }
        }
        assert_eq!(sums, TYPES.map(|name| total(&profile, name)));
    }
}

#[test]
fn callgrind_annotate_reads_callgrind_and_its_totals() {
    for profile in [shop(400), hostile(), large(2_000)] {
        let (_folder, path) = written(&profile, "callgrind.out.shop");
        let text = output(
            "callgrind_annotate",
            &["--show-percs=no", "--threshold=100"],
            &path,
        );
        let totals = text
            .lines()
            .find(|line| line.contains("PROGRAM TOTALS"))
            .unwrap();
        let found: Vec<i64> = totals
            .replace(',', "")
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        assert_eq!(found, TYPES.map(|name| total(&profile, name)), "{text}");
    }
}

/// speedscope's own format, and the profile in the other formats that speedscope reads.
fn speedscope(profile: &Profile, names: &[&str]) -> String {
    let release =
        std::env::var("PHPPROF_SPEEDSCOPE").expect("no speedscope: run tools/browser first");
    let mut files = HashMap::new();
    for entry in std::fs::read_dir(release).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let kind = match name.rsplit('.').next() {
            Some("html") => "text/html",
            Some("js") => "text/javascript",
            Some("css") => "text/css",
            _ => "application/octet-stream",
        };
        let bytes = std::fs::read(entry.path()).unwrap();
        files.insert(
            format!("/{name}"),
            ServedFile {
                kind,
                policy: None,
                bytes,
            },
        );
    }
    for name in names {
        let bytes = Format::of_name(name)
            .unwrap()
            .write(profile, &View::default(), "shop", None)
            .unwrap();
        files.insert(
            format!("/{name}"),
            ServedFile {
                kind: "application/octet-stream",
                policy: None,
                bytes,
            },
        );
    }
    serve(files)
}

#[test]
fn speedscope_imports_its_own_format_pprof_and_folded() {
    let profile = shop(400);
    let names = ["shop.speedscope.json", "shop.pb.gz", "shop.folded"];
    let origin = speedscope(&profile, &names);
    let rows = top(&profile, "wall");
    let row = rows
        .iter()
        .find(|row| row.name == r"Shop\Product::price")
        .unwrap();
    let seconds = format!("{:.2}s", row.flat as f64 / 1e9);
    for name in names {
        let mut browser = Browser::start(1200, 800);
        browser.open(&format!(
            "{origin}/index.html#profileURL={name}&view=sandwich"
        ));
        browser.wait_for(r"document.body.innerText.includes('Shop\\Product::price')");
        let text = browser
            .eval("document.body.innerText")
            .as_str()
            .unwrap()
            .to_owned();
        let whole = rows
            .iter()
            .all(|row| row.flat == 0 || text.contains(&row.name));
        assert!(whole, "{name}: {text}");
        // The folded format has no unit.
        if !name.ends_with(".folded") {
            assert!(text.contains(&seconds), "{name}: no {seconds} in {text}");
        }
        let percent = 100.0 * row.flat as f64 / total(&profile, "wall") as f64;
        assert!(
            text.contains(&format!("({percent:.0}%)")),
            "{name}: no {percent:.0} % in {text}"
        );
    }
}

/// The Firefox Profiler's own loader: a daemon that has the profile, and commands that ask it.
///
/// The command `load` would start it too, but gives up if it is not ready within half a second.
struct Loader {
    folder: tempfile::TempDir,
    daemon: Child,
}

/// How long the loader may take to start on a busy machine.
const TO_START: Duration = Duration::from_secs(60);

impl Loader {
    fn load(profile: &Profile, view: &View, timeline: Option<&Timeline>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.json.gz");
        let bytes = Format::Firefox.write(profile, view, "shop", timeline);
        std::fs::write(&path, bytes.unwrap()).unwrap();
        let mut command = Self::command(folder.path());
        command.arg("--daemon").arg(&path);
        let daemon = command.args(["--session", "test"]).spawn().unwrap();
        let mut loader = Loader { folder, daemon };
        let begin = Instant::now();
        while !loader.has_loaded() {
            let ended = loader.daemon.try_wait().unwrap();
            let log = loader.log();
            assert!(ended.is_none(), "the loader ended: {log}");
            assert!(begin.elapsed() < TO_START, "the loader is not there: {log}");
            std::thread::sleep(Duration::from_millis(100));
        }
        loader
    }

    /// Its log says so. A command that asks too early would delete the files of the session that is
    /// just starting.
    fn has_loaded(&self) -> bool {
        let log = self.log();
        let failed = log.lines().find(|line| line.contains("[ERROR]"));
        assert_eq!(failed, None);
        log.contains("Profile loaded successfully")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("test.log")).unwrap_or_default()
    }

    fn command(folder: &Path) -> Command {
        let programs =
            std::env::var("PHPPROF_FIREFOX").expect("no loader: run tools/browser first");
        let mut command = Command::new("node");
        command
            .arg(Path::new(&programs).join("profiler-cli.js"))
            .env("PROFILER_CLI_SESSION_DIR", folder)
            .env("PROFILER_CLI_NO_SYMBOLICATE", "1")
            .stderr(Stdio::piped());
        command
    }

    fn output(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Self::command(self.folder.path());
        command.args(arguments).args(["--session", "test"]);
        let output = command.output().unwrap();
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{arguments:?}: {errors}"))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments = [arguments, &["--json"]].concat();
        serde_json::from_str(&self.output(&arguments).unwrap()).unwrap()
    }

    /// The handles and names of all threads.
    fn threads(&self) -> Vec<(String, String)> {
        let list = self.json(&["thread", "list", "--limit", "0"]);
        let text = |thread: &Value, key: &str| thread[key].as_str().unwrap().to_owned();
        let threads = list["threads"].as_array().unwrap().iter();
        let threads = threads.map(|it| (text(it, "threadHandle"), text(it, "name")));
        threads.collect()
    }

    /// The weights of all threads, and of each function's own samples.
    fn weights(&self) -> (f64, HashMap<String, f64>) {
        let (mut all, mut functions) = (0.0, HashMap::new());
        for (handle, _) in self.threads() {
            let asked = ["thread", "functions", "--include-idle", "--thread", &handle];
            let found = self.json(&asked);
            for function in found["functions"].as_array().unwrap() {
                let own = function["selfSamples"].as_f64().unwrap();
                let name = function["name"].as_str().unwrap().to_owned();
                *functions.entry(name).or_default() += own;
                all += own;
            }
        }
        (all, functions)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[track_caller]
fn check_near(found: f64, expected: i64, what: &str) {
    let expected = expected as f64;
    assert!(
        (found - expected).abs() <= 1e-9 * expected,
        "{what}: {found} is not {expected}"
    );
}

#[test]
fn firefox_profiler_loads_its_format_and_its_totals() {
    let check = |profile: &Profile, name: &str, scale: f64| {
        let view = View {
            sample_type: Some(name.to_owned()),
            ..View::default()
        };
        let (all, functions) = Loader::load(profile, &view, None).weights();
        check_near(all * scale, total(profile, name), name);
        functions
    };
    // The loader shortens names that look like templates of C++.
    check(&hostile(), "wall", 1e6);
    check(&shop(400), "samples", 1.0);
    check(&shop(400), "cpu", 1e6);
    for profile in [shop(400), large(2_000)] {
        let functions = check(&profile, "wall", 1e6);
        for row in top(&profile, "wall").iter().filter(|row| row.flat > 0) {
            let own = functions.get(&row.name).copied().unwrap_or(0.0);
            check_near(own * 1e6, row.flat, &row.name);
        }
    }
}

#[test]
fn firefox_profiler_shows_requests_as_markers() {
    let list = shop_timeline();
    let loader = Loader::load(&shop(400), &View::default(), Some(&list));
    let (all, _) = loader.weights();
    check_near(all * 1e6, total(&shop(400), "wall"), "wall");
    let mut markers = HashMap::new();
    for (handle, _) in loader.threads() {
        let found = loader.json(&["thread", "markers", "--thread", &handle]);
        for kind in found["byType"].as_array().unwrap() {
            let name = kind["markerName"].as_str().unwrap().to_owned();
            *markers.entry(name).or_default() += kind["count"].as_u64().unwrap();
        }
    }
    assert_eq!(markers.get("Request"), Some(&(list.requests.len() as u64)));
    for name in ["Wait", "Phase", "Samples without times"] {
        assert!(markers.get(name).is_some_and(|count| *count > 0), "{name}");
    }
}
