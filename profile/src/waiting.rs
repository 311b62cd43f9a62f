//! What a sample waits for: splits its wall time into running and waiting, by the internal function
//! that is its leaf.
//!
//! It changes no profile: [`labelled`] returns another one. There, the waiting part is a separate
//! sample with the label [`LABEL`]. Waiting for something that [`KINDS`] does not contain has no
//! label. A sampler sets the label itself where a worker could not continue, whatever its leaf is:
//! [`STOPPED`], [`DISK`] and [`CPU`]. Such samples stay as they are.
//!
//! Invariant: for each sample type, the two parts of a sample add up to it. The waiting part has no
//! CPU time.

mod kinds;
mod loops;

use std::collections::HashMap;

pub use kinds::{KINDS, kind};
pub use loops::waits_for_events;

use crate::proto::{Label, Profile, Sample};
use crate::source::SampleSource;

/// The key of the label.
pub const LABEL: &str = "waiting";

/// The label's value for workers that were stopped by a signal or a debugger, or whose control
/// group was frozen.
pub const STOPPED: &str = "stopped";
/// The label's value for workers in uninterruptible sleep, in a leaf that does not name what it
/// waits for.
pub const DISK: &str = "disk";

/// The label's value for workers that could run and waited for a CPU. Older samplers do not set it.
pub const CPU: &str = "cpu";

/// The values that a sampler sets.
const BY_SAMPLERS: [&str; 3] = [STOPPED, DISK, CPU];

/// A leaf that is off the CPU for less of its time than this counts as busy.
const LEAST_FRACTION: f64 = 0.1;

/// The fewest samples of PHP's own code from which waits for a CPU can be estimated.
const ENOUGH_SAMPLES: i64 = 50;

/// The waiting part of each leaf's wall time, in one profile.
///
/// A function that waits uses no CPU time. But a function whose worker waits for a CPU, for
/// instance under a CPU limit, uses none either. Newer samplers label that time. In profiles of
/// older ones, it is estimated. Code that never waits for anything else shows how
/// long these waits are: its ratio of wall time to CPU time applies to other functions too. The
/// parts are calculated from all samples of a function, because a single row says little.
#[derive(Debug)]
pub struct WaitingTimes {
    cpu: usize,
    /// By the id of a location: what its leaf waits for, and for which part of its time.
    leaves: HashMap<u64, (&'static str, f64)>,
    /// The label's key in the profile, if it has that.
    key: Option<i64>,
}

/// The times of one function, or of all that never wait.
#[derive(Clone, Copy, Debug, Default)]
struct FunctionTimes {
    samples: i64,
    cpu: i64,
    wall: i64,
}

impl FunctionTimes {
    fn add(&mut self, other: FunctionTimes) {
        self.samples = self.samples.saturating_add(other.samples);
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.wall = self.wall.saturating_add(other.wall);
    }
}

/// The function of a location's innermost line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leaf<'a> {
    /// PHP's own code. It never waits for anything except a CPU.
    Php,
    /// An internal function that waits for something, or a phase that does.
    Waits(&'a str, &'static str),
    Other,
}

impl WaitingTimes {
    /// `None` if the profile does not have both times, or already has the label of a kind that no
    /// sampler sets.
    pub fn of<S: SampleSource + ?Sized>(source: &S) -> Option<Self> {
        let profile = source.head();
        let (cpu, wall) = (profile.value_index("cpu")?, profile.value_index("wall")?);
        let samples = profile.value_index("samples");
        let by_location = leaves(profile);
        // A location is quickly hashed. The name of its function may be long.
        let mut of_locations: HashMap<u64, FunctionTimes> = HashMap::new();
        let mut is_labelled = false;
        source.each(&mut |sample| {
            let known = set_by_sampler(profile, sample);
            is_labelled |= known == Some(false);
            if known.is_some() {
                return;
            }
            let Some(leaf) = sample.location_id.first() else {
                return;
            };
            let value = |index: usize| sample.value.get(index).copied().unwrap_or(0);
            of_locations.entry(*leaf).or_default().add(FunctionTimes {
                samples: samples.map_or(1, value),
                cpu: value(cpu),
                wall: value(wall),
            });
        });
        if is_labelled {
            return None;
        }
        let mut times: HashMap<Leaf<'_>, FunctionTimes> = HashMap::new();
        for (location, its) in of_locations {
            if let Some(leaf) = by_location.get(&location) {
                times.entry(*leaf).or_default().add(its);
            }
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
        let label = |text: &str| profile.string_table.iter().position(|it| it == text);
        Some(WaitingTimes {
            cpu,
            leaves: waits.collect(),
            key: label(LABEL).and_then(|at| i64::try_from(at).ok()),
        })
    }

    /// What the sample waits for, and the values of the waiting part. The rest of its values belong
    /// to the running part.
    pub fn split(&self, sample: &Sample) -> Option<(&'static str, Vec<i64>)> {
        if self.key.is_some() && sample.label.iter().any(|it| Some(it.key) == self.key) {
            return None;
        }
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
}

/// Whether a sample's label, if it has one, is of a kind that a sampler sets.
fn set_by_sampler(profile: &Profile, sample: &Sample) -> Option<bool> {
    let mut labels = sample.label.iter();
    let label = labels.find(|label| profile.string(label.key) == LABEL)?;
    Some(BY_SAMPLERS.contains(&profile.string(label.str)))
}

/// Whether a worker waited for a CPU in a sample.
pub(crate) fn is_for_cpu(profile: &Profile, sample: &Sample) -> bool {
    let mut labels = sample.label.iter();
    labels.any(|label| profile.string(label.key) == LABEL && profile.string(label.str) == CPU)
}

/// The smallest part of the workers' time that is worth a line, in percent.
const MUCH_FOR_CPU: f64 = 5.0;

/// What to say of a run whose workers waited this many seconds for a CPU, and `all` seconds were
/// sampled; `None` if that is little. They also wait between requests, when the next one wakes them
/// up, so the waits may be longer.
#[must_use]
pub fn told_of_cpu(waited: f64, all: f64) -> Option<String> {
    let percent = 100.0 * waited / all.max(1e-9);
    (percent >= MUCH_FOR_CPU).then(|| {
        format!(
            "workers waited {waited:.1} s for a CPU, and {all:.1} s are sampled (label {LABEL}={CPU} where they waited); \
             raise the CPU limit, or lower the number of workers"
        )
    })
}

/// What to say of a run with samples of stopped workers; `None` if it has none.
#[must_use]
pub fn told_of_stopped(stopped: u64, samples: u64) -> Option<String> {
    let percent = 100.0 * stopped as f64 / samples.max(1) as f64;
    (stopped > 0).then(|| {
        format!(
            "{stopped} samples ({percent:.1} %) are of workers that were stopped, by a signal, a debugger or the freezer (label {LABEL}={STOPPED}); \
             phpprof dump shows who is, and kill -CONT PID lets one go on"
        )
    })
}

/// The profile with the waiting part of each sample as a separate sample, which has the label.
#[must_use]
pub fn labelled(profile: &Profile) -> Profile {
    let Some(waiting) = WaitingTimes::of(profile) else {
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

/// The ratio of wall time to CPU time: 1 if nothing waits for a CPU.
fn stretch(times: &HashMap<Leaf<'_>, FunctionTimes>) -> f64 {
    let php = times.get(&Leaf::Php).copied().unwrap_or_default();
    let mut never = php;
    if php.samples < ENOUGH_SAMPLES {
        never.add(times.get(&Leaf::Other).copied().unwrap_or_default());
    }
    (never.wall as f64 / never.cpu.max(1) as f64).max(1.0)
}

/// Whether a function of this file is PHP code. Phases have no file, and internal functions have
/// their module's, such as `<internal:pdo>`.
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

#[cfg(test)]
mod tests;
