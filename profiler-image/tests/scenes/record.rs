//! Records the scenes again, of each PHP that is there, or of `RUNTIME`: `make record-scenes`. It
//! requires root, and what `profiler-image/runtimes/build` makes.
//!
//! A sampler that notes which memory it reads (`noting.c`) observes PHP in the scene; these pages
//! are then written.
//! Invariant: only what was checked on real PHP is written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::recording::{Mapping, PAGE, Recorded, Recording, compile};
use crate::standing::list::SCENES;
use crate::standing::live::{Live, Runtime, has, runtimes};
use crate::standing::scenes::Scene;
use crate::standing::{check, observe};
use crate::{folder, scene_of};

/// In the environment of the process that notes: which process it observes, and in which scene that
/// is.
const OBSERVED: &str = "PHPPROF_OBSERVED";
const SCENE: &str = "PHPPROF_SCENE";
/// How often a scene is observed: a sampler reads more at some times than at others.
const TIMES: usize = 2;
/// What is read of memory is kept in units of this size.
const UNIT: usize = 16;

#[test]
#[ignore = "make record-scenes runs it, with real PHP"]
fn record() -> Result<()> {
    let programs = TempDir::new()?;
    let noting = programs.path().join("noting.so");
    compile("noting.c", &["-shared", "-fPIC"], &noting)?;
    fs::create_dir_all(folder())?;
    let mut failed = Vec::new();
    let only = std::env::var("RUNTIME").unwrap_or_default();
    for runtime in runtimes()
        .into_iter()
        .filter(|it| only.is_empty() || it.name == only)
    {
        let mut recording = Recording::default();
        for scene in SCENES.iter().filter(|scene| has(&runtime, scene)) {
            let recorded = record_one(&runtime, scene, &noting, &mut recording)
                .with_context(|| format!("{} of {}", scene.name, runtime.name));
            match recorded {
                Ok(recorded) => recording.scenes.push(recorded),
                Err(error) => failed.push(error),
            }
        }
        let path = folder().join(format!("{}.gz", runtime.name));
        recording.write(&path)?;
        println!("{}: {} bytes", path.display(), fs::metadata(&path)?.len());
    }
    ensure!(failed.is_empty(), "{failed:#?}");
    Ok(())
}

/// The process that notes.
#[test]
#[ignore = "a part of the one above"]
fn observe_and_note() -> Result<()> {
    let pid = std::env::var(OBSERVED).context("no process")?;
    let scene = scene_of(&std::env::var(SCENE)?)?;
    for _ in 0..TIMES {
        observe(pid.parse()?, scene)?;
    }
    Ok(())
}

fn record_one(
    runtime: &Runtime,
    scene: &Scene,
    noting: &Path,
    recording: &mut Recording,
) -> Result<Recorded> {
    let live = Live::start(runtime, scene)?;
    let truth = live.truth()?;
    check(scene, &truth, &observe(live.pid, scene)?)?;
    let read = read(live.pid, scene, noting)?;
    let pages: BTreeSet<u64> = read.iter().map(|unit| unit & !(PAGE as u64 - 1)).collect();
    let mut recorded = Recorded {
        name: scene.name.to_owned(),
        truth,
        ..Recorded::default()
    };
    let text = fs::read_to_string(format!("/proc/{}/maps", live.pid))?;
    let maps = text.lines().filter_map(Mapping::parse);
    let has_any = |map: &Mapping| {
        pages
            .range(map.start..map.start + map.length)
            .next()
            .is_some()
    };
    recorded.maps = maps.filter(|map| map.is_shared || has_any(map)).collect();
    let memory = File::open(format!("/proc/{}/mem", live.pid))?;
    let number = live.pid.to_le_bytes();
    for &address in &pages {
        let mut page = [0; PAGE];
        if memory.read_exact_at(&mut page, address).is_err() {
            continue;
        }
        // What was not read is not kept: other memory of PHP is of no use, and takes place.
        for (unit, at) in page.chunks_exact_mut(UNIT).zip((address..).step_by(UNIT)) {
            if !read.contains(&at) {
                unit.fill(0);
            }
        }
        recording.add_page(&mut recorded, address, &page);
        // The thread's number, where its C library has it.
        let words = page.chunks_exact(4).zip((address..).step_by(4));
        let same = words.filter(|(word, _)| runtime.name.contains("zts") && *word == number);
        recorded.numbers.extend(same.map(|(_, at)| at));
    }
    Ok(recorded)
}

/// The units of memory that a sampler reads of the process.
fn read(pid: i32, scene: &Scene, noting: &Path) -> Result<BTreeSet<u64>> {
    let folder = TempDir::new()?;
    let notes = folder.path().join("notes");
    let done = Command::new(std::env::current_exe()?)
        .args([
            "--exact",
            "record::observe_and_note",
            "--ignored",
            "--nocapture",
        ])
        .env("LD_PRELOAD", noting)
        .env("NOTES", &notes)
        .env(OBSERVED, pid.to_string())
        .env(SCENE, scene.name)
        .output()?;
    ensure!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let notes = fs::read(&notes)?;
    let words: Vec<u64> = notes
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
        .collect();
    let mut units = BTreeSet::new();
    for read in words.chunks_exact(2) {
        let first = read[0] & !(UNIT as u64 - 1);
        units.extend((first..read[0] + read[1]).step_by(UNIT));
    }
    Ok(units)
}
