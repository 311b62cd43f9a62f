//! Chooses the rows of a profile that a merged profile keeps.
//!
//! Invariant: a limited number of rows is kept, those with the largest values. The choice depends
//! on the profile alone.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use crate::proto::{Profile, Sample};
use crate::source::SampleSource;

/// How many rows one profile may add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowShare {
    /// If its rows stay unchanged.
    whole: usize,
    /// If its rows are added up over the labels in `folds`.
    folded: usize,
}

/// One profile's part of the remaining rows: an equal part. For rows that were added up, it is at
/// least a thirty-second, because most profiles need less.
pub(crate) fn of_rows(left: usize, profiles: usize) -> RowShare {
    let equal = left / profiles.max(1);
    RowShare {
        whole: equal,
        folded: equal.max(left / 32),
    }
}

/// One profile's part of the remaining bytes. The first profiles need most, because they add the
/// names that the others share.
pub(crate) fn of_bytes(left: usize, profiles: usize) -> usize {
    (left / profiles.max(1)).max(left / 8)
}

/// The rows that are kept of one profile.
#[derive(Debug)]
pub(crate) struct KeptRows {
    /// `None`: rows stay unchanged.
    folds: Option<&'static [&'static str]>,
    /// `None`: all rows, added up over the labels in `folds`. Otherwise the hashes of the rows,
    /// with a random key, so that the author of a profile cannot make two rows collide.
    chosen: Option<HashSet<u64>>,
    hasher: RandomState,
}

impl KeptRows {
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

/// Keeps all rows if they are few enough. Otherwise adds them up over the labels in `folds`. If
/// they are still too many, keeps those with the largest values at `weight`.
pub(crate) fn choose<S: SampleSource + ?Sized>(
    source: &S,
    weight: usize,
    share: RowShare,
    folds: &'static [&'static str],
) -> KeptRows {
    let hasher = RandomState::new();
    let (whole, all) = (None, None);
    if source.count() <= share.whole {
        return KeptRows {
            folds: whole,
            chosen: all,
            hasher,
        };
    }
    // Of equal rows, the first are kept.
    let mut weights: HashMap<u64, (i64, Reverse<usize>)> = HashMap::new();
    source.each(&mut |sample| {
        let row = hash(&hasher, source.head(), sample, folds);
        let place = Reverse(weights.len());
        let (sum, _) = weights.entry(row).or_insert((0, place));
        *sum = sum.saturating_add(sample.value.get(weight).copied().unwrap_or(0));
    });
    let chosen = (weights.len() > share.folded).then(|| {
        // One row replaces the rest.
        let kept = share.folded.saturating_sub(1);
        let mut ordered: Vec<_> = weights.into_iter().map(|(row, sum)| (sum, row)).collect();
        if kept < ordered.len() {
            ordered.select_nth_unstable_by(kept, |one, other| other.cmp(one));
        }
        ordered.into_iter().take(kept).map(|(_, row)| row).collect()
    });
    KeptRows {
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
