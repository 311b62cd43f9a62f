//! What a sample waits for: its wall time, split into what ran and what waited, by the internal function that is its leaf.
//!
//! It changes no profile: [`labelled`] gives another one, in which the part that waited is a sample of its own, with the label
//! [`LABEL`]. What waits for something that [`KINDS`] does not know, and what waits for a CPU, has no such label.
//!
//! Invariant: for each sample type, the two parts of a sample add up to it; the part that waited has no CPU time.

mod kinds;

use std::collections::HashMap;

pub use kinds::{KINDS, kind};

use crate::proto::{Label, Profile, Sample};
use crate::source::Source;

/// The key of the label.
pub const LABEL: &str = "waiting";

/// A leaf that is off the CPU for less of its time than this is busy, as far as samples can tell.
const LEAST_FRACTION: f64 = 0.1;

/// So many samples of PHP's own code say how long waits for a CPU are.
const ENOUGH_SAMPLES: i64 = 50;

/// Which part of each leaf's wall time is waiting, in one profile.
///
/// A function that waits has no CPU time meanwhile, but neither has one whose worker waits for a CPU, as under a CPU limit. How much that
/// is, code tells that never waits for anything else: the wall time that it takes for its CPU time is what others get for theirs too.
/// The parts are those of a function in all its samples: what a single row has of both says little.
#[derive(Debug)]
pub struct Waiting {
    cpu: usize,
    wall: usize,
    /// By the id of a location: what its leaf waits for, and for which part of its time.
    leaves: HashMap<u64, (&'static str, f64)>,
}

/// Of one function, or of all that never wait.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    samples: i64,
    cpu: i64,
    wall: i64,
}

impl Times {
    fn add(&mut self, other: Times) {
        self.samples = self.samples.saturating_add(other.samples);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.wall = self.wall.saturating_add(other.wall);
    }
}

/// The function of a location's innermost line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leaf<'a> {
    /// PHP's own code: it never waits for anything but a CPU.
    Php,
    /// An internal function that waits for something, or a phase that does.
    Waits(&'a str, &'static str),
    Other,
}

impl Waiting {
    /// None where the profile does not have both times, or has the label already.
    pub fn of<S: Source + ?Sized>(source: &S) -> Option<Self> {
        let profile = source.head();
        let (cpu, wall) = (profile.value_index("cpu")?, profile.value_index("wall")?);
        let samples = profile.value_index("samples");
        let by_location = leaves(profile);
        let mut times: HashMap<Leaf<'_>, Times> = HashMap::new();
        let mut is_labelled = false;
        source.each(&mut |sample| {
            is_labelled |= sample
                .label
                .iter()
                .any(|label| profile.string(label.key) == LABEL);
            let Some(leaf) = leaf_of(&by_location, sample) else {
                return;
            };
            let value = |index: usize| sample.value.get(index).copied().unwrap_or(0);
            times.entry(leaf).or_default().add(Times {
                samples: samples.map_or(1, value),
                cpu: value(cpu),
                wall: value(wall),
            });
        });
        if is_labelled {
            return None;
        }
        let stretch = stretch(&times);
        let waits = by_location.into_iter().filter_map(|(id, leaf)| {
            let Leaf::Waits(_, kind) = leaf else {
                return None;
            };
            let its = times.get(&leaf)?;
            let fraction = 1.0 - stretch * its.cpu as f64 / its.wall.max(1) as f64;
            (fraction >= LEAST_FRACTION).then(|| (id, (kind, fraction.min(1.0))))
        });
        Some(Waiting {
            cpu,
            wall,
            leaves: waits.collect(),
        })
    }

    /// What the sample waits for, and its values while it does; the rest of its values are those of what ran.
    pub fn split(&self, sample: &Sample) -> Option<(&'static str, Vec<i64>)> {
        let (kind, fraction) = *self.leaves.get(sample.location_id.first()?)?;
        let part = |value: i64| (value as f64 * fraction).round() as i64;
        let mut values: Vec<i64> = sample.value.iter().map(|value| part(*value)).collect();
        if let Some(cpu) = values.get_mut(self.cpu) {
            *cpu = 0;
        }
        values
            .iter()
            .any(|value| *value != 0)
            .then_some((kind, values))
    }

    /// How much of the sample's wall time it waits, and what for.
    pub(crate) fn wall(&self, sample: &Sample) -> Option<(&'static str, i64)> {
        let (kind, values) = self.split(sample)?;
        Some((kind, values.get(self.wall).copied().unwrap_or(0)))
    }
}

/// The profile with the part of each sample that waited as a sample of its own, which has the label.
#[must_use]
pub fn labelled(profile: &Profile) -> Profile {
    let Some(waiting) = Waiting::of(profile) else {
        return profile.clone();
    };
    let mut made = profile.clone();
    let key = intern(&mut made, LABEL);
    let mut samples = Vec::with_capacity(made.sample.len());
    for mut sample in std::mem::take(&mut made.sample) {
        if let Some((kind, values)) = waiting.split(&sample) {
            let mut waits = sample.clone();
            for (left, value) in sample.value.iter_mut().zip(&values) {
                *left = left.saturating_sub(*value);
            }
            waits.value = values;
            waits.label.push(Label {
                key,
                str: intern(&mut made, kind),
                ..Label::default()
            });
            samples.push(waits);
        }
        if sample.value.iter().any(|value| *value != 0) {
            samples.push(sample);
        }
    }
    made.sample = samples;
    made
}

fn intern(profile: &mut Profile, text: &str) -> i64 {
    let known = profile.string_table.iter().position(|one| one == text);
    let index = known.unwrap_or_else(|| {
        profile.string_table.push(text.to_owned());
        profile.string_table.len() - 1
    });
    i64::try_from(index).unwrap_or(0)
}

/// The wall time that CPU time takes: 1 where nothing waits for a CPU.
fn stretch(times: &HashMap<Leaf<'_>, Times>) -> f64 {
    let php = times.get(&Leaf::Php).copied().unwrap_or_default();
    let mut never = php;
    if php.samples < ENOUGH_SAMPLES {
        never.add(times.get(&Leaf::Other).copied().unwrap_or_default());
    }
    (never.wall as f64 / never.cpu.max(1) as f64).max(1.0)
}

/// Whether a function of this file is code of PHP: phases have no file, and internal functions that of their module, `<internal:pdo>`.
pub(crate) fn is_php(file: &str) -> bool {
    !file.is_empty() && !file.starts_with("<internal:")
}

fn leaves(profile: &Profile) -> HashMap<u64, Leaf<'_>> {
    let of_function = profile.function.iter().map(|function| {
        let (name, file) = (
            profile.string(function.name),
            profile.string(function.filename),
        );
        let leaf = match kind(name) {
            _ if is_php(file) => Leaf::Php,
            Some(kind) => Leaf::Waits(name, kind),
            None => Leaf::Other,
        };
        (function.id, leaf)
    });
    let of_function: HashMap<u64, Leaf<'_>> = of_function.collect();
    let locations = profile.location.iter().filter_map(|location| {
        let leaf = of_function.get(&location.line.first()?.function_id)?;
        Some((location.id, *leaf))
    });
    locations.collect()
}

fn leaf_of<'a>(leaves: &HashMap<u64, Leaf<'a>>, sample: &Sample) -> Option<Leaf<'a>> {
    leaves.get(sample.location_id.first()?).copied()
}

#[cfg(test)]
mod tests;
