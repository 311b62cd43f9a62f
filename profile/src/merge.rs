//! Merges several profiles into one file: the pods of a request.
//!
//! It does not scale values and does not align times.
//!
//! Invariant: the total of each sample type is the sum of the profiles' totals (up to the limits of
//! `i64`). Memory stays below the given bound for any profiles, and no profile can take the share
//! of the others.

use crate::builder::{HEAP, Settings, head};
use crate::packer::Packer;
use crate::proto::{Function, Line, Location, Profile};
use crate::rows::SampleRows;
use crate::share;
use crate::source::SampleSource;
use crate::tables::ProfileTables;
use incoming::Incoming;

mod incoming;

/// The function of a row that replaces rows without room.
pub const OTHER: &str = "[other]";
/// The longest comment that is kept. Each profile keeps only its first comment, in which a sampler
/// describes its run.
const COMMENT_BYTES: usize = 4096;

/// Why profiles cannot be merged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// No profile was added.
    #[error("nothing to merge")]
    Empty,
    /// The names and units of the first profile and of another one differ.
    #[error("sample types differ: {expected} and {actual}")]
    SampleTypes {
        /// Those of the first profile.
        expected: String,
        /// Those of the refused profile.
        actual: String,
    },
}

/// The bounds of a merged profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeLimits {
    /// Samples of the merged profile, without those of [`OTHER`].
    pub rows: usize,
    /// Memory of all tables together.
    pub bytes: usize,
}

/// Enough for 100 pods of a large application.
impl Default for MergeLimits {
    fn default() -> Self {
        MergeLimits {
            rows: 800_000,
            bytes: 108 << 20,
        }
    }
}

/// Metadata that does not come from the profile itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedMetadata<'a> {
    /// They replace labels of the same names.
    pub labels: Vec<(&'a str, &'a str)>,
    /// 0 if it is not known.
    pub time_nanos: i64,
    /// 0 if it is not known.
    pub duration_nanos: i64,
}

/// The result of merging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// A gzip-compressed pprof file.
    pub file: Vec<u8>,
    /// The total of each sample type.
    pub totals: Vec<i64>,
    /// The part of each total in rows of [`OTHER`].
    pub other: Vec<i64>,
    /// The number of profiles with such a row.
    pub cut: usize,
}

/// Merges one profile after the other, so that only one is in memory at a time.
#[derive(Clone, Debug)]
pub struct Merger {
    head: Profile,
    types: Vec<String>,
    tables: ProfileTables,
    rows: SampleRows,
    limits: MergeLimits,
    folds: &'static [&'static str],
    /// The number of profiles that were added, and of those that will follow.
    added: usize,
    left: usize,
    merged: Merged,
}

/// Merges small profiles with phpprof's own sample types into one in memory.
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
    /// A merger for this many profiles, with these metadata. If there is little room, it first
    /// drops the labels in `folds`, then keeps the rows with the largest values of the last sample
    /// type.
    pub fn new(
        settings: &Settings,
        profiles: usize,
        limits: MergeLimits,
        folds: &'static [&'static str],
    ) -> Self {
        let mut tables = ProfileTables::new();
        let types = &settings.sample_types;
        let sums = vec![0; types.len()];
        Merger {
            head: head(settings, &mut tables),
            types: types.iter().copied().map(word).collect(),
            tables,
            rows: SampleRows::new(types.len()),
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

    /// Adds a profile. If its sample types differ, nothing is added.
    pub fn add<S: SampleSource + ?Sized>(
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

    /// The file of everything that was added.
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

    /// The approximate memory.
    fn bytes(&self) -> usize {
        self.tables.bytes + self.rows.bytes
    }

    /// The index of each merged value in the samples of this profile, whose order may differ.
    /// Missing sample types of heaps count as 0. They are ignored if the merged profile does not
    /// have them.
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

fn other_location(tables: &mut ProfileTables) -> u64 {
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
