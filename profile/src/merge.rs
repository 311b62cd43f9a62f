//! Several profiles into one file: the pods of a request.
//!
//! It does not scale values and does not align times.
//!
//! Invariant: each value type's total is the sum of the totals (up to the ends of `i64`). Memory stays below the room that was given, whatever
//! the profiles are, and no profile can take the others' part of it.

use crate::builder::{HEAP, Settings, head};
use crate::packer::Packer;
use crate::proto::{Function, Line, Location, Profile};
use crate::rows::Rows;
use crate::share;
use crate::source::Source;
use crate::tables::Tables;
use incoming::Incoming;

mod incoming;

/// The function of a row that stands for those that found no room.
pub const OTHER: &str = "[other]";
/// Of each profile the first comment is kept, what a sampler says of its run, if it is no longer.
const COMMENT_BYTES: usize = 4096;

/// Why profiles cannot become one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// No profile was added.
    #[error("nothing to merge")]
    Empty,
    /// Names and units, as the first profile and another one have them.
    #[error("sample types differ: {expected} and {actual}")]
    SampleTypes {
        /// Of the first profile.
        expected: String,
        /// Of the one that was refused.
        actual: String,
    },
}

/// What a merged profile may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeLimits {
    /// Samples of the merged profile, those of [`OTHER`] apart.
    pub rows: usize,
    /// In memory, all tables together.
    pub bytes: usize,
}

/// Fits what 100 pods of a large application bring.
impl Default for MergeLimits {
    fn default() -> Self {
        MergeLimits {
            rows: 800_000,
            bytes: 108 << 20,
        }
    }
}

/// What is known of a profile without its own word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedMetadata<'a> {
    /// In the place of labels of these names.
    pub labels: Vec<(&'a str, &'a str)>,
    /// 0 where it is not known.
    pub time_nanos: i64,
    /// 0 where it is not known.
    pub duration_nanos: i64,
}

/// What came of merging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// A gzip-compressed pprof file.
    pub file: Vec<u8>,
    /// Of each value type.
    pub totals: Vec<i64>,
    /// What of that stands in rows of [`OTHER`].
    pub other: Vec<i64>,
    /// Profiles that have such a row.
    pub cut: usize,
}

/// Merges one profile after the other, so that no two of them need to be in memory at once.
#[derive(Clone, Debug)]
pub struct Merger {
    head: Profile,
    types: Vec<String>,
    tables: Tables,
    rows: Rows,
    limits: MergeLimits,
    folds: &'static [&'static str],
    /// Profiles that were added, and that are still to come.
    added: usize,
    left: usize,
    merged: Merged,
}

/// Small profiles of phpprof's own sample types into one that is held in memory.
pub fn merge(profiles: &[Profile]) -> Result<Profile, MergeError> {
    let limits = MergeLimits::default();
    let mut merger = Merger::new(&Settings::default(), profiles.len(), limits, &[]);
    for profile in profiles {
        let known = TrustedMetadata {
            labels: Vec::new(),
            time_nanos: profile.time_nanos,
            duration_nanos: profile.duration_nanos,
        };
        merger.add(profile, &known)?;
    }
    let Merger {
        mut head,
        tables,
        rows,
        added,
        ..
    } = merger;
    if added == 0 {
        return Err(MergeError::Empty);
    }
    tables.finish_into(&mut head);
    rows.each(|sample| head.sample.push(sample.clone()));
    Ok(head)
}

impl Merger {
    /// A merged profile that says this of itself, of so many profiles; labels that `folds` names are given up first where room is short. Rows
    /// with the largest values of the last sample type are kept.
    pub fn new(
        settings: &Settings,
        profiles: usize,
        limits: MergeLimits,
        folds: &'static [&'static str],
    ) -> Self {
        let mut tables = Tables::new();
        let types = &settings.sample_types;
        let sums = vec![0; types.len()];
        Merger {
            head: head(settings, &mut tables),
            types: types.iter().copied().map(word).collect(),
            tables,
            rows: Rows::new(types.len()),
            limits,
            folds,
            added: 0,
            left: profiles,
            merged: Merged {
                file: Vec::new(),
                totals: sums.clone(),
                other: sums,
                cut: 0,
            },
        }
    }

    /// Adds a profile. Where its types are others, nothing is added.
    pub fn add<S: Source + ?Sized>(
        &mut self,
        source: &S,
        known: &TrustedMetadata<'_>,
    ) -> Result<(), MergeError> {
        let order = self.order(source.head())?;
        self.describe(source.head(), known);
        let free = self.limits.rows.saturating_sub(self.rows.len());
        let weight = order.last().copied().unwrap_or(0);
        let kept = share::choose(source, weight, share::of_rows(free, self.left), self.folds);
        let free = self.limits.bytes.saturating_sub(self.bytes());
        let bytes = self.bytes() + share::of_bytes(free, self.left);
        self.added += 1;
        self.left = self.left.saturating_sub(1);
        let folds = if kept.is_whole() { &[][..] } else { self.folds };
        let mut incoming = Incoming::new(source.head(), order, known, folds);
        let (mut cut, mut other) = (false, vec![0; self.types.len()]);
        source.each(&mut |sample| {
            let values = incoming.values(sample);
            add(&mut self.merged.totals, &values);
            let fits =
                kept.has(sample, source.head()) && self.bytes() + incoming.cost(sample) <= bytes;
            if fits {
                let stack = incoming.stack(sample, &mut self.tables);
                let labels = incoming.labels(sample, &mut self.tables);
                self.rows.add(&stack, labels, &values);
            } else {
                cut = true;
                add(&mut other, &values);
            }
        });
        if cut {
            self.merged.cut += 1;
            add(&mut self.merged.other, &other);
            let labels = incoming.own_labels(&mut self.tables);
            let stack = [other_location(&mut self.tables)];
            self.rows.add(&stack, labels, &other);
        }
        Ok(())
    }

    /// The file of all that was added.
    pub fn finish(mut self) -> Result<Merged, MergeError> {
        if self.added == 0 {
            return Err(MergeError::Empty);
        }
        let mut packer = Packer::default();
        self.rows.each(|sample| packer.sample(sample));
        self.tables.finish_into(&mut self.head);
        self.merged.file = packer.finish(&self.head);
        Ok(self.merged)
    }

    /// About what is held.
    fn bytes(&self) -> usize {
        self.tables.bytes + self.rows.bytes
    }

    /// Where in a sample of this profile each merged value stands; its order may be another. What heaps did may be missing, and counts as nothing
    /// then; where it is not asked for, it is left out.
    fn order(&self, profile: &Profile) -> Result<Vec<usize>, MergeError> {
        let theirs: Vec<String> = profile.sample_types().map(word).collect();
        let is_of_heap = |kind: &&String| HEAP.iter().any(|of_heap| word(*of_heap) == **kind);
        let place = |wanted: &String| {
            let place = theirs.iter().position(|word| word == wanted);
            place.or_else(|| is_of_heap(&wanted).then_some(usize::MAX))
        };
        let order: Option<Vec<usize>> = self.types.iter().map(place).collect();
        let others = |types: &[String]| types.iter().filter(|kind| !is_of_heap(kind)).count();
        order
            .filter(|_| others(&theirs) == others(&self.types))
            .ok_or_else(|| MergeError::SampleTypes {
                expected: self.types.join(", "),
                actual: theirs.join(", "),
            })
    }

    fn describe(&mut self, profile: &Profile, known: &TrustedMetadata<'_>) {
        let head = &mut self.head;
        head.time_nanos = match (head.time_nanos, known.time_nanos) {
            (0, time) | (time, 0) => time,
            (one, other) => one.min(other),
        };
        head.duration_nanos = head.duration_nanos.max(known.duration_nanos);
        let comment = profile
            .comments()
            .next()
            .filter(|comment| comment.len() <= COMMENT_BYTES);
        if let Some(comment) = comment {
            head.comment.push(self.tables.string(comment));
        }
    }
}

fn word((name, unit): (&str, &str)) -> String {
    format!("{name}/{unit}")
}

fn add(sums: &mut [i64], values: &[i64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}

fn other_location(tables: &mut Tables) -> u64 {
    let name = tables.string(OTHER);
    let function_id = tables.function(Function {
        name,
        system_name: name,
        ..Function::default()
    });
    tables.location(Location {
        line: vec![Line {
            function_id,
            ..Line::default()
        }],
        ..Location::default()
    })
}
