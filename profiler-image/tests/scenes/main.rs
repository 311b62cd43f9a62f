//! Recorded scenes, replayed: a process that has the memory that a sampler reads of PHP in a scene
//! is sampled as PHP was, by the same code.
//!
//! They need a C compiler, and no PHP. `make record-scenes` records them again. Invariant: the
//! expected values are the scene's own (`tests/standing/list.rs`), and what PHP itself said of the
//! moment.
#![cfg(target_arch = "x86_64")]

mod record;
mod recording;
#[path = "../standing/mod.rs"]
mod standing;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use recording::{Recording, compile};
use standing::list::SCENES;
use standing::scenes::Scene;
use standing::{check, observe};

/// Where the recordings are.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenes/recordings")
}

fn scene_of(name: &str) -> Result<&'static Scene> {
    let scene = SCENES.iter().find(|scene| scene.name == name);
    scene.with_context(|| format!("no scene is called {name}"))
}

/// Replays the scenes of a kind, of all runtimes.
fn replay(kind: &str) -> Result<()> {
    let programs = TempDir::new()?;
    let program = programs.path().join("stand_in");
    compile("stand_in.c", &[], &program)?;
    let mut replayed = 0;
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        let recording = Recording::read(&path)?;
        let of_kind = recording
            .scenes
            .iter()
            .filter(|it| it.name.starts_with(kind));
        for recorded in of_kind {
            let scene = scene_of(&recorded.name)?;
            let standing = recording.stand(recorded, &program)?;
            let what = || format!("{} of {}", scene.name, path.display());
            let observed = observe(standing.pid(), scene);
            let checked = observed.and_then(|it| check(scene, &recorded.truth, &it));
            failed.extend(checked.with_context(what).err());
            replayed += 1;
        }
    }
    ensure!(failed.is_empty(), "{failed:#?}");
    ensure!(replayed > 0, "no {kind} was recorded");
    Ok(())
}

/// Every scene is told apart from each other one of its kind: `check` can fail.
#[test]
fn a_scene_is_not_taken_for_another() -> Result<()> {
    let programs = TempDir::new()?;
    let program = programs.path().join("stand_in");
    compile("stand_in.c", &[], &program)?;
    let recording = Recording::read(&folder().join("php-8.2.gz"))?;
    let mut scenes = recording.scenes.iter();
    let recorded = scenes.find(|it| it.name == "phases/collector");
    let recorded = recorded.context("it is not recorded")?;
    let standing = recording.stand(recorded, &program)?;
    let observed = observe(standing.pid(), scene_of(&recorded.name)?)?;
    for scene in SCENES {
        let is_it = check(scene, &recorded.truth, &observed).is_ok();
        ensure!(is_it == (scene.name == recorded.name), "{}", scene.name);
    }
    // Nor is the truth of another moment.
    for line in 0..recorded.truth.len() {
        let mut truth = recorded.truth.clone();
        truth[line].push_str("1;1");
        let is_it = check(scene_of(&recorded.name)?, &truth, &observed).is_ok();
        // The third line has opcache's scripts, which is off.
        ensure!(is_it == (line == 2), "line {line}: {truth:?}");
    }
    Ok(())
}

#[test]
fn frames() -> Result<()> {
    replay("frames/")
}

#[test]
fn calls() -> Result<()> {
    replay("calls/")
}

#[test]
fn opcache() -> Result<()> {
    replay("opcache/")
}

#[test]
fn phases() -> Result<()> {
    replay("phases/")
}

#[test]
fn heap() -> Result<()> {
    replay("heap/")
}

#[test]
fn requests() -> Result<()> {
    replay("requests/")
}

#[test]
fn findings() -> Result<()> {
    replay("findings/")
}
