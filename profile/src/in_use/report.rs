//! What a profile of what is in heaps says, in the order in which people read it: classes, then
//! paths; and how both grew since an earlier profile.
//!
//! Invariant: the classes, with those that have no row, add up to all that is held. Lists are
//! bounded.

use std::cmp::Reverse;

use serde::Serialize;

use super::amount::InUseAmount;
use super::tree::{InUseTree, weight};
use super::{InHeap, NO_PATH};
use crate::proto::Profile;

/// The most classes and paths of a report.
const CLASSES: usize = 200;
const PATHS: usize = 40;
/// A path below one hundredth of all has no line.
const LEAST: i64 = 100;

/// What is held: a class, the closures of one place, `array`, `string`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InUseClass {
    /// In PHP's syntax.
    pub class: String,
    /// How much of it there is.
    #[serde(flatten)]
    pub now: InUseAmount,
    /// How much there was, in a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<InUseAmount>,
}

/// A path, and all that is reached through it on a shortest path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InUsePath {
    /// Its steps, from what PHP keeps itself on.
    pub steps: Vec<String>,
    /// How much is reached through it, with what the paths reach that go on from here.
    #[serde(flatten)]
    pub now: InUseAmount,
    /// How much it was, in a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<InUseAmount>,
}

/// What is in heaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InUseReport {
    /// How the heaps were read.
    pub read: InHeap,
    /// All that is held.
    pub held: InUseAmount,
    /// All that was held, in a comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_before: Option<InUseAmount>,
    /// Those with the most bytes first; in a comparison, those that grew or shrank most.
    pub classes: Vec<InUseClass>,
    /// Classes without a row.
    pub more_classes: usize,
    /// Those with the most bytes first; in a comparison, those that grew most, and no others.
    pub paths: Vec<InUsePath>,
    /// What no path leads to.
    pub without_path: InUseAmount,
    /// What is uncertain or missing, as phrases.
    pub losses: Vec<String>,
}

impl InUsePath {
    /// The steps in PHP's syntax: keys stand behind what has them.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            let is_key = ["[n]", "[int key]", "[string key]"].contains(&step.as_str());
            if !text.is_empty() && !is_key {
                text.push_str(" → ");
            }
            text.push_str(step);
        }
        text
    }
}

impl InUseReport {
    /// The report of a profile, or of how it differs from an earlier one.
    #[must_use]
    pub fn of(profile: &Profile, baseline: Option<&Profile>) -> Self {
        let tree = InUseTree::of(baseline, profile);
        let is_of_two = baseline.is_some();
        let before = |sums: [InUseAmount; 2]| is_of_two.then_some(sums[0]);
        let mut leaves: Vec<_> = tree
            .leaves
            .iter()
            .map(|(name, sums)| (*name, *sums))
            .collect();
        leaves.sort_by_key(|(name, sums)| (Reverse(weight(*sums, is_of_two).abs()), *name));
        let classes = leaves.iter().take(CLASSES).map(|(name, sums)| InUseClass {
            class: (*name).to_owned(),
            now: sums[1],
            before: before(*sums),
        });
        let total = tree.total();
        let least = weight(total, is_of_two).abs() / LEAST;
        let lines = tree.lines(PATHS, least);
        let paths = lines.into_iter().map(|node| {
            let sums = tree.sums(node);
            InUsePath {
                steps: tree.path(node),
                now: sums[1],
                before: before(sums),
            }
        });
        let read = InHeap::of(profile).unwrap_or_default();
        let earlier = baseline.and_then(InHeap::of).unwrap_or_default();
        let of_earlier = earlier.losses().into_iter();
        let losses = read.losses().into_iter();
        InUseReport {
            read,
            held: total[1],
            held_before: before(total),
            classes: classes.collect(),
            more_classes: leaves.len().saturating_sub(CLASSES),
            paths: paths.collect(),
            without_path: tree.root(NO_PATH)[1],
            losses: losses
                .chain(of_earlier.map(|loss| format!("before: {loss}")))
                .collect(),
        }
    }

    /// What to do with it, as sentences without a command; the most important one first.
    #[must_use]
    pub fn advice(&self) -> Vec<String> {
        let share =
            |amount: InUseAmount| 100.0 * amount.bytes as f64 / self.held.bytes.max(1) as f64;
        let mut advice = Vec::new();
        if self.held.bytes == 0 {
            advice.push(
                "Nothing is in the heaps. php-fpm empties its heap after each request: look while requests run.".to_owned(),
            );
            return advice;
        }
        let is_class =
            |it: &&InUseClass| !["array", "string", "reference"].contains(&it.class.as_str());
        match self.held_before {
            Some(before) => advice.push(match self.paths.first() {
                Some(path) if self.held.bytes > before.bytes => format!(
                    "What is reached through {} grew most. If nothing takes it away between two requests, it is a leak: give it a limit, or empty it.",
                    path.text()
                ),
                _ => "Nothing grew. Let the workers serve more requests before you look again.".to_owned(),
            }),
            None => {
                let largest = self.classes.iter().find(is_class);
                let large = largest.filter(|it| share(it.now) >= 30.0);
                advice.extend(large.map(|it| {
                    format!(
                        "{} has {:.0} % of the bytes. The paths say who holds it.",
                        it.class,
                        share(it.now)
                    )
                }));
                advice.push("One look does not say what grows: look again later, with this one as baseline.".to_owned());
            }
        }
        if share(self.without_path) >= 10.0 {
            advice.push(format!(
                "{:.0} % is below {NO_PATH}: it is in cycles that wait for the collector (gc_collect_cycles() frees them), or extensions hold it.",
                share(self.without_path)
            ));
        }
        advice
    }
}
