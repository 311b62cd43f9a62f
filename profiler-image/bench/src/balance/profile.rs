//! Counts of stacks, and the shares of functions in them: pure.

use std::collections::BTreeMap;

/// Frames that only a profiler shows, for phases of the engine: what runs is the function above.
const PHASES: [&str; 6] = [
    "[autoload]",
    "[compiling]",
    "[loading]",
    "[gc]",
    "[startup]",
    "[shutdown]",
];

/// How often a stack was seen, and what that stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SeenShares {
    pub count: u64,
    pub weight: f64,
}

/// Stacks, root first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShareProfile {
    pub stacks: BTreeMap<Vec<String>, SeenShares>,
}

/// The shares of a function, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    /// Without its callees.
    pub own: f64,
    /// With its callees.
    pub total: f64,
}

impl ShareProfile {
    /// Adds a stack. One without functions is no time of a program.
    pub fn add(&mut self, mut stack: Vec<String>, count: u64, weight: f64) {
        stack.retain(|name| !PHASES.contains(&name.as_str()));
        if stack.is_empty() {
            return;
        }
        let seen = self.stacks.entry(stack).or_default();
        seen.count += count;
        seen.weight += weight;
    }

    /// Adds another profile of the same.
    pub fn extend(&mut self, other: &Self) {
        for (stack, seen) in &other.stacks {
            self.add(stack.clone(), seen.count, seen.weight);
        }
    }

    pub fn count(&self) -> u64 {
        self.stacks.values().map(|seen| seen.count).sum()
    }

    /// The shares of all functions.
    pub fn shares(&self) -> BTreeMap<&str, Share> {
        let all: f64 = self.stacks.values().map(|seen| seen.weight).sum();
        let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
        for (stack, seen) in &self.stacks {
            let percent = 100.0 * seen.weight / all.max(f64::MIN_POSITIVE);
            if let Some(leaf) = stack.last() {
                shares.entry(leaf).or_default().own += percent;
            }
            for (place, name) in stack.iter().enumerate() {
                // A recursive function is on the stack once.
                if !stack[..place].contains(name) {
                    shares.entry(name).or_default().total += percent;
                }
            }
        }
        shares
    }

    /// Takes the leaves that another profile cannot have for their callers' own time: calls without
    /// frames, which the engine makes from 8.4 on and only the sampler names. Returns their number.
    pub fn fold_frameless(&mut self, other: &Self) -> u64 {
        let framed = other.shares();
        let mut folded = 0;
        for (mut stack, seen) in std::mem::take(&mut self.stacks) {
            let is_frameless =
                |leaf: &String| !leaf.starts_with('[') && !framed.contains_key(leaf.as_str());
            if stack.len() > 1 && stack.last().is_some_and(is_frameless) {
                stack.pop();
                folded += seen.count;
            }
            self.add(stack, seen.count, seen.weight);
        }
        folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn profile(stacks: &[(&[&str], u64)]) -> ShareProfile {
        let mut profile = ShareProfile::default();
        for &(stack, count) in stacks {
            profile.add(
                stack.iter().map(|&name| name.to_owned()).collect(),
                count,
                count as f64,
            );
        }
        profile
    }

    #[test]
    fn recursion_and_phases_count_once() {
        let profile = profile(&[
            (&["{main}", "f", "g", "f"], 1),
            (&["{main}", "f", "[gc]"], 1),
            (&["{main}", "[autoload]", "f"], 1),
            (&["{main}"], 1),
            (&["[startup]"], 9),
        ]);
        let shares = profile.shares();
        assert_eq!(profile.count(), 4);
        assert_eq!(
            shares["f"],
            Share {
                own: 75.0,
                total: 75.0
            }
        );
        assert_eq!(
            shares["g"],
            Share {
                own: 0.0,
                total: 25.0
            }
        );
        assert_eq!(
            shares["{main}"],
            Share {
                own: 25.0,
                total: 100.0
            }
        );
    }

    #[test]
    fn calls_without_frames_are_their_callers_time() {
        let truth = profile(&[(&["{main}", "f"], 1)]);
        let mut ours = profile(&[
            (&["{main}", "f", "strpos"], 3),
            (&["{main}", "[unstable]"], 2),
        ]);
        assert_eq!(ours.fold_frameless(&truth), 3);
        assert_eq!(
            ours,
            profile(&[(&["{main}", "f"], 3), (&["{main}", "[unstable]"], 2)])
        );
    }
}
