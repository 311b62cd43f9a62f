//! Compares a profile with the traced calls: pure.

use std::collections::BTreeMap;
use std::fmt;

use super::calls::{Break, CallsByPath};
use super::explained::explanation;
use super::names::sampled;
use crate::sampled::UNSTABLE;

/// The samples of one run.
#[derive(Debug, Default, PartialEq)]
pub struct RunProfile {
    pub samples: u64,
    pub unstable: u64,
    /// Samples of each stack, root first, without phases of the engine.
    pub stacks: BTreeMap<Vec<String>, u64>,
}

impl RunProfile {
    /// Adds samples of one stack.
    pub fn add(&mut self, names: &[&str], samples: u64) {
        self.samples += samples;
        if names.last() == Some(&UNSTABLE) {
            self.unstable += samples;
        }
        let calls = names.iter().filter(|name| !name.starts_with('['));
        let calls: Vec<String> = calls.map(|name| sampled(name).into_owned()).collect();
        if !calls.is_empty() {
            *self.stacks.entry(calls).or_default() += samples;
        }
    }

    pub fn unstable_percent(&self) -> f64 {
        100.0 * self.unstable as f64 / self.samples.max(1) as f64
    }
}

/// The parts of a profile that the traces do not have.
#[derive(Debug, Default, PartialEq)]
pub struct ProfileParts {
    /// The number of different calls of the profile, and of those that no trace has.
    pub edges: usize,
    pub unknown_edges: usize,
    pub exceptions: Vec<Exception>,
}

/// Stacks that differ from the traces at the same call.
#[derive(Debug, PartialEq)]
pub struct Exception {
    /// One of them.
    example: Vec<String>,
    leaves: Break,
    stacks: usize,
    samples: u64,
    why: Option<&'static str>,
}

impl ProfileParts {
    pub fn of(profile: &RunProfile, calls: &CallsByPath) -> Self {
        let mut edges = BTreeMap::new();
        let mut exceptions: BTreeMap<_, Exception> = BTreeMap::new();
        for (stack, &samples) in &profile.stacks {
            let callers = stack.iter().map(|name| Some(name.as_str()));
            for (caller, callee) in std::iter::once(None).chain(callers).zip(stack) {
                edges
                    .entry((caller, callee))
                    .or_insert_with(|| calls.has(caller, callee));
            }
            let Some(leaves) = calls.leaves_at(stack) else {
                continue;
            };
            let call = &stack[leaves.known.saturating_sub(1)..=leaves.known];
            let kind = (leaves.is_edge_known, call);
            let exception = exceptions.entry(kind).or_insert_with(|| Exception {
                example: stack.clone(),
                leaves,
                stacks: 0,
                samples: 0,
                why: explanation(call),
            });
            exception.stacks += 1;
            exception.samples += samples;
        }
        Self {
            edges: edges.len(),
            unknown_edges: edges.values().filter(|&&known| !known).count(),
            exceptions: exceptions.into_values().collect(),
        }
    }

    pub fn stacks(&self) -> usize {
        self.exceptions.iter().map(|one| one.stacks).sum()
    }

    pub fn samples(&self) -> u64 {
        self.exceptions.iter().map(|one| one.samples).sum()
    }

    /// Samples without a known explanation.
    pub fn unexplained(&self) -> u64 {
        let unexplained = self.exceptions.iter().filter(|one| one.why.is_none());
        unexplained.map(|one| one.samples).sum()
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (known, unknown) = self.example.split_at(self.leaves.known);
        let kind = if self.leaves.is_edge_known {
            "path"
        } else {
            "edge"
        };
        let (samples, stacks) = (self.samples, self.stacks);
        write!(f, "{kind} in {samples} samples, {stacks} stacks: ")?;
        match (self.why, known.last(), unknown.first()) {
            (Some(why), Some(caller), Some(callee)) => write!(f, "{caller} >> {callee}: {why}"),
            _ => write!(
                f,
                "UNEXPLAINED: {} >> {}",
                known.join(" > "),
                unknown.join(" > ")
            ),
        }
    }
}

/// The limits that a profile breaks, in words.
pub fn broken(profile: &RunProfile, held: &ProfileParts) -> Vec<String> {
    let mut broken = Vec::new();
    if profile.samples < 100 {
        broken.push(format!("{} samples say nothing", profile.samples));
    }
    let unexplained = |is_edge_known| {
        let of_kind = |one: &&Exception| one.leaves.is_edge_known == is_edge_known;
        let unexplained = held.exceptions.iter().filter(|one| one.why.is_none());
        let samples: u64 = unexplained.filter(of_kind).map(|one| one.samples).sum();
        samples
    };
    let edges = unexplained(false);
    if edges > 0 {
        broken.push(format!(
            "{edges} samples with edges that are nowhere in the traces"
        ));
    }
    // The same limit as for the programs whose calls are known.
    let (paths, mixed) = (unexplained(true), profile.samples.div_ceil(50_000));
    if paths > mixed {
        broken.push(format!(
            "{paths} samples on call paths that are not in the traces, {mixed} allowed"
        ));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a profile and a trace of `{main} > f > w > left`, `{main} > g > w > right`
    /// and `{main} > io_lock`.
    fn held(stacks: &[(&[&str], u64)]) -> (RunProfile, ProfileParts) {
        let line = |(level, name): (usize, &str)| {
            format!("{level}\t7\t0\t0.1\t1\t{name}\t1\t\t/a.php\t{level}\t0\n")
        };
        let entered = [
            (1, "{main}"),
            (2, "f"),
            (3, "w"),
            (4, "left"),
            (2, "g"),
            (3, "w"),
            (4, "right"),
            (2, "io_lock"),
        ];
        let mut calls = CallsByPath::default();
        calls.read(entered.map(line).concat().as_bytes()).unwrap();
        let mut profile = RunProfile::default();
        for &(stack, samples) in stacks {
            profile.add(stack, samples);
        }
        let held = ProfileParts::of(&profile, &calls);
        (profile, held)
    }

    const TRUE: &[&str] = &["{main}", "f", "w", "left"];

    #[test]
    fn true_stacks_break_nothing() {
        let (profile, held) = held(&[
            (TRUE, 100),
            (&["{main}", "f", "[unstable]"], 2),
            (&["[autoload]", "{main}", "g", "[gc]"], 3),
            (&["[startup]"], 5),
        ]);
        assert_eq!((profile.samples, profile.unstable), (110, 2));
        assert_eq!((held.edges, held.unknown_edges), (5, 0));
        assert_eq!(held.exceptions, []);
        assert_eq!(broken(&profile, &held), Vec::<String>::new());
    }

    #[test]
    fn unknown_edge_breaks_at_once() {
        for wrong in [
            &["{main}", "left"][..],
            &["{main}", "f", "never"],
            &["w", "left"],
            &["{main}", "right", "[unstable]"],
        ] {
            let (profile, held) = held(&[(TRUE, 1_000_000), (wrong, 1)]);
            assert_eq!(
                (held.unknown_edges, held.unexplained()),
                (1, 1),
                "{wrong:?}"
            );
            assert_eq!(broken(&profile, &held).len(), 1, "{wrong:?}");
        }
    }

    #[test]
    fn known_edges_may_mix_in_20_samples() {
        let mixed = |samples| {
            let stack: &[&str] = &["{main}", "g", "w", "left"];
            let (profile, held) = held(&[(TRUE, 1_000_000 - samples), (stack, samples)]);
            assert_eq!((held.unknown_edges, held.unexplained()), (0, samples));
            broken(&profile, &held).len()
        };
        assert_eq!((mixed(20), mixed(21)), (0, 1));
    }

    #[test]
    fn what_is_explained_is_counted_and_breaks_nothing() {
        let waits: &[&str] = &["{main}", "io_lock", "usleep"];
        let (profile, held) = held(&[(TRUE, 100), (waits, 7)]);
        assert_eq!((held.samples(), held.unexplained()), (7, 0));
        assert_eq!(held.exceptions.len(), 1);
        assert_eq!(broken(&profile, &held), Vec::<String>::new());
    }

    #[test]
    fn too_few_samples_are_broken() {
        let (profile, held) = held(&[(TRUE, 99)]);
        assert_eq!(broken(&profile, &held).len(), 1);
    }
}
