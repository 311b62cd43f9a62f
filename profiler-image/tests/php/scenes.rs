//! Real PHP that stands still in a scene: what `tests/scenes` replays, sampled live, and judged by
//! the same truth.

use anyhow::{Context as _, Result, ensure};

use crate::standing::list::SCENES;
use crate::standing::live::{Live, Runtime, has, runtimes};
use crate::standing::scenes::Scene;
use crate::standing::{check, observe};

fn check_one(runtime: &Runtime, scene: &Scene) -> Result<()> {
    let live = Live::start(runtime, scene)?;
    let observed = observe(live.pid, scene)?;
    check(scene, &live.truth()?, &observed)
}

/// Checks these scenes in each PHP that is there.
fn check_all(is_meant: impl Fn(&Scene) -> bool) -> Result<()> {
    let (mut checked, mut failed) = (0, Vec::new());
    for runtime in runtimes() {
        for scene in SCENES
            .iter()
            .filter(|scene| is_meant(scene) && has(&runtime, scene))
        {
            let what = || format!("{} of {}", scene.name, runtime.name);
            failed.extend(check_one(&runtime, scene).with_context(what).err());
            checked += 1;
        }
    }
    eprintln!("{checked} scenes");
    ensure!(failed.is_empty(), "{failed:#?}");
    ensure!(checked > 0, "there is no such scene");
    Ok(())
}

#[test]
fn frames() -> Result<()> {
    check_all(|scene| scene.name == "frames/calls")
}

#[test]
fn calls() -> Result<()> {
    check_all(|scene| scene.name == "calls/array-access")
}

#[test]
fn phases() -> Result<()> {
    check_all(|scene| ["phases/collector", "phases/idle"].contains(&scene.name))
}

#[test]
fn opcache() -> Result<()> {
    check_all(|scene| scene.name == "opcache/scripts")
}

#[test]
fn heap() -> Result<()> {
    check_all(|scene| scene.name == "heap/held")
}

#[test]
fn requests() -> Result<()> {
    check_all(|scene| scene.name == "requests/item")
}

#[test]
fn findings() -> Result<()> {
    check_all(|scene| scene.name == "findings/waiting-lock")
}

/// Runs with `FULL=1`.
mod long {
    use super::*;

    #[test]
    fn all() -> Result<()> {
        check_all(|_| true)
    }
}
