//! The self time of internal functions, compared with the stacks of the same workers while they are stopped.
//!
//! Most internal functions end within a microsecond. If one has ended before the sampler reads its frame, its time counts for its
//! caller; a stopped worker shows it. Invariant: both sides count stacks within requests only.

use std::collections::BTreeMap;
use std::fs::read_dir;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use nix::unistd::Pid;
use phpprof::target::process::stat::Stat;

use crate::stopped::Stopper;

/// How often a worker is stopped; one of four is in a request.
const STOPS: usize = 40_000;
/// How far the share of all internal functions may be off, in percentage points.
const TOLERANCE: f64 = 15.0;
/// How many functions are named.
const SHOWN: usize = 3;

/// The innermost functions of a number of stacks.
#[derive(Debug, Default)]
pub struct SelfTime {
    stacks: u64,
    /// Stacks by their innermost function, where that is internal.
    internal: BTreeMap<String, u64>,
}

impl SelfTime {
    /// Stops the workers of this php-fpm in turn.
    pub fn of_stopped(master: i32) -> Result<Self> {
        let mut workers = Vec::new();
        for entry in read_dir("/proc")? {
            let pid = entry?.file_name().to_str().and_then(|pid| pid.parse().ok());
            let is_worker = |pid: &i32| Stat::of(*pid).is_some_and(|stat| stat.parent == master);
            if let Some(pid) = pid.filter(is_worker) {
                workers.push(Stopper::of(Pid::from_raw(pid))?);
            }
        }
        let mut truth = Self::default();
        for stop in 0..STOPS {
            // A pause of random length, so that no program is in step with the stops.
            let digits = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos();
            std::thread::sleep(Duration::from_micros(100 + u64::from(digits % 400)));
            let at = stop.checked_rem(workers.len()).context("no workers")?;
            let stack = workers[at].stack()?.unwrap_or_default();
            if let Some(leaf) = stack.last() {
                let name = leaf.is_internal.then_some(leaf.name.as_str());
                truth.add(name, 1);
            }
        }
        Ok(truth)
    }

    /// Adds stacks with the same innermost function, given if it is internal.
    pub fn add(&mut self, internal: Option<&str>, stacks: u64) {
        self.stacks += stacks;
        if let Some(name) = internal {
            *self.internal.entry(name.to_owned()).or_default() += stacks;
        }
    }

    /// The share of all internal functions, in percent.
    pub fn percent(&self) -> f64 {
        self.percent_of(self.internal.values().sum())
    }

    fn percent_of(&self, stacks: u64) -> f64 {
        100.0 * stacks as f64 / self.stacks.max(1) as f64
    }

    fn percent_named(&self, name: &str) -> f64 {
        self.percent_of(self.internal.get(name).copied().unwrap_or(0))
    }

    /// What a profile says, beside this truth, in words: the functions that lose most are named.
    pub fn beside(&self, profile: &Self) -> String {
        let loss = |name: &String| self.percent_named(name) - profile.percent_named(name);
        let mut names: Vec<&String> = self.internal.keys().collect();
        names.sort_by(|one, other| loss(other).total_cmp(&loss(one)));
        let named = names.iter().take(SHOWN).map(|name| {
            let (sampled, stopped) = (profile.percent_named(name), self.percent_named(name));
            format!("{name} {sampled:.2} % of {stopped:.2}")
        });
        format!(
            "self time of internal functions: {:.1} % of the samples, {:.1} % of {} stacks of stopped workers; {}",
            profile.percent(),
            self.percent(),
            self.stacks,
            named.collect::<Vec<_>>().join(", ")
        )
    }

    /// The limit that a profile breaks beside this truth, in words.
    pub fn broken(&self, profile: &Self) -> Option<String> {
        let off = (profile.percent() - self.percent()).abs();
        let is_broken = off > TOLERANCE || self.internal.is_empty();
        is_broken.then(|| format!("the self time of internal functions is {off:.1} points off"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn self_time(rows: &[(Option<&str>, u64)]) -> SelfTime {
        let mut all = SelfTime::default();
        rows.iter()
            .for_each(|&(internal, stacks)| all.add(internal, stacks));
        all
    }

    #[test]
    fn what_internal_functions_lose_is_said_with_those_that_lose_most() {
        let truth = self_time(&[(None, 50), (Some("fseek"), 20), (Some("count"), 30)]);
        let profile = self_time(&[(None, 70), (Some("fseek"), 2), (Some("count"), 28)]);
        assert_eq!(
            truth.beside(&profile),
            "self time of internal functions: 30.0 % of the samples, 50.0 % of 100 stacks of stopped workers; fseek 2.00 % of 20.00, count 28.00 % of 30.00"
        );
    }

    #[test]
    fn a_share_that_is_far_off_and_a_truth_without_internal_functions_are_broken() {
        let truth = self_time(&[(None, 50), (Some("count"), 50)]);
        assert_eq!(truth.broken(&truth), None);
        assert_eq!(
            truth.broken(&self_time(&[(None, 60), (Some("f"), 40)])),
            None
        );
        assert!(
            truth
                .broken(&self_time(&[(None, 66), (Some("f"), 34)]))
                .is_some()
        );
        let none = self_time(&[(None, 100)]);
        assert!(none.broken(&none).is_some());
    }
}
