//! Who calls the functions of a profile: for the cause of a change, and for what only moved.
//!
//! Invariant: a function is its plain name and file. Only samples of the compared routes count. A
//! stack that is too deep loses frames in its middle, never its leaf. Recursion counts once: the
//! caller of a function is another one.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::lookup::Lookup;
use crate::proto::{Profile, Sample};
use crate::top_levels::plain;

/// The part of the time of functions that must be below a caller for it to be their common one.
const NEARLY_ALL: f64 = 0.9;
/// The deepest caller that is looked for, from the root.
const MAX_DEPTH: usize = 512;

/// Name and file.
pub(super) type NameAndFile = (String, String);

/// Before and after.
const SIDES: usize = 2;

/// The stacks of both profiles that end in one of some functions, by the functions' numbers.
#[derive(Default)]
pub(super) struct CallersOf {
    names: Vec<NameAndFile>,
    numbers: HashMap<NameAndFile, usize>,
    sides: [SideCallers; SIDES],
}

/// Those of one profile.
#[derive(Default)]
struct SideCallers {
    /// Every function of the profile, leaf or not.
    known: HashSet<usize>,
    /// Call paths from the root to the leaf, with their time.
    paths: BTreeMap<Vec<usize>, f64>,
    /// The time of each leaf.
    times: HashMap<usize, f64>,
    /// The function that calls a leaf nearly always, if there is one.
    direct: HashMap<usize, usize>,
}

impl CallersOf {
    /// Reads the samples of compared routes. The stacks of functions that are not asked for are
    /// left out.
    pub fn read<'n>(
        profiles: [&Profile; SIDES],
        sample_type: &str,
        asked: impl Iterator<Item = &'n NameAndFile>,
        is_compared: impl Fn(&str) -> bool,
    ) -> Self {
        let mut callers = Self::default();
        for name in asked {
            callers.number(name.clone());
        }
        let asked = callers.names.len();
        for (side, profile) in profiles.into_iter().enumerate() {
            // A merged profile may have lost the label to other samples.
            let has_routes = profile.sample.iter().any(|it| route(profile, it).is_some());
            let counts = |sample: &Sample| {
                !has_routes || is_compared(route(profile, sample).unwrap_or_default())
            };
            let read = callers.side(profile, sample_type, asked, counts);
            if let Some(place) = callers.sides.get_mut(side) {
                *place = read;
            }
        }
        callers
    }

    fn number(&mut self, name: NameAndFile) -> usize {
        let next = self.names.len();
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        number
    }

    fn side(
        &mut self,
        profile: &Profile,
        sample_type: &str,
        asked: usize,
        counts: impl Fn(&Sample) -> bool,
    ) -> SideCallers {
        let lookup = Lookup::new(profile);
        let index = profile.value_index(sample_type);
        let mut side = SideCallers::default();
        let mut rows: HashMap<(&str, &str), usize> = HashMap::new();
        let mut callers: HashMap<(usize, usize), f64> = HashMap::new();
        for sample in &profile.sample {
            let frames = lookup.frames(sample).map(|frame| {
                let key = (frame.name, frame.file);
                *rows.entry(key).or_insert_with(|| {
                    let name = plain(frame.name, frame.file).into_owned();
                    self.number((name, frame.file.to_owned()))
                })
            });
            let frames: Vec<usize> = frames.collect();
            side.known.extend(frames.iter().copied());
            let leaf = frames.first().copied().filter(|leaf| *leaf < asked);
            let Some(leaf) = leaf.filter(|_| counts(sample)) else {
                continue;
            };
            let value = index.and_then(|index| sample.value.get(index));
            let time = value.copied().unwrap_or(0) as f64;
            *side.times.entry(leaf).or_default() += time;
            if let Some(&caller) = frames.iter().find(|it| **it != leaf) {
                *callers.entry((leaf, caller)).or_default() += time;
            }
            let roots = frames.iter().skip(1).rev().take(MAX_DEPTH);
            let path = roots.chain([&leaf]).copied().collect();
            *side.paths.entry(path).or_default() += time;
        }
        let all = |leaf: &usize| side.times.get(leaf).copied().unwrap_or(0.0);
        let nearly = callers.into_iter();
        let nearly =
            nearly.filter(|((leaf, _), time)| *time > 0.0 && *time >= NEARLY_ALL * all(leaf));
        side.direct = nearly.map(|(pair, _)| pair).collect();
        side
    }

    /// Whether a stack of the profile before has the function, and of the profile after.
    pub fn has(&self, function: &NameAndFile) -> [bool; SIDES] {
        let number = self.numbers.get(function);
        let sides = self.sides.each_ref();
        sides.map(|side| number.is_some_and(|number| side.known.contains(number)))
    }

    /// The function that calls this one nearly always before, and the one after.
    pub fn direct(&self, function: &NameAndFile) -> [Option<&NameAndFile>; SIDES] {
        let number = self.numbers.get(function);
        self.sides.each_ref().map(|side| {
            let caller = side.direct.get(number?)?;
            self.names.get(*caller)
        })
    }

    /// The deepest function below which nearly all of these changes are: of gains in the profile
    /// after, and of losses in the one before. It may be one of the functions.
    pub fn common<'n>(
        &self,
        changes: impl Iterator<Item = (&'n NameAndFile, f64)>,
    ) -> Option<NameAndFile> {
        let changes: HashMap<usize, f64> = changes
            .filter_map(|(name, change)| Some((*self.numbers.get(name)?, change)))
            .collect();
        let all: f64 = changes.values().map(|change| change.abs()).sum();
        let mut below: Vec<(&[usize], f64)> = Vec::new();
        for (number, side) in self.sides.iter().enumerate() {
            for (path, time) in &side.paths {
                let Some(leaf) = path.last() else { continue };
                let change = changes.get(leaf).copied().unwrap_or(0.0);
                let is_here = if number == 0 {
                    change < 0.0
                } else {
                    change > 0.0
                };
                let whole = side.times.get(leaf).copied().unwrap_or(0.0);
                if is_here && whole > 0.0 {
                    below.push((path, change.abs() * time / whole));
                }
            }
        }
        let mut common = None;
        for depth in 0.. {
            let mut next: BTreeMap<usize, f64> = BTreeMap::new();
            for (path, change) in &below {
                if let Some(function) = path.get(depth) {
                    *next.entry(*function).or_default() += change;
                }
            }
            let most = next.into_iter();
            let most = most.max_by(|one, other| one.1.total_cmp(&other.1));
            let Some((function, change)) = most else {
                break;
            };
            if all <= 0.0 || change < NEARLY_ALL * all {
                break;
            }
            below.retain(|(path, _)| path.get(depth) == Some(&function));
            common = Some(function);
        }
        self.names.get(common?).cloned()
    }
}

fn route<'a>(profile: &'a Profile, sample: &Sample) -> Option<&'a str> {
    let mut labels = sample.label.iter();
    let label = labels.find(|label| profile.string(label.key) == "route");
    label.map(|label| profile.string(label.str))
}

#[cfg(test)]
mod tests;
