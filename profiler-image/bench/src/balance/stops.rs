//! The truth: stacks of the process when it is stopped at random times.

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::unistd::Pid;

use super::draws::Draws;
use super::profile::Profile;
use crate::sampled::short;
use crate::stopped::Stopper;

/// The mean time between two stops, in microseconds. What follows a stop is slower, because caches
/// have other contents then.
const MEAN_MICROSECONDS: f64 = 300.0;
/// One of so many stops may be within the engine's way into a generator, where the stack does not
/// hold together.
const NOT_WHOLE: u64 = 50;

/// Stops a process so often, at times of this seed.
pub fn stops(pid: Pid, count: u64, seed: u64, is_short: bool) -> Result<Profile> {
    let mut draws = Draws::new(seed);
    let mut stopper = Stopper::of(pid)?;
    let mut profile = Profile::default();
    let mut not_whole = 0;
    for _ in 0..count {
        let pause = draws.pause(MEAN_MICROSECONDS);
        std::thread::sleep(Duration::from_nanos((1000.0 * pause) as u64));
        match stopper.stack()? {
            Some(names) if is_short => {
                let names = names.iter().map(|name| short(name)).collect();
                profile.add(names, 1, 1.0);
            }
            Some(names) => profile.add(names, 1, 1.0),
            None => not_whole += 1,
        }
    }
    ensure!(
        not_whole <= count / NOT_WHOLE,
        "{not_whole} of {count} stopped stacks do not hold together"
    );
    Ok(profile)
}
