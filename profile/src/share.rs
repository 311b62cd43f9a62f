//! Which rows of a profile find room in a merged one.
//!
//! Invariant: what is kept are at most so many rows, and of those with the largest values; the choice depends on the profile alone.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use crate::proto::{Profile, Sample};
use crate::source::Source;

/// How many rows one profile may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// As they are.
    whole: usize,
    /// Added up over the labels that fold.
    folded: usize,
}

/// Of what is left for so many profiles: an equal part; rows that were added up may be a thirty-second in any case, since most profiles need less.
pub(crate) fn of_rows(left: usize, profiles: usize) -> Share {
    let equal = left / profiles.max(1);
    Share {
        whole: equal,
        folded: equal.max(left / 32),
    }
}

/// The same of bytes, of which the first profiles need most: they bring the names that the others have too.
pub(crate) fn of_bytes(left: usize, profiles: usize) -> usize {
    (left / profiles.max(1)).max(left / 8)
}

/// The rows of one profile that are kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// None: every row as it is.
    folds: Option<&'static [&'static str]>,
    /// None: all, added up over the labels that fold. Hashes of rows, with a key of our own: whoever made the profile cannot make two
    /// rows one.
    chosen: Option<HashSet<u64>>,
    hasher: RandomState,
}

impl Kept {
    pub fn is_whole(&self) -> bool {
        self.folds.is_none()
    }

    pub fn has(&self, sample: &Sample, profile: &Profile) -> bool {
        let folds = self.folds.unwrap_or_default();
        let row = || hash(&self.hasher, profile, sample, folds);
        self.chosen
            .as_ref()
            .is_none_or(|chosen| chosen.contains(&row()))
    }
}

/// Keeps all rows where there are so few; else adds them up over the labels that fold; else keeps those with the largest of the values at `weight`.
pub(crate) fn choose<S: Source + ?Sized>(
    source: &S,
    weight: usize,
    share: Share,
    folds: &'static [&'static str],
) -> Kept {
    let hasher = RandomState::new();
    let (whole, all) = (None, None);
    if source.count() <= share.whole {
        return Kept {
            folds: whole,
            chosen: all,
            hasher,
        };
    }
    // Of equal ones the first are kept.
    let mut weights: HashMap<u64, (i64, Reverse<usize>)> = HashMap::new();
    source.each(&mut |sample| {
        let row = hash(&hasher, source.head(), sample, folds);
        let place = Reverse(weights.len());
        let (sum, _) = weights.entry(row).or_insert((0, place));
        *sum = sum.saturating_add(sample.value.get(weight).copied().unwrap_or(0));
    });
    let chosen = (weights.len() > share.folded).then(|| {
        // One row stands for the rest.
        let kept = share.folded.saturating_sub(1);
        let mut ordered: Vec<_> = weights.into_iter().map(|(row, sum)| (sum, row)).collect();
        if kept < ordered.len() {
            ordered.select_nth_unstable_by(kept, |one, other| other.cmp(one));
        }
        ordered.into_iter().take(kept).map(|(_, row)| row).collect()
    });
    Kept {
        folds: Some(folds),
        chosen,
        hasher,
    }
}

fn hash(hasher: &RandomState, profile: &Profile, sample: &Sample, folds: &[&str]) -> u64 {
    let labels: Vec<_> = sample
        .label
        .iter()
        .filter(|label| !folds.contains(&profile.string(label.key)))
        .collect();
    hasher.hash_one((&sample.location_id, labels))
}
