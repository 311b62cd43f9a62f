//! Names × SAPIs × opcache × versions, by generation: each profile has the functions that the
//! program itself lists, and no others.
//!
//! It runs one program of each cell; `FULL=1` takes 200 seconds, and also PHP of other versions
//! where `profiler-image/runtimes/build` has made them. `SEED` makes other names. It needs root and
//! this machine's PHP 8.2.

mod names;
mod program;
mod scene;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use phpprof_profile::{Format, Lookup, Profile, View, place_name};
use phpprof_testing::wait_until;
use tempfile::TempDir;

use names::Random;
use program::{Listed, Program, compare, read_back};
use scene::{Cell, Running, Server, cells, frankenphp_cells};

/// A program is recorded again if a function was not seen, at most so often: on a busy machine, a
/// recording has few samples.
const RECORDINGS: usize = 10;
/// The largest share of `[unstable]`, in percent; that of a program without names is 100. On a busy
/// machine many reads are torn, which says nothing of names: what could not be checked is counted,
/// and has to be 0.
const UNSTABLE: i64 = 20;

/// A longer text is not read whole, so its hash says nothing, and a second read confirms it.
const MAX_CHECKED: usize = 8192;

#[test]
fn profile_has_the_functions_of_the_program() -> Result<()> {
    let is_full = std::env::var("FULL").is_ok_and(|value| value == "1");
    check(&cells(is_full), if is_full { 200 } else { 0 })
}

#[test]
fn frankenphp_profile_has_the_programs_functions() -> Result<()> {
    let is_full = std::env::var("FULL").is_ok_and(|value| value == "1");
    check(&frankenphp_cells(), if is_full { 60 } else { 0 })
}

/// Runs at least one program in each cell, and more for this many seconds.
fn check(cells: &[Cell], seconds: u64) -> Result<()> {
    let seed = std::env::var("SEED").ok().and_then(|it| it.parse().ok());
    let seed: u64 = seed.unwrap_or(52);
    let began = Instant::now();
    let mut programs = 0;
    while programs < cells.len() || began.elapsed() < Duration::from_secs(seconds) {
        let cell = &cells[programs % cells.len()];
        let of_program = seed.wrapping_mul(1000) + programs as u64;
        run(cell, &mut Random::of(of_program))
            .with_context(|| format!("{cell:?}, program {programs} of SEED={seed}"))?;
        programs += 1;
    }
    eprintln!("{programs} programs in {} cells", cells.len());
    Ok(())
}

fn run(cell: &Cell, random: &mut Random) -> Result<()> {
    let folder = TempDir::new()?;
    let (seconds, main) = match cell.server {
        Server::CommandLine => (600, random.file(b'm')),
        Server::Fpm | Server::FrankenPhp => (0, random.script()),
    };
    let program = Program::put(folder.path(), random, main, seconds)?;
    let running = Running::start(cell, folder.path(), &program, random)?;
    let mut sampled = BTreeSet::new();
    for round in 1.. {
        let profile = running.record()?;
        check_formats(&profile)?;
        let receipt = profile.comments().next().unwrap_or_default();
        // Where an extension is not there, PHP only warns.
        let has_opcache = receipt.contains(r#""opcache":"on""#);
        ensure!(has_opcache == cell.opcache, "opcache: {receipt}");
        let is_checked = ["unnamed", "uncheckedNames"].map(|count| !receipt.contains(count));
        let listed = program.listed()?;
        let longest = listed.iter().map(Listed::longest_text).max();
        ensure!(
            is_checked == [true; 2] || longest > Some(MAX_CHECKED),
            "not checked by PHP's hash: {receipt}; the longest text has {longest:?} bytes"
        );
        let unstable = add(&profile, &mut sampled);
        ensure!(unstable <= UNSTABLE, "{unstable} % [unstable]");
        let missing = compare(&listed, &sampled)?;
        if missing.is_empty() {
            break;
        }
        ensure!(round < RECORDINGS, "not in the profile: {missing:?}");
    }
    running.check_labels(&program)
}

/// Adds the functions of a profile by name and file; returns the share of `[unstable]` in percent.
fn add(profile: &Profile, sampled: &mut BTreeSet<(String, String)>) -> i64 {
    let lookup = Lookup::new(profile);
    let (mut unstable, mut all) = (0, 0);
    for sample in &profile.sample {
        all += sample.value[0];
        for frame in lookup.frames(sample) {
            if frame.name == "[unstable]" {
                unstable += sample.value[0];
            } else {
                let name = place_name(frame.name, frame.file, frame.start_line);
                sampled.insert((name.into_owned(), frame.file.to_owned()));
            }
        }
    }
    100 * unstable / all.max(1)
}

/// No format has a control character in a name, and what writes names alone keeps all of them
/// apart.
fn check_formats(profile: &Profile) -> Result<()> {
    let lookup = Lookup::new(profile);
    let frames = profile
        .sample
        .iter()
        .flat_map(|sample| lookup.frames(sample));
    let names: BTreeSet<&str> = frames.map(|frame| frame.name).collect();
    for name in &names {
        ensure!(!name.chars().any(char::is_control), "{name:?}");
        // Nothing is lost: a name that is not cut is read back as other bytes than each other one.
        ensure!(!read_back(name).is_empty());
    }
    let write = |format: Format| -> Result<String> {
        let bytes = format.write(profile, &View::default(), "names", None)?;
        Ok(String::from_utf8(bytes)?)
    };
    let folded = write(Format::Folded)?;
    let stacks = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let written: BTreeSet<&str> = stacks.flat_map(|(stack, _)| stack.split(';')).collect();
    ensure!(
        written.len() == names.len(),
        "folded has {} names of {}",
        written.len(),
        names.len()
    );
    for format in [
        Format::Callgrind,
        Format::Svg,
        Format::Speedscope,
        Format::Html,
    ] {
        let text = write(format)?;
        let is_odd = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
        ensure!(!text.contains(is_odd), "{}", format.name());
    }
    Ok(())
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    /// Two inputs that had no names: a folder with another letter than ASCII, and a function of
    /// 4,994 bytes.
    #[test]
    fn folder_and_long_field_name_are_named() -> Result<()> {
        let busy = "$e=hrtime(true)+3000000; while(hrtime(true)<$e) { $x=md5('a'); }";
        let long = "f".repeat(4990) + "_end";
        let sources = [
            ("müller", "work".to_owned()),
            ("plain", long),
            ("plain", "\u{c9}t\u{e9}A".to_owned()),
            ("plain", "a\u{a0}b".to_owned()),
        ];
        for (below, function) in sources {
            for opcache in [false, true] {
                let folder = TempDir::new()?;
                let below = folder.path().join(below);
                std::fs::create_dir(&below)?;
                let script = below.join("w.php");
                let begun = folder.path().join("begun");
                let text = format!(
                    "<?php touch({begun:?}); function {function}(){{ {busy} }} while (true) {function}();"
                );
                std::fs::write(&script, text)?;
                let target = scene::script("/usr/bin/php8.2", &script, opcache)?;
                wait_until("first call", || Ok(begun.exists()))?;
                let profile = scene::recorded(&target, 1)?;
                let lookup = Lookup::new(&profile);
                let all: i64 = profile.sample.iter().map(|it| it.value[0]).sum();
                let in_function = profile.sample.iter().filter(|sample| {
                    let mut frames = lookup.frames(sample);
                    frames.any(|it| it.name == function || it.name.contains("f_end<4994 bytes, "))
                });
                let named: i64 = in_function.map(|it| it.value[0]).sum();
                ensure!(all > 5 && named * 10 > all * 9, "{named} of {all} samples");
            }
        }
        Ok(())
    }
}
