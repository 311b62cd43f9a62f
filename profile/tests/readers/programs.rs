//! Opens the formats in the programs that users read them with.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use phpprof_profile::{Format, Profile, View, top, total};

use crate::browser::Browser;
use crate::profiles::{TYPES, hostile, large, shop};
use crate::server::{ServedFile, serve};

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
