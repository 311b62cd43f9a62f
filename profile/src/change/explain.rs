//! Who calls the functions of a profile: for the cause of a change, and for what only moved.
//!
//! Invariant: a function is its plain name and file. Recursion counts once.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::lookup::Lookup;
use crate::proto::Profile;
use crate::top_levels::plain;

/// The part of the time of functions that must be below a caller for it to be their common one.
const NEARLY_ALL: f64 = 0.9;
/// The deepest caller that is looked for.
const MAX_DEPTH: usize = 512;

/// Name and file.
pub(super) type NameAndFile = (String, String);

/// The stacks of a profile that end in one of some functions.
pub(super) struct CallersOf {
    /// Every function of the profile, leaf or not.
    known: BTreeSet<NameAndFile>,
    /// Call paths from the root to the leaf, with their time.
    paths: BTreeMap<Vec<NameAndFile>, f64>,
}

impl CallersOf {
    /// Reads a profile. The stacks of functions that are not asked for are left out.
    pub fn read(profile: &Profile, sample_type: &str, asked: &BTreeSet<NameAndFile>) -> Self {
        let lookup = Lookup::new(profile);
        let index = profile.value_index(sample_type);
        let (mut known, mut paths) = (HashMap::new(), BTreeMap::<_, f64>::new());
        for sample in &profile.sample {
            let frames: Vec<_> = lookup
                .frames(sample)
                .map(|frame| (plain(frame.name, frame.file), frame.file))
                .collect();
            for frame in &frames {
                known.entry(frame.clone()).or_insert(());
            }
            let owned =
                |(name, file): &(Cow<'_, str>, &str)| (name.to_string(), (*file).to_owned());
            let Some(leaf) = frames.first().map(owned) else {
                continue;
            };
            if !asked.contains(&leaf) {
                continue;
            }
            let value = index.and_then(|index| sample.value.get(index));
            let path = frames.iter().rev().take(MAX_DEPTH).map(owned).collect();
            *paths.entry(path).or_default() += value.copied().unwrap_or(0) as f64;
        }
        let known = known.into_keys();
        Self {
            known: known
                .map(|(name, file)| (name.into_owned(), file.to_owned()))
                .collect(),
            paths,
        }
    }

    /// Whether a stack of the profile has the function.
    pub fn has(&self, function: &NameAndFile) -> bool {
        self.known.contains(function)
    }

    /// The function that calls this one nearly always, if there is one.
    pub fn direct(&self, function: &NameAndFile) -> Option<&NameAndFile> {
        let (mut callers, mut all) = (BTreeMap::<_, f64>::new(), 0.0);
        for (path, time) in &self.paths {
            let [.., caller, leaf] = path.as_slice() else {
                continue;
            };
            if leaf == function {
                *callers.entry(caller).or_default() += time;
                all += time;
            }
        }
        let most = callers.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.and_then(|(caller, time)| (time >= NEARLY_ALL * all).then_some(caller))
    }

    /// The deepest function below which nearly all time of these functions is. It may be one of
    /// them.
    pub fn common(&self, functions: &BTreeSet<NameAndFile>) -> Option<NameAndFile> {
        let paths = self.paths.iter();
        let mut below: Vec<(&[NameAndFile], f64)> = paths
            .filter(|(path, _)| path.last().is_some_and(|leaf| functions.contains(leaf)))
            .map(|(path, time)| (path.as_slice(), *time))
            .collect();
        let all: f64 = below.iter().map(|(_, time)| time).sum();
        let mut common = Vec::new();
        if all <= 0.0 {
            return None;
        }
        loop {
            let mut next: BTreeMap<&NameAndFile, f64> = BTreeMap::new();
            for (path, time) in &below {
                if let Some(function) = path.get(common.len()) {
                    *next.entry(function).or_default() += time;
                }
            }
            let most = next
                .into_iter()
                .max_by(|one, other| one.1.total_cmp(&other.1));
            let Some((function, time)) = most else { break };
            if time < NEARLY_ALL * all {
                break;
            }
            let depth = common.len();
            let function = function.clone();
            below.retain(|(path, _)| path.get(depth) == Some(&function));
            common.push(function);
        }
        common.pop()
    }
}
